"""The file of a checkpoint: an .npz, from which nothing is unpickled, that knows when it is damaged. *Local.*

    malt.about.npy   JSON: the version of this format, the program that wrote it, a description of what must match
    NAME.npy         each array of the state, in C order
    comment          of the archive, at its very end: "sha256 ", and that of all bytes before the digits

np.load reads it, too.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import zipfile
from collections.abc import Mapping
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from malt.files import atomic, npz

FORMAT: Final = 1
RESERVED: Final = "malt."
"""What names of arrays must not begin with."""

_ABOUT: Final = f"{RESERVED}about"
_MARK: Final = b"sha256 "
_DIGITS: Final = 2 * hashlib.sha256().digest_size
_BLOCK_NBYTES: Final = 1 << 20
_FIRST_MEMBER: Final = slice(30, 30 + len(_ABOUT))
"""Where its name stands (APPNOTE.TXT, the ZIP specification, 4.3.7)."""


class Content(NamedTuple):
    """What is in the file."""

    program: str
    description: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def write(path: str, content: Content) -> None:
    """Make `path` a file of `content`, complete and on the disk; delete what writers that were killed have left.

    OSError, of `path`, which is then as before.
    """
    about = {"format": FORMAT, "program": content.program, "description": content.description}
    members = {_ABOUT: np.array(json.dumps(about)), **content.arrays}
    atomic.remove_unfinished(path)
    atomic.write(path, lambda file: _fill(file, members))


def _fill(file: IO[bytes], members: Mapping[str, NDArray[Any]]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.comment = _MARK + bytes(_DIGITS)
        npz.write_arrays(archive, {name: np.asarray(array, order="C") for name, array in members.items()})
    digits = _digest(file, file.seek(0, 2) - _DIGITS)
    file.write(digits)


def _digest(file: IO[bytes], nbytes: int) -> bytes:
    """SHA-256 of the first `nbytes` bytes, in hexadecimal; the file then stands behind them."""
    digest = hashlib.sha256()
    file.seek(0)
    while nbytes > 0 and (block := file.read(min(nbytes, _BLOCK_NBYTES))):
        digest.update(block)
        nbytes -= len(block)
    return digest.hexdigest().encode()


def read(path: str) -> Content:
    """What is in the file: arrays of this process, C-contiguous and writable.

    ValueError, in one line that names the file: it is damaged, no checkpoint, or of another format. OSError.
    """
    if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):  # a pipe would be waited for
        raise OSError(errno.EINVAL, "not a regular file", path)
    with open(path, "rb") as file:
        _check_whole(file, path)
        try:
            with zipfile.ZipFile(file) as archive:
                npz.check_sizes(archive)
                members = npz.read_arrays(archive)
            about = json.loads(str(members.pop(_ABOUT)))
            if about["format"] == FORMAT:
                return Content(str(about["program"]), dict(about["description"]), members)
        except npz.DAMAGES as error:
            raise ValueError(f"{path}: not a checkpoint of malt, but for its checksum ({error})") from None
    raise ValueError(f"{path}: a checkpoint of format {about['format']}, and this version of malt reads {FORMAT}: "
                     "go on with the version that wrote it, or name another file")  # fmt: skip


def _check_whole(file: IO[bytes], path: str) -> None:
    """ValueError: a byte is not what was written."""
    head = file.read(_FIRST_MEMBER.stop)
    size = file.seek(0, 2)
    file.seek(max(size - len(_MARK) - _DIGITS, 0))
    tail = file.read()
    if tail.startswith(_MARK) and len(tail) == len(_MARK) + _DIGITS and tail.endswith(_digest(file, size - _DIGITS)):
        return
    if tail.startswith(_MARK) or head[_FIRST_MEMBER] == _ABOUT.encode():
        raise ValueError(f"{path}: a damaged checkpoint, cut short or changed since it was written: "
                         "put a copy in its place, or remove it to start anew")  # fmt: skip
    raise ValueError(f"{path}: not a checkpoint of malt: name another file")
