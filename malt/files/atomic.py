"""Files that are written complete or not at all. *Local.*

A file is written beside `path` under a name that nobody else uses, brought to the disk, and renamed: at any moment,
also after a kill or a loss of power, `path` is either as it was or complete. A writer that was killed leaves its
unfinished file behind, under that name.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable
from typing import IO, Final

_UNFINISHED: Final = re.compile(r"\.[0-9a-f]{32}\.partial")


def write(path: str | os.PathLike[str], fill: Callable[[IO[bytes]], object]) -> None:
    """Make `path` a file of what fill(file) writes; the file can be read, too. A link stays, and what it names changes.

    OSError, of `path`: nothing of it is left, and `path` is as before; likewise where fill raises.
    """
    final = os.path.realpath(path)
    partial = unfinished(final)
    try:
        with open(partial, "x+b") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, final)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise
    with contextlib.suppress(OSError):  # there are file systems that cannot sync a folder
        sync_folder(os.path.dirname(final))


def unfinished(path: str) -> str:
    """A name beside `path` that nobody else uses, for the file that is to become it."""
    return f"{path}.{uuid.uuid4().hex}.partial"


def publish(partial: str, path: str, is_wanting: Callable[[], bool]) -> None:
    """Name an unfinished file `path`. Of several writers the first wins: a file of that name stays.

    `is_wanting`: says whether there is no good file at `path`; a bad one is replaced. The unfinished name may be left.
    Raises OSError."""
    try:
        os.link(partial, path)  # unlike a rename, it fails where another has just taken the name
    except OSError:  # that, or a file system without links
        if is_wanting():
            os.replace(partial, path)
    sync_folder(os.path.dirname(path))


def remove_unfinished(path: str) -> None:
    """Delete what writers of `path` that were killed have left. One that still writes fails with an OSError."""
    folder, name = os.path.split(os.path.realpath(path))
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.name.startswith(name) and _UNFINISHED.fullmatch(entry.name, len(name)):
                os.unlink(entry.path)


def sync_folder(folder: str) -> None:
    """Bring the names in a folder to the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
