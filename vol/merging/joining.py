"""Joins of whole arrays that wait to leave for another host with the next ones. Pure.

It follows from the function of this rank's last gather, which all ranks are expected to use. A model takes the place of
an older one. Changes are added up. Of models with mass the mean by mass goes on, so that none is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dstorm.queues.sending.unsent import Join, Unsent, supersede
from vol.merging.merge import PUSH_SUM, SUM, GatherFunction, Own, Term


def join_of(function: Any, dtype: np.dtype[Any], depth: int) -> Join:
    """Return the function that joins whole arrays of `dtype` merged by `function`; None: none has merged any. Local.

    `depth`: that of the queues. As many messages are kept where it is not known what they say.
    """
    if not isinstance(function, GatherFunction):
        return lambda waiting, new: [*waiting, new][-depth:]
    if not (function.adds or function is PUSH_SUM):
        return supersede
    merge = SUM.merge if function.adds else PUSH_SUM.merge

    def merged(waiting: Sequence[Unsent], new: Unsent) -> Sequence[Unsent]:
        """The sum of all, or their mean by mass, with the mass of all."""
        if not waiting:
            return [new]
        values = new.payload.view(dtype).copy()
        terms = [Term(1 + k, one.step, 0.0, one.share, one.payload.view(dtype)) for k, one in enumerate(waiting)]
        merge(Own(0, 1.0, new.share, values), terms)
        return [new._replace(payload=values.view(np.uint8), share=new.share + sum(one.share for one in waiting))]

    return merged
