"""Files that are written complete or not at all. All calls are local.

A file is written under a unique name beside `path`, synced to the disk, and renamed. At any moment, also after a kill
or a loss of power, `path` is either unchanged or complete. A writer that is killed leaves its unfinished file behind.
While it writes it has locked it (flock(2)): so another job, which cleans up there, leaves it alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import uuid
from collections.abc import Callable
from typing import IO, Final

from malt.files import heartbeats
from malt.files.paths import text_of

_UNFINISHED: Final = re.compile(r"\.[0-9a-f]{32}\.partial")

_confirm: Callable[[], object] = bool


def confirm_by(confirm: Callable[[], object]) -> None:
    """Have `write` call confirm() before a file gets its name: where this rank may no longer write, it ends. Local."""
    global _confirm
    _confirm = confirm


def write(path: str | os.PathLike[str], fill: Callable[[IO[bytes]], object]) -> None:
    """Write the file `path`: its content is what fill(file) writes. Local.

    `file` is open for writing and reading. All that is written is a sign of life for ranks that wait for this one. If
    `path` is a symbolic link, its target is written. OSError, with the name `path`: the file cannot be written, or is a
    device or a pipe, which the file would replace. TypeError: `path` is neither a string nor a path. After that, and if
    fill raises, `path` is unchanged and no other file is left.
    """
    final = os.path.realpath(text_of(path))
    if os.path.exists(final) and not (os.path.isfile(final) or os.path.isdir(final)):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    try:
        while (file := _begun(partial := unfinished(final))) is None:
            pass
        with file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            heartbeats.give()
            _confirm()
            os.replace(partial, final)  # while it is locked: another job would remove it
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, partial):  # else fill's
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder
        sync_folder(os.path.dirname(final))


def _begun(partial: str) -> IO[bytes] | None:
    """A new file `partial`, locked as far as the file system has locks. OSError.

    None: before it was locked another job took it for that of a killed writer, and removes it.
    """
    file = heartbeats.opened(partial, "x+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError:  # no locks
        return file
    if os.fstat(file.fileno()).st_nlink:
        return file
    file.close()
    return None


def unfinished(path: str) -> str:
    """Return a unique name beside `path`, for the unfinished file. Local."""
    return f"{path}.{uuid.uuid4().hex}.partial"


def publish(partial: str, path: str, is_wanting: Callable[[], bool]) -> None:
    """Give the unfinished file `partial` the name `path`. Local.

    The first of several writers wins: a file at `path` stays, unless is_wanting() returns True, which means that it is
    damaged. The name `partial` may stay. OSError: the name cannot be given.
    """
    try:
        os.link(partial, path)  # unlike a rename, a link fails if another writer has just taken the name
    except OSError:  # the name is taken, or the file system has no links
        if is_wanting():
            os.replace(partial, path)
    sync_folder(os.path.dirname(path))


def remove_unfinished(path: str) -> None:
    """Delete the unfinished files of `path`, which killed writers have left. Local.

    Those of writers that are at work stay, and all where the file system has no locks.
    """
    folder, name = os.path.split(os.path.realpath(path))
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.name.startswith(name) and _UNFINISHED.fullmatch(entry.name, len(name)):
                with contextlib.suppress(OSError), open(entry.path, "r+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)


def sync_folder(folder: str) -> None:
    """Sync the names in a folder to the disk. Local. OSError: the file system cannot."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
