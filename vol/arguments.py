"""Arguments of the calls on a vector, looked at before anything is done."""

from __future__ import annotations

import math
from operator import index
from typing import Any

import numpy as np


def real(name: str, number: Any) -> float:
    """`number` as a float. TypeError, which calls it `name`: it is not a number; nor are True and "1" here."""
    if not isinstance(number, (bool, np.bool_, str)) and hasattr(number, "__float__"):
        try:
            return float(number)
        except OverflowError:  # 10**400
            return math.inf
        except (TypeError, ValueError):
            pass
    raise TypeError(f"{name} must be a number, got {number!r}")


def integer(number: Any) -> int:
    """`number` as an int. TypeError: it is not a whole number; nor is True here."""
    if isinstance(number, bool):
        raise TypeError(f"{number!r} is not a whole number")
    return index(number)


def whole(name: str, number: Any, least: int, unit: str = "") -> int:
    """`number` as an int. The errors call it `name`. TypeError: not a whole number. ValueError: below `least`."""
    message = f"{name} must be a whole number {unit and f'of {unit} '}from {least} up, got {number!r}"
    try:
        found = integer(number)
    except TypeError:
        raise TypeError(message) from None
    if found < least:
        raise ValueError(message)
    return found


def timeout(name: str, timeout_s: Any) -> float | None:
    """`timeout_s`, in seconds; None is none. TypeError, ValueError: it is not a number from 0 up."""
    if timeout_s is None:
        return None
    seconds = real(f"{name}: timeout_s", timeout_s)
    if not seconds >= 0:
        raise ValueError(f"{name}: timeout_s must be a number of seconds from 0 up, got {timeout_s!r}")
    return seconds
