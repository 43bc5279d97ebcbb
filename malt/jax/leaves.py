"""The leaves of a pytree by name: those that ranks exchange, as NumPy arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np


class Leaves:
    """The leaves of a pytree that are exchanged, and their shapes and dtypes. Local.

    TypeError: a leaf is traced.
    """

    def __init__(self, params: Any) -> None:
        found = _named(params)
        self._kinds = {name: _kind(one) for name, one in found.items()}
        leaves, self._tree = jax.tree_util.tree_flatten(params)
        self._likes = [_like(one) for one in leaves]
        self._exchanged = [name for name, one in found.items() if _is_array(one) and _is_number(one)]

    def check(self, params: Any) -> None:
        """Check that `params` is like the pytree at the start. TypeError: it is traced. ValueError: it is not."""
        leaves, tree = jax.tree_util.tree_flatten(params)
        if tree == self._tree and [_like(one) for one in leaves] == self._likes:
            return  # at each step: to name the leaves takes longer
        found = _named(params)
        if found.keys() != self._kinds.keys():
            raise ValueError(f"params has other leaves than at the start: {_difference(self._kinds, found)}")
        for name, one in found.items():
            if (kind := _kind(one)) != self._kinds[name]:
                raise ValueError(f"params{name} is {kind}, and was {self._kinds[name]} at the start")

    def arrays(self, params: Any) -> dict[str, Any]:
        """The numbers by name: views, which are read-only; copies of dtypes that MPI does not have."""
        found = _named(params)
        return {name: _as_numbers(found[name]) for name in self._exchanged}

    def differ(self, one: Any, other: Any) -> bool:
        """Return whether numbers of two such pytrees have other bits."""
        theirs = self.arrays(other)
        return any(array.tobytes() != theirs[name].tobytes() for name, array in self.arrays(one).items())

    def replaced(self, params: Any, arrays: Mapping[str, Any]) -> Any:
        """`params` with `arrays`, which are JAX's from then on, in the place of leaves, on the devices of these."""

        def new(name: str, leaf: Any) -> Any:
            """The leaf that takes the place of `leaf`: it itself where no array has its name. Local."""
            if name not in arrays:
                return leaf
            array = np.asarray(arrays[name])
            if np.iscomplexobj(leaf):
                array = array.view(np.result_type(array, np.complex64))[..., 0]
            array = array.astype(leaf.dtype, copy=False)
            return jax.device_put(array, leaf.sharding) if isinstance(leaf, jax.Array) else array

        paths, tree = jax.tree_util.tree_flatten_with_path(params)
        return jax.tree_util.tree_unflatten(tree, [new(jax.tree_util.keystr(path), leaf) for path, leaf in paths])


def _named(params: Any) -> dict[str, Any]:
    """The leaves by their paths. TypeError: one is traced."""
    found = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]}
    if any(isinstance(leaf, jax.core.Tracer) for leaf in found.values()):
        raise TypeError("malt.jax.Replica exchanges with other processes: call it outside jax.jit, grad and vmap")
    return found


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray))


def _like(leaf: Any) -> Any:
    """Return what is compared at each step: dtype and shape of an array that is not traced, else the type."""
    is_concrete = _is_array(leaf) and not isinstance(leaf, jax.core.Tracer)
    return (leaf.dtype, leaf.shape) if is_concrete else type(leaf)


def _is_number(leaf: Any) -> bool:
    return bool(jax.dtypes.issubdtype(leaf.dtype, np.number))


def _kind(leaf: Any) -> str:
    return f"{leaf.dtype} {list(leaf.shape)}" if _is_array(leaf) else type(leaf).__name__


def _as_numbers(leaf: Any) -> Any:
    """Return an array of floats or integers; of complex numbers both parts, along another axis at the end."""
    array = np.asarray(leaf)
    if np.iscomplexobj(array):
        array = np.stack([array.real, array.imag], axis=-1)
    if array.dtype.kind in "iu" or array.dtype in (np.float32, np.float64):
        return array
    if jax.dtypes.issubdtype(array.dtype, np.integer):  # int4 and the like
        return array.astype(np.int8)
    return array.astype(np.float64 if array.dtype.itemsize > 8 else np.float32)


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    missing, new = sorted(before.keys() - now.keys()), sorted(now.keys() - before.keys())
    return f"{missing[0]} is missing" if missing else f"{new[0]} is new"
