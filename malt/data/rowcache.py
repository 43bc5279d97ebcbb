"""Where the parsed rows of a file are kept: beside it, or in the user's cache where its folder cannot be written.

The cache of DIR/NAME is the folder DIR/.NAME.malt-cache, or ~/.cache/malt/NAME-(hash of the path). In it each state of
the file (size and modification time) has a row folder of its own name. A new one is made under a name that nobody
else uses, mapped by all who need it, and only then renamed to that name. So

- whatever has the final name is complete, on the disk too;
- of two jobs that make the same one, the first to rename wins; the other keeps its maps, whose files live on without
  a name, and nobody has yet to open a folder that may vanish;
- nothing that a running job has mapped is written to again.

A file that is replaced by another of the very same size and modification time is not noticed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from malt.atomicfile import sync_folder
from malt.data import rowfolder
from malt.data.rowfolder import StoredRows, Summary

ABANDONED_AFTER_S: Final = 3600.0
"""A row folder that is unfinished, or of another state of the file, is deleted when it is so old.

Not at once: its maker may still be at it, or another host may not have seen yet that the file has changed."""

_FINISHED: Final = "rows-"
_UNFINISHED: Final = "making-"


@dataclass(frozen=True)
class Source:
    """A state of a file."""

    path: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str) -> Source:
        """The present state of a regular file that can be read. Local. Raises OSError, ValueError."""
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path}: not a regular file: write what comes out of it to one")
        if status.st_size == 0:
            raise ValueError(f"{path}: the file is empty")
        with open(path, "rb"):
            return cls(path, status.st_size, status.st_mtime_ns)

    @property
    def key(self) -> str:
        """The name of the row folder of this state."""
        return f"{_FINISHED}{rowfolder.VERSION}-{self.size}-{self.mtime_ns}"

    @property
    def state(self) -> dict[str, int]:
        """What a row folder remembers of its file."""
        return {"size": self.size, "mtime_ns": self.mtime_ns}


def places(path: str) -> list[str]:
    """The two folders that may be the cache of a file, the better first."""
    folder, name = os.path.split(os.path.abspath(path))
    tag = hashlib.sha256(os.fsencode(os.path.join(folder, name))).hexdigest()[:16]
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(caches):  # to be ignored, says the XDG Base Directory Specification
        caches = os.path.join(os.path.expanduser("~"), ".cache")
    return [os.path.join(folder, f".{name}.malt-cache"), os.path.join(caches, "malt", f"{name}-{tag}")]


def find(source: Source, part: int = 0, parts: int = 1) -> StoredRows | None:
    """The rows of that state of the file, where a cache has them; share `part` of `parts` is verified. Local."""
    for place in places(source.path):
        stored = rowfolder.open_folder(os.path.join(place, source.key), source.state, part, parts)
        if stored is not None:
            return stored
    return None


def begin(source: Source, place: str, summary: Summary) -> str:
    """Make a row folder in `place` that nobody else knows of, and return its path. Local. Raises OSError."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(place, folder_mode(source.path))
    folder = os.path.join(place, f"{_UNFINISHED}{uuid.uuid4().hex}")
    try:
        rowfolder.make(folder, summary)
    except OSError:
        discard(folder)
        raise
    return folder


def folder_mode(path: str) -> int:
    """For whoever may read the file, and nobody else."""
    mode = os.stat(path).st_mode & 0o666
    return 0o700 | mode | (mode & 0o444) >> 2


def publish(source: Source, folder: str) -> None:
    """Give a sealed row folder its final name, unless another job has been faster. Local; an OSError is no matter."""
    place = os.path.dirname(folder)
    final = os.path.join(place, source.key)
    with suppress(OSError):
        try:
            os.rename(folder, final)
        except OSError:
            if rowfolder.open_folder(final, source.state) is None:  # what has the name is damaged
                _replace(folder, final)
        sync_folder(place)
    discard(folder)
    _sweep(place, source.key)


def _replace(folder: str, final: str) -> None:
    aside = os.path.join(os.path.dirname(final), f"{_UNFINISHED}{uuid.uuid4().hex}")
    os.rename(final, aside)
    discard(aside)
    os.rename(folder, final)


def discard(folder: str) -> None:
    """Delete a row folder, as far as it is there. Local."""
    shutil.rmtree(folder, ignore_errors=True)


def _sweep(place: str, key: str) -> None:
    """Delete what earlier jobs have left in `place`."""
    with suppress(OSError):
        for entry in list(os.scandir(place)):
            is_ours = entry.name.startswith((_FINISHED, _UNFINISHED)) and entry.name != key
            if is_ours and time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED_AFTER_S:
                discard(entry.path)
