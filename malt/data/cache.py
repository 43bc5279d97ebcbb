"""Where the stores of a file are kept: beside it, or in the user's cache where its folder cannot be written.

The cache of DIR/NAME is the folder DIR/.NAME.malt-cache, or ~/.cache/malt/NAME-(hash of the path). In it each state of
the file (size and modification time) has a store of its own name. A new one is made under a name that nobody else
uses, mapped by all who need it, and only then given that name. So

- whatever has the final name is complete, on the disk too;
- of two jobs that make the same one, the first to give it the name wins; the other keeps its maps, whose file lives on
  without a name, and no rank has yet to open a file that may vanish;
- nothing that a running job has mapped is written to again, nor replaced.

A file that is replaced by another of the very same size and modification time is not noticed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from malt.data import store
from malt.data.store import Contents, Store
from malt.files import atomic

ABANDONED_AFTER_S: Final = 3600.0
"""A store that is unfinished, or of another state of the file, is deleted when it is so old.

Not at once: its maker may still be at it, or another host may not have seen yet that the file has changed."""


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

    def key(self, kind: str) -> str:
        """The name of the store of this state."""
        return f"{kind}-{store.VERSION}-{self.size}-{self.mtime_ns}"

    @property
    def state(self) -> dict[str, int]:
        """What a store says of its file."""
        return {"size": self.size, "mtime_ns": self.mtime_ns}


def places(path: str) -> list[str]:
    """The two folders that may be the cache of a file, the better first."""
    folder, name = os.path.split(os.path.abspath(path))
    tag = hashlib.sha256(os.fsencode(os.path.join(folder, name))).hexdigest()[:16]
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(caches):  # to be ignored, says the XDG Base Directory Specification
        caches = os.path.join(os.path.expanduser("~"), ".cache")
    return [os.path.join(folder, f".{name}.malt-cache"), os.path.join(caches, "malt", f"{name}-{tag}")]


def find(source: Source, kind: str, part: int = 0, parts: int = 1) -> Store | None:
    """The store of that state of the file, where a cache has it; share `part` of `parts` is verified. Local."""
    for place in places(source.path):
        found = store.read(os.path.join(place, source.key(kind)), kind, source.state, part, parts)
        if found is not None:
            return found
    return None


def begin(source: Source, kind: str, place: str, contents: Contents) -> str:
    """Create a store in `place` that nobody else knows of, and return its path. Local. Raises OSError."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(place, _folder_mode(source.path))
    unfinished = atomic.unfinished(os.path.join(place, source.key(kind)))
    try:
        store.create(unfinished, contents)
    except OSError:
        discard(unfinished)
        raise
    return unfinished


def _folder_mode(path: str) -> int:
    """For whoever may read the file, and nobody else."""
    mode = os.stat(path).st_mode & 0o666
    return 0o700 | mode | (mode & 0o444) >> 2


def publish(source: Source, kind: str, unfinished: str) -> None:
    """Give a sealed store its final name, unless another job has been faster. Local; an OSError is no matter."""
    place, key = os.path.dirname(unfinished), source.key(kind)
    final = os.path.join(place, key)
    with suppress(OSError):
        atomic.publish(unfinished, final, lambda: store.read(final, kind, source.state) is None)
    discard(unfinished)
    _sweep(place, kind, key)


def discard(path: str) -> None:
    """Delete a store, or the folder in which an earlier version kept one, as far as it is there. Local."""
    with suppress(OSError):
        os.unlink(path)
    shutil.rmtree(path, ignore_errors=True)


def _sweep(place: str, kind: str, key: str) -> None:
    """Delete what earlier jobs have left in `place`."""
    with suppress(OSError):
        for entry in list(os.scandir(place)):
            is_ours = entry.name.startswith((f"{kind}-", "making-")) and entry.name != key  # making-: of version 2
            if is_ours and time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED_AFTER_S:
                discard(entry.path)
