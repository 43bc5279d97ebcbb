"""The function that a gather is given: a built-in function, or one of the user's. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np

from dstorm.words import shown
from vol.merging.merge import BUILT_IN, GatherFunction, UserFunction


def check_function(name: str, function: Any, dtype: np.dtype[Any]) -> None:
    """Check that a gather of the vector `name`, of `dtype`, can merge by `function`. Local. TypeError: it cannot."""
    if isinstance(function, GatherFunction):
        if function.floating and dtype.kind != "f":
            raise TypeError(f"{name}: {function} needs a floating-point vector, this one is {dtype}")
    elif not callable(function):
        names = ", ".join(map(repr, BUILT_IN))
        raise TypeError(f"{name}: gather takes {names} or a function f(own, updates), got {shown(function)}")


def counts_examples(function: GatherFunction | UserFunction) -> bool:
    """Return whether the weights of messages are counts of examples for `function`. Local."""
    return isinstance(function, GatherFunction) and function.weigh is not None
