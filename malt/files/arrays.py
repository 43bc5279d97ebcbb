"""Values as arrays that a file can hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_OF_OTHERS = 2
"""What isbuiltin of a dtype is that another package has added to NumPy: bfloat16 of ml_dtypes, say."""


def array_of(value: Any) -> NDArray[Any]:
    """`value` as an array; not a copy where it is one, or a tensor of the CPU. Local.

    Numbers that NumPy does not have, bfloat16 and those of 8 bits, become float32, which has all of them.

    It raises what NumPy and torch do, of any type: `value` is no array.
    """
    if _is_tensor(value):
        value = _near(value)
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.isbuiltin == _OF_OTHERS else array


def checked(value: Any) -> NDArray[Any]:
    """Return an array of the kind that `array_of` gives, without a copy: for a tensor, an empty one. Local."""
    return array_of(value.detach().new_empty(0) if _is_tensor(value) else value)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "numpy")


def _near(tensor: Any) -> NDArray[Any]:
    """A tensor of torch as an array."""
    near = tensor.detach().cpu().resolve_conj().resolve_neg()
    if not hasattr(np, str(near.dtype).rpartition(".")[2]):
        near = near.float() if near.is_floating_point() else near.cfloat() if near.is_complex() else near
    array: NDArray[Any] = near.numpy()
    return array
