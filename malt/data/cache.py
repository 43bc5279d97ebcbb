"""The cache of a file: the folder of its stores, beside the file, or in the cache of the user.

The cache of DIR/NAME is the folder DIR/.NAME.malt-cache; if DIR is not writable, ~/.cache/malt/NAME-(hash of the path).
Each state of the file has a store of its own name: its size, its times and its inode. Anybody can set the modification
time, as archives do; the change time (st_ctime) is set by the kernel where a file is written, replaced or touched, so
another file in its place has another state. A new store is written under a unique name. It gets its final name once all
ranks that need it have mapped it. So:

- A store with its final name is complete, on the disk too.
- If two jobs make the same store, the first to give the name wins. The ranks of the other job have mapped
  theirs by then. So no rank has to open a file that may be deleted, and the maps stay valid without a name.
- No store that a running job has mapped is written to or replaced.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from malt.data import store
from malt.data.store import Contents, Store
from malt.files import atomic

ABANDONED_AFTER_S: Final = 3600.0
"""The age at which a store is deleted if it is unfinished, or of another state of the file.

It is not deleted earlier: a job may still be writing it, or another host may not have seen yet that the file has
changed."""


@dataclass(frozen=True)
class Source:
    """A file in one state."""

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, path: str) -> Source:
        """Return the present state of a file. Local.

        OSError: it cannot be read. ValueError: it is empty, or not a regular file.
        """
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path}: not a regular file: write its output to one")
        if status.st_size == 0:
            raise ValueError(f"{path}: the file is empty")
        with open(path, "rb"):
            return cls(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)

    def key(self, kind: str) -> str:
        """Return the name of the store of this state. Local."""
        return "-".join(map(str, (kind, store.VERSION, *self.state.values())))

    @property
    def state(self) -> dict[str, int]:
        """The state, as the description of a store holds it."""
        return {name: value for name, value in vars(self).items() if name != "path"}


def places(path: str) -> list[str]:
    """Return the two folders that may be the cache of a file, the preferred one first. Local."""
    folder, name = os.path.split(os.path.abspath(path))
    tag = hashlib.sha256(os.fsencode(os.path.join(folder, name))).hexdigest()[:16]
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(caches):  # such a path is to be ignored (XDG Base Directory Specification)
        caches = os.path.join(os.path.expanduser("~"), ".cache")
    beside, own = os.path.join(folder, f".{name}.malt-cache"), os.path.join(caches, "malt", f"{name}-{tag}")
    return [beside, own if os.path.isabs(own) else beside]  # a user without a home has none of its own


def find(source: Source, kind: str, part: int = 0, parts: int = 1) -> Store | None:
    """Return the store of this state of the file, or None without one. Local. Verifies share `part` of `parts`."""
    for place in places(source.path):
        if not _is_safe(place, source.path):
            continue
        found = store.read(os.path.join(place, source.key(kind)), kind, source.state, part, parts)
        if found is not None:
            return found
    return None


def begin(source: Source, kind: str, place: str, contents: Contents) -> str:
    """Create a store under a unique name in the folder `place`; return its path. Local. Raises OSError."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(place, _folder_mode(source.path))
    if not _is_safe(place, source.path):
        raise FileExistsError(errno.EEXIST, "it was made by another user", place)
    unfinished = atomic.unfinished(os.path.join(place, source.key(kind)))
    try:
        store.create(unfinished, contents)
    except OSError:
        discard(unfinished)
        raise
    return unfinished


def _is_safe(place: str, path: str) -> bool:
    """Return whether the folder `place` exists and its owner is trusted: this user, root, or the owner of file `path`.

    In a folder where all may create files, such as /tmp, others could substitute rows, or read those of a private file.
    """
    with suppress(OSError):
        found, above = os.lstat(place), os.stat(os.path.dirname(place))
        if stat.S_ISDIR(found.st_mode) and found.st_uid in (os.geteuid(), 0, os.stat(path).st_uid):
            return True
        return not above.st_mode & stat.S_IWOTH
    return False


def _folder_mode(path: str) -> int:
    """Return the mode of a folder for those who may read the file, and nobody else."""
    mode = os.stat(path).st_mode & 0o666
    return 0o700 | mode | (mode & 0o444) >> 2


def publish(source: Source, kind: str, unfinished: str) -> None:
    """Give a sealed store its final name, unless another job was faster. Local. An OSError is ignored."""
    place, key = os.path.dirname(unfinished), source.key(kind)
    final = os.path.join(place, key)
    with suppress(OSError):
        atomic.publish(unfinished, final, lambda: store.read(final, kind, source.state) is None)
    discard(unfinished)
    _sweep(place, kind, key)


def discard(path: str) -> None:
    """Delete a store, if it exists. Local."""
    with suppress(OSError):
        os.unlink(path)


def _sweep(place: str, kind: str, key: str) -> None:
    """Delete the abandoned stores in the folder `place`."""
    with suppress(OSError):
        for entry in list(os.scandir(place)):
            is_ours = entry.name.startswith(f"{kind}-") and entry.name != key
            if is_ours and time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED_AFTER_S:
                discard(entry.path)
