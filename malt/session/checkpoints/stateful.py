"""Objects whose state a checkpoint holds, and arrays that it writes into: their state, and how it is put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np


def is_object(value: Any) -> bool:
    """Return whether `value` has a state of its own: a module or optimizer of torch, a Replica, a generator. Local."""
    return _has_state(value) or _is_generator(value)


def state_of(value: Any) -> Any:
    """The state of an object, as plain values and arrays, which may not be copies. What is no object is its own.

    Local, or Collective where the object's state_dict is.
    """
    if _has_state(value):
        return value.state_dict()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.BitGenerator):
        return value.state
    if isinstance(value, np.random.RandomState):
        return value.get_state(legacy=False)
    if isinstance(value, random.Random):
        return value.getstate()
    return value.get_state() if _is_generator(value) else value


def put_back(value: Any, state: Any) -> None:
    """Give an object the state that `state_of` returned, or arrays the values; other values are left alone.

    Local, or Collective where the object's load_state_dict is. ValueError, TypeError: the state does not fit.
    """
    if _has_state(value):
        is_of_torch = any(kind.__module__.partition(".")[0] == "torch" for kind in type(value).__mro__)
        value.load_state_dict(as_tensors(state) if is_of_torch else state)
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = state
    elif isinstance(value, np.random.BitGenerator):
        value.state = state
    elif isinstance(value, np.random.RandomState):
        value.set_state(state)
    elif isinstance(value, random.Random):
        value.setstate(state)
    elif _is_generator(value):
        value.set_state(as_tensors(state))
    elif isinstance(value, np.ndarray) or _is_tensor(value):
        if tuple(value.shape) != np.shape(state):
            raise ValueError(f"an array of shape {tuple(value.shape)} is {np.shape(state)} in the file")
        if _is_tensor(value):
            value.detach().copy_(as_tensors(np.asarray(state)))
        else:
            _copy_into(value, np.asarray(state))


def generators() -> dict[str, Any]:
    """The states of the generators of the modules random, numpy.random, and torch if it has been imported. Local."""
    found: dict[str, Any] = {"python": random.getstate(), "numpy": np.random.get_state(legacy=False)}
    if (torch := sys.modules.get("torch")) is not None:
        found["torch"] = torch.get_rng_state()
        if torch.cuda.is_initialized():
            found["cuda"] = list(torch.cuda.get_rng_state_all())
    return found


def set_generators(states: Mapping[str, Any]) -> None:
    """Give the generators of modules the states that `generators` returned. Local."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    if "torch" in states and (torch := sys.modules.get("torch")) is not None:
        torch.set_rng_state(torch.from_numpy(states["torch"]))
        if "cuda" in states and torch.cuda.device_count() == len(states["cuda"]):
            torch.cuda.set_rng_state_all([torch.from_numpy(one) for one in states["cuda"]])


def as_tensors(state: Any) -> Any:
    """`state` with tensors of torch in place of arrays, where the program has imported torch. Local."""
    torch = sys.modules.get("torch")
    if torch is None:
        return state
    if isinstance(state, np.ndarray) and state.dtype.kind in "biufc":
        return torch.from_numpy(state)
    if isinstance(state, Mapping):
        return type(state)({key: as_tensors(one) for key, one in state.items()})  # type: ignore[call-arg]
    return type(state)(map(as_tensors, state)) if isinstance(state, (list, tuple)) else state


def _has_state(value: Any) -> bool:
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _copy_into(array: Any, state: Any) -> None:
    """Copy `state` into `array`, of another dtype maybe: floats are rounded, as NumPy does.

    TypeError, ValueError: a number of `state` is out of the range of `array`, or a text is too long.
    """
    with np.errstate(over="ignore"):
        copied = state.astype(array.dtype, casting="same_kind")
    fits = copied == state if array.dtype.kind in "iubSU" else np.isfinite(copied) | ~np.isfinite(state)
    if not fits.all():
        raise ValueError(f"an array of {array.dtype} cannot hold all that is in the file, of {state.dtype}")
    array[...] = copied


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "copy_")


def _is_generator(value: Any) -> bool:
    if isinstance(value, (np.random.Generator, np.random.BitGenerator, np.random.RandomState, random.Random)):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Generator)
