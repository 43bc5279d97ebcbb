"""Estimators of scikit-learn and of malt.sklearn as values: the name of the class, and the attributes by name.

Nothing is pickled: an attribute is a value that malt/files/values.py knows, or an object or function of one of these
packages, or it cannot be sent. What makes an object again is a class of theirs, never a name that a message is free to
choose.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import numpy as np

_PACKAGES: Final = ("sklearn.", "malt.sklearn.", "malt.models.", "malt.kernels.")
"""Whose objects are made again by name. Those of malt are what its estimators hold."""
_FUNCTIONS: Final = ("sklearn.", "numpy.")
"""Whose functions are found by name: parameters of estimators, such as numpy.log1p."""
Parts = dict[str, Any]


def parts(value: Any, is_within: bool = False) -> Parts | None:
    """The class and the attributes of an estimator, or, `is_within` one, of what it holds. Local. None: it is neither.

    An estimator of malt.sklearn.average gives the plain one, as clone, copy and pickle do.
    """
    value = getattr(getattr(value, "_averaging", None), "estimator", value)
    if is_within and (found := _small(value)) is not None:
        return found
    kind = type(value)
    if not (is_sendable(kind) and (is_within or is_estimator(kind))):
        return None
    names = getattr(value, "_fields", None)  # of a named tuple
    if names is None and getattr(kind, "__reduce__", None) is not object.__reduce__:  # it is compiled
        return _reduced(value)
    state = dict(vars(value)) if names is None else dict(zip(names, value, strict=True))
    return {"class": [kind.__module__, kind.__qualname__], "state": state}


def is_estimator(kind: type) -> bool:
    """Return whether a class is one of estimators of scikit-learn. Local; imports nothing."""
    base = sys.modules.get("sklearn.base")
    return base is not None and issubclass(kind, base.BaseEstimator)


def is_sendable(kind: type) -> bool:
    """Return whether objects of this class are sent, if their attributes can be. Local."""
    return kind.__module__.startswith(_PACKAGES) and _found([kind.__module__, kind.__qualname__]) is kind


def made(found: Parts) -> Any:
    """The object of these parts. Local. TypeError: its class is none that can be sent."""
    for key, make in _MAKERS.items():
        if key in found:
            return make(found)
    name = found["class"]
    kind = _found(name) if name[0].startswith(_PACKAGES) else None  # to import a module is to run it
    if not isinstance(kind, type) or not is_sendable(kind):
        raise TypeError(f"{'.'.join(name)} is not a class whose objects can be sent")
    if "arguments" in found:
        one = kind(*found["arguments"])
        if found["state"] is not None:
            one.__setstate__(found["state"])
        return one
    if issubclass(kind, tuple):
        return kind(*found["state"].values())
    one = object.__new__(kind)
    vars(one).update(found["state"])
    return one


def _found(name: list[str]) -> Any:
    """Return the object that a module has under a qualified name, or None."""
    try:
        return functools.reduce(getattr, name[1].split("."), import_module(name[0]))
    except (ImportError, AttributeError):
        return None


def _reduced(value: Any) -> Parts | None:
    """A compiled object as its class says that it is made again. None: it does not, or not by its class alone."""
    kind, arguments, *state = value.__reduce__()
    if kind is not type(value):
        return None
    return {"class": [kind.__module__, kind.__qualname__], "arguments": tuple(arguments), "state": [*state, None][0]}


def _small(value: Any) -> Parts | None:
    """Return the parts of a value that estimators hold beside arrays and objects."""
    if isinstance(value, np.random.RandomState):
        return {"random_state": value.get_state(legacy=False)}
    if isinstance(value, np.random.Generator):
        return {"generator": value.bit_generator.state}
    if isinstance(value, np.dtype) and not value.hasobject:
        return {"dtype": _described(value), "is_type": False}
    if isinstance(value, type) and issubclass(value, np.generic) and value is not np.object_:
        return {"dtype": _described(np.dtype(value)), "is_type": True}
    if isinstance(value, np.ma.MaskedArray):
        return {"masked": np.asarray(value.data), "mask": np.ma.getmaskarray(value)}
    if isinstance(value, np.ndarray) and value.dtype.names is not None and not value.dtype.hasobject:
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return {"records": flat, "of": _described(value.dtype), "shape": value.shape}
    name = [str(getattr(value, one, "")) for one in ("__module__", "__qualname__")]
    if callable(value) and f"{name[0]}.".startswith(_FUNCTIONS) and _found(name) is value:
        return {"function": name}
    return None


def _described(dtype: Any) -> Any:
    """A dtype as JSON can express it."""
    if dtype.names is None:
        return dtype.str
    fields = [dtype.fields[name] for name in dtype.names]
    return {"names": list(dtype.names), "formats": [_described(one[0]) for one in fields],
            "offsets": [one[1] for one in fields], "itemsize": dtype.itemsize}  # fmt: skip


def _random_state(found: Parts) -> Any:
    generator = np.random.RandomState()
    generator.set_state(found["random_state"])
    return generator


def _generator(found: Parts) -> Any:
    bits = getattr(np.random, str(found["generator"]["bit_generator"]))()
    bits.state = found["generator"]
    return np.random.Generator(bits)


def _dtype(found: Parts) -> Any:
    dtype = np.dtype(found["dtype"])
    return dtype.type if found["is_type"] else dtype


def _function(found: Parts) -> Any:
    name = found["function"]
    function = _found(name) if f"{name[0]}.".startswith(_FUNCTIONS) else None
    if [getattr(function, "__module__", None), getattr(function, "__qualname__", None)] != name:  # one that it imports
        raise TypeError(f"{'.'.join(name)} is not a function that can be sent")
    return function


_MAKERS: Final[dict[str, Callable[[Parts], Any]]] = {
    "random_state": _random_state, "generator": _generator, "dtype": _dtype, "function": _function,
    "masked": lambda found: np.ma.MaskedArray(found["masked"], found["mask"]),
    "records": lambda found: found["records"].view(np.dtype(found["of"])).reshape(found["shape"]),
}  # fmt: skip
"""How what `_small` has found is made again, by the name that only it has."""
