"""Paths as users give them, checked before a file is opened. All calls are local."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

from dstorm.words import shown


def text_of(path: Any) -> str:
    """Return `path` as a string. Local. TypeError: it is neither a string nor a path."""
    try:
        return os.fsdecode(path)
    except TypeError:
        raise TypeError(f"path must be a string or a path, got {shown(path)}") from None


def check_readable(path: str | os.PathLike[str]) -> None:
    """Check that opening `path` does not wait, as that of a pipe does. Local.

    OSError: it is not there, or neither a regular file nor a folder, of which open() says that it is one. TypeError:
    it is neither a string nor a path; open() would take a number for a descriptor, and close it.
    """
    mode = os.stat(text_of(path)).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
