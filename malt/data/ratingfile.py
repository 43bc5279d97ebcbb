"""The parsed ratings of a file, kept in one file that is memory-mapped, in the folder where rowcache keeps rows.

    8 bytes      MAGIC
    8 bytes      how long the description is
    description  JSON: the version, the file that it was read from, dtype, length and CRC-32 of each array
    arrays       one after the other, each from a multiple of ALIGNMENT on

Its name is that of the state of the file (size and modification time), and whatever has the name is complete. A map
outlives the name.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from malt import atomicfile
from malt.data.ratingtext import MAX_ID_NBYTES, Ids, Lines
from malt.data.rowcache import ABANDONED_AFTER_S, Source, folder_mode, places

VERSION: Final = 2
MAGIC: Final = b"MALT rt\n"
ALIGNMENT: Final = 64
MAX_ABOUT_NBYTES: Final = 1 << 16
"""A longer description is not read."""
_PREFIX: Final = "ratings-"
_LENGTH_NBYTES: Final = 8


@dataclass(frozen=True, eq=False)
class StoredRatings:
    """All ratings of a file by user, those of each in the order of the file: read-only."""

    users: NDArray[np.int32]
    """Ascending."""
    items: NDArray[np.int32]
    ratings: NDArray[np.float32]
    user_ids: Ids
    """Ascending, each once."""
    item_ids: Ids

    @classmethod
    def of(cls, lines: Lines) -> StoredRatings:
        """Number the users and items by their ids in ascending order."""
        user_ids, users = np.unique(lines.users, return_inverse=True)
        item_ids, items = np.unique(lines.items, return_inverse=True)
        order = np.argsort(users.reshape(-1), kind="stable")
        numbers = [each.reshape(-1)[order].astype(np.int32) for each in (users, items)]
        made = cls(numbers[0], numbers[1], lines.ratings[order], user_ids, item_ids)
        for array in vars(made).values():
            array.flags.writeable = False
        return made

    def identity(self) -> str:
        """The same where, and only where, the ratings are the same."""
        return hashlib.sha256(json.dumps(_described(self)).encode()).hexdigest()


def find(source: Source) -> tuple[str, StoredRatings] | None:
    """The ratings of that state of the file and where they are kept, verified; None where no cache has them. Local."""
    for place in places(source.path):
        path = os.path.join(place, _name(source))
        stored = read(path, source, is_verified=False)
        if stored is not None:
            return path, stored
    return None


def keep(source: Source, stored: StoredRatings) -> str | None:
    """Keep the ratings for later; where, or None where there is no place to write. Local."""
    for place in places(source.path):
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with suppress(FileExistsError):
                os.mkdir(place, folder_mode(source.path))
            path = os.path.join(place, _name(source))
            _write(path, source, stored)
            _sweep(place, _name(source))
            return path
        except OSError:
            continue
    return None


def read(path: str, source: Source, is_verified: bool) -> StoredRatings | None:
    """Maps of the arrays, if the file is whole and was read from `source`, else None. Local.

    `is_verified`: another rank has just compared the checksums.
    """
    try:
        with open(path, "rb") as file:
            return _read(file, source, is_verified)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _name(source: Source) -> str:
    return f"{_PREFIX}{VERSION}-{source.size}-{source.mtime_ns}"


def _write(path: str, source: Source, stored: StoredRatings) -> None:
    body = {"version": VERSION, "source": source.state, "arrays": _described(stored)}
    about = json.dumps(body).encode()

    def fill(file: IO[bytes]) -> None:
        file.write(MAGIC + len(about).to_bytes(_LENGTH_NBYTES, "little") + about)
        for array in vars(stored).values():
            file.write(bytes(-file.tell() % ALIGNMENT))
            file.write(array.view(np.uint8).data)

    atomicfile.write(path, fill)


def _described(stored: StoredRatings) -> dict[str, list[Any]]:
    return {
        name: [array.dtype.str, array.size, zlib.crc32(array.view(np.uint8).data)]
        for name, array in vars(stored).items()
    }


def _read(file: Any, source: Source, is_verified: bool) -> StoredRatings | None:
    head = file.read(len(MAGIC) + _LENGTH_NBYTES)
    nbytes = int.from_bytes(head[len(MAGIC) :], "little")
    if not head.startswith(MAGIC) or nbytes > MAX_ABOUT_NBYTES:
        return None
    body = json.loads(file.read(nbytes))
    if (body["version"], body["source"]) != (VERSION, source.state):
        return None
    stored = StoredRatings(**_maps(file, body["arrays"], len(head) + nbytes))
    return stored if is_verified or _described(stored) == body["arrays"] else None


def _maps(file: Any, arrays: dict[str, list[Any]], offset: int) -> dict[str, NDArray[Any]]:
    """A map of each array from byte `offset` on. ValueError: the file has another length, or a dtype is not ours."""
    maps, size = {}, os.fstat(file.fileno()).st_size
    for name, (kind, length, _) in arrays.items():
        dtype = np.dtype(kind)
        if dtype.kind not in "ifS" or not 0 < dtype.itemsize <= MAX_ID_NBYTES or length < 1:
            raise ValueError(f"{name} is not as described")
        offset += -offset % ALIGNMENT
        maps[name] = np.asarray(np.memmap(file, dtype, "r", offset=offset, shape=(length,)))
        offset += length * dtype.itemsize
    if offset != size:
        raise ValueError("the file is too long")
    return maps


def _sweep(place: str, name: str) -> None:
    """Delete what earlier jobs have left of other states of the file."""
    with suppress(OSError):
        for entry in list(os.scandir(place)):
            is_ours = entry.name.startswith(_PREFIX) and entry.name != name
            if is_ours and time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED_AFTER_S:
                os.unlink(entry.path)
