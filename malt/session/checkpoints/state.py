"""The values that a checkpoint can hold: arrays, and values that JSON can express around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dstorm.words import shown
from malt.files import values
from malt.files.arrays import array_of, checked
from malt.files.checkpoint import RESERVED
from malt.files.values import Packed

_LONGEST_NAME: Final = 255
_KINDS: Final = "biufcSUmM"
"""Kinds of dtypes that a checkpoint can hold: truth values, numbers, text, dates and durations."""
_STATES: Final = {"bit_generator": "bit_generator.state", "state_dict": "state_dict()", "get_state": "get_state()"}
"""How to get what a checkpoint holds of an object that has the attribute."""


AsArray = Callable[[Any], NDArray[Any]]


def member(name: str, value: Any, as_array: AsArray) -> NDArray[Any] | Packed:
    """Return the entry `name` of a state as a file holds it: an array, not copied, if that suffices; else a value.

    `as_array`: makes arrays of values, or only checks whether it could.

    TypeError, ValueError, of one line that names the entry: the file cannot hold it.
    """
    place = f"state[{name!r}]"
    if not isinstance(value, (Mapping, list, tuple, int, type(None))):
        return _array(place, value, as_array)
    exact = _exact(value, as_array)
    with _finite(place):
        return values.pack(_plain(place, value, as_array)) if exact is None else exact


def plain(name: str, value: Any, key: str, beside: Mapping[str, Any]) -> Packed:
    """Return a dict of `value`, under `key`, and what is `beside` it, as a file holds it. Errors: as `check`."""
    with _finite(name):
        return values.pack({key: _plain(name, value, array_of), **_plain(name, beside, array_of)})


def check(name: str, value: Any) -> None:
    """TypeError, ValueError, as of `member`: a file cannot hold `value`. Without copies. `name`: for the message."""
    with _finite(name):
        _plain(name, value, checked)


@contextmanager
def _finite(place: str) -> Iterator[None]:
    """ValueError: the block goes on for ever in `place`."""
    try:
        yield
    except RecursionError:
        raise ValueError(f"{place} holds itself, or is nested too deeply") from None


def by_name(what: str, values: Any) -> Mapping[str, Any]:
    """`values`, a dict of values by name. TypeError: it is none. `what`: the argument, for the message."""
    if not isinstance(values, Mapping):
        raise TypeError(f'{what} must be a dict of values by name, as {{"w": w}}, got {type(values).__name__}')
    return values


def checked_name(name: Any) -> str:
    """The name of an entry of a state. TypeError, ValueError: a file cannot hold it."""
    if not isinstance(name, str):
        raise TypeError(f"state: names must be strings, got {shown(name)}")
    if not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable() or name.startswith(RESERVED):
        raise ValueError(f"state: a name must be 1 to {_LONGEST_NAME} characters that can be printed, and not begin "
                         f"with {RESERVED!r}, got {shown(name)}")  # fmt: skip
    return name


def _exact(value: Any, as_array: AsArray) -> NDArray[Any] | None:
    """A list, a tuple or an integer as an array of the same numbers or text. None: it would not be the same."""
    if value is None or isinstance(value, Mapping):
        return None
    try:
        array, theirs = as_array(value), np.asarray(value, object)
    except (TypeError, ValueError, RuntimeError):  # lists of unequal lengths, say
        return None
    if array.dtype.kind in "fcUS":  # where numbers may be text now, or rounded; or text has lost NULs at its end
        exact = (one.item() if isinstance(one, np.generic) else one for one in theirs.ravel())  # NumPy's == may round
        pairs = zip(array.ravel().tolist(), exact, strict=False)
        if array.shape != theirs.shape or not all(one == other or one != one for one, other in pairs):
            return None
    return array if array.dtype.kind in _KINDS else None


def _plain(place: str, value: Any, as_array: AsArray) -> Any:
    """`value`, of which all that is not list, tuple, dict, number, text or None is an array."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, (str, int)):
                raise TypeError(f"{place}: keys must be strings or integers, got {shown(key)}")
        kind = Counter if isinstance(value, Counter) else dict
        return kind({key: _plain(f"{place}[{key!r}]", one, as_array) for key, one in value.items()})
    if isinstance(value, (list, tuple)):
        plain = [_plain(f"{place}[{number}]", one, as_array) for number, one in enumerate(value)]
        return plain if isinstance(value, list) else tuple(plain)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return _array(place, value, as_array)


def _array(place: str, value: Any, as_array: AsArray) -> NDArray[Any]:
    try:
        array = as_array(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{place} is not an array that a file can hold: {str(error).partition(chr(10))[0]}") from error
    if array.dtype.kind not in _KINDS or isinstance(value, np.ma.MaskedArray):
        kind = f"an array of {array.dtype}" if type(value) is np.ndarray else type(value).__name__
        ways = [f": give its {way}" for attribute, way in _STATES.items() if hasattr(value, attribute)]
        raise TypeError(
            f"{place} must be an array of numbers or text, a number, a string, None, or a list, tuple or dict of "
            f"these, got {kind}{''.join(ways[:1])}"
        )
    if isinstance(value, (str, bytes)) and array.item() != value:
        raise ValueError(f"{place} ends in NUL, which an array would drop")
    return array
