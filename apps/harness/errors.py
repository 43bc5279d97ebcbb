"""Errors in the user's options and files, and how they are raised."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator


class BadInput(Exception):
    """An option or a file is wrong. It is raised on all ranks alike, printed as one line, and the exit status is 2."""


class StaysOut(Exception):
    """This rank has failed and was started again, and cannot come back. It is printed as one line."""


class HelpGiven(Exception):
    """--help was given, and the help is printed."""


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """A context that raises BadInput for OSError, ValueError, TypeError, MemoryError and FloatingPointError. Local.

    It is for code that checks the user's options and files, and that raises the same error on all ranks.
    """
    try:
        yield
    except OSError as error:
        if is_of_output(error):
            raise
        raise BadInput(
            f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        ) from None
    except (ValueError, TypeError, MemoryError, FloatingPointError) as error:
        raise BadInput(str(error)) from None


def is_of_output(error: OSError) -> bool:
    """Return whether what is printed cannot be written: nobody reads it, or its disk is full."""
    # Errors of files have their names.
    return error.filename is None and error.errno in (errno.EPIPE, errno.ENOSPC)
