"""Checks of arguments: numbers, integers, truth values, timeouts. Made before a call changes anything. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from dstorm.words import shown


def real(name: str, number: Any) -> float:
    """Return `number` as a float. Local.

    TypeError: `number` is not a number. True and "1" are no numbers here. The message calls the argument `name`.
    """
    if not isinstance(number, (bool, np.bool_, str)) and hasattr(number, "__float__"):
        try:
            return float(number)
        except OverflowError:  # 10**400
            return math.inf
        except (TypeError, ValueError):
            pass
    raise TypeError(f"{name} must be a number, got {shown(number)}")


def integer(number: Any) -> int:
    """Return `number` as an int. Local. TypeError: it is not an integer. True is none here."""
    if isinstance(number, (bool, np.bool_)):  # older NumPy takes its own for an index
        raise TypeError(f"{number!r} is not an integer")
    return index(number)


def whole(name: str, number: Any, least: int, unit: str = "") -> int:
    """Return `number` as an int. Local.

    TypeError: it is not an integer. ValueError: it is below `least`. The messages call the argument `name`, and say
    in which `unit` it is.
    """
    kind = f"a whole number of {unit}" if unit else "an integer"
    message = f"{name} must be {kind} of at least {least}, got {shown(number)}"
    try:
        found = integer(number)
    except TypeError:
        raise TypeError(message) from None
    if found < least:
        raise ValueError(message)
    return found


def truth(name: str, value: Any) -> bool:
    """Return `value` as a bool. Local. TypeError: it is neither True nor False. `name`: of the argument."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return `value`. Local. ValueError: it is none of `choices`. The message calls the argument `name`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, got {shown(value)}")
    return value


def weight(name: str, value: Any) -> float:
    """Return `value`, the weight of a message, as a float. Local.

    TypeError: it is not a number. ValueError: it is negative or not finite. The messages begin with `name`.
    """
    number = real(f"{name}: weight", value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{name}: weight must be finite and not negative, got {shown(value)}")
    return number


def timeout(name: str, timeout_s: Any) -> float | None:
    """Return `timeout_s`, in seconds, as a float; None stays None: no timeout. Local.

    TypeError: it is not a number. ValueError: it is negative or NaN. The messages begin with `name`.
    """
    if timeout_s is None:
        return None
    seconds = real(f"{name}: timeout_s", timeout_s)
    if not seconds >= 0:
        raise ValueError(f"{name}: timeout_s must be a number of seconds of at least 0, got {shown(timeout_s)}")
    return seconds
