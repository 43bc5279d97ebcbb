"""Joins of whole arrays that wait to leave for another host with the next ones. Pure.

It follows from the function of this rank's last gather, which all ranks are expected to use. A model takes the place of
an older one. Changes are added up. Of models with mass the mean by mass goes on, so that none is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dstorm.queues.sending.unsent import Join, Unsent, supersede
from vol.merging.merge import PUSH_SUM, GatherFunction, Own, Term, wide_dtype
from vol.update import Array


def join_of(function: Any, dtype: np.dtype[Any], depth: int) -> Join:
    """Return the function that joins whole arrays of `dtype` merged by `function`; None: none has merged any. Local.

    `depth`: that of the queues. As many messages are kept where it is not known what they say.
    """

    def added(waiting: Sequence[Unsent], new: Unsent) -> Sequence[Unsent]:
        """The sum of all."""
        if not waiting:
            return [new]
        wide = wide_dtype(dtype)
        total = sum((_values(one, dtype).astype(wide) for one in waiting), start=_values(new, dtype).astype(wide))
        return [new._replace(payload=_bytes(total, dtype))]

    def averaged(waiting: Sequence[Unsent], new: Unsent) -> Sequence[Unsent]:
        """The mean of all by mass, with the mass of all."""
        if not waiting:
            return [new]
        mean = _values(new, dtype).copy()
        own = Own(0, 1.0, new.share, mean)
        PUSH_SUM.merge(own, [Term(1 + place, one.step, 0.0, one.share, _values(one, dtype))
                             for place, one in enumerate(waiting)])  # fmt: skip
        return [new._replace(payload=_bytes(mean, dtype), share=new.share + sum(one.share for one in waiting))]

    def kept(waiting: Sequence[Unsent], new: Unsent) -> Sequence[Unsent]:
        """As many as a queue keeps."""
        return [*waiting, new][-depth:]

    if function is PUSH_SUM:
        return averaged
    if not isinstance(function, GatherFunction):
        return kept
    return added if function.adds else supersede


def _values(one: Unsent, dtype: np.dtype[Any]) -> Array:
    return one.payload.view(dtype)


def _bytes(values: Array, dtype: np.dtype[Any]) -> Any:
    with np.errstate(over="ignore"):
        return values.astype(dtype, copy=False).view(np.uint8)
