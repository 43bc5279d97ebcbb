"""Errors in the user's options and files, and how they are raised."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

_EXTRAS: Final = {"numba": "numba", "sklearn": "scikit-learn"}
"""Modules that programs may need beside those of malt, and the distributions that have them."""


class BadInput(Exception):
    """An option or a file is wrong. It is raised on all ranks alike, printed as one line, and the exit status is 2."""


class StaysOut(Exception):
    """This rank has failed and was started again, and cannot come back. It is printed as one line."""


class HelpGiven(Exception):
    """--help was given, and the help is printed."""


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """A context that raises BadInput for OSError, ValueError, TypeError, MemoryError, FloatingPointError and, where an
    extra is not installed, ImportError. Local.

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
    except ImportError as error:
        if error.name not in _EXTRAS:
            raise
        raise BadInput(_lack(error.name) or str(error)) from None


def is_of_output(error: OSError) -> bool:
    """Return whether what is printed cannot be written: nobody reads it, or its disk is full."""
    # Errors of files have their names.
    return error.filename is None and error.errno in (errno.EPIPE, errno.ENOSPC)


def _lack(module: str) -> str:
    """Return the extras that are missing, and how to install them; empty if `module` is there.

    A user who lacks one extra may lack the other.
    """
    missing = [name for one, name in _EXTRAS.items() if find_spec(one) is None]
    if _EXTRAS[module] not in missing:
        return ""
    return f"it needs {_EXTRAS[module]}, which is not installed: pip install {' '.join(missing)}"
