"""What is wrong with the user's options and files: one line, on all ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class BadInput(Exception):
    """What the user passed is wrong; raised alike on all ranks. Printed as one line; the status is 2."""


class HelpGiven(Exception):
    """--help was asked for, and given."""


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Where the user's files and options are looked at, alike on all ranks: what is wrong with them is BadInput, also
    where it shows only in a model that is not finite."""
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        ) from None
    except (ValueError, TypeError, MemoryError, FloatingPointError) as error:
        raise BadInput(str(error)) from None
