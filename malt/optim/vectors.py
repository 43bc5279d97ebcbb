"""Operations that optimizers need beside operators: the same for arrays and for sharded vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dstorm.words import shown
from vol import sharded
from vol.sharded import Arithmetic, Temporary


def dots(pairs: Sequence[tuple[Any, Any]]) -> list[float]:
    """The scalar product of each pair of vectors. Collective for sharded vectors, in one exchange, else Local."""
    if pairs and isinstance(pairs[0][0], Arithmetic):
        return sharded.dots(pairs)
    return [float(np.vdot(x, y)) for x, y in pairs]


def combined(function: Callable[..., Any], x: Any, *others: Any) -> Any:
    """function(x, *others), element by element: an array, or of sharded vectors a temporary. Local."""
    if isinstance(x, Arithmetic):
        return Temporary(function(*(one.local for one in (x, *others))), x)
    return function(x, *others)


def assign(w: Any, x: Any) -> None:
    """Write the values of `x` into `w`. Local."""
    if isinstance(w, Arithmetic):
        w.copy(x)
    else:
        np.copyto(w, x, casting="same_kind")


def checked(w: Any) -> Any:
    """`w`. TypeError: it is neither a writable array of floats nor a sharded vector. Local."""
    if isinstance(w, Arithmetic):
        return w
    if isinstance(w, np.ndarray) and not isinstance(w, (np.matrix, np.ma.MaskedArray)):
        if w.dtype.kind == "f" and w.flags.writeable:
            return w
        got = f"an array of {w.dtype}{'' if w.flags.writeable else ', which is read-only'}"
    else:
        got = f"a {type(w).__name__}"
    raise TypeError(f"w must be a sharded vector, or a writable array of floats, got {got}")


def alike(x: Any, w: Any, what: str) -> Any:
    """`x`. TypeError, ValueError, which begin with `what`: it is of another kind or shape than `w`. Local."""
    shape = getattr(x, "shape", None)
    if shape is None or isinstance(x, Arithmetic) is not isinstance(w, Arithmetic):
        raise TypeError(f"{what} of the kind of w, got {shown(x)}")
    if shape != w.shape:  # NumPy would broadcast it
        raise ValueError(f"{what} of shape {w.shape} as w, got shape {shape}")
    return x
