"""The file of a checkpoint: an .npz with a checksum, without pickles. All calls are local.

    malt.about.npy   JSON: the version of this format, the program that wrote it, the description that must match, and
                     the names of the arrays that are streamed, the lengths of those that are sparse, the names of the
                     values that are no arrays, the number of ranks, and those of which there is a part
    NAME.npy         one array of the state, in C order; or JSON: a value that is none, as malt.files.values has it
    malt.NAME.0.npy  the first array of such a value
    malt..3-text.npy the part of rank 3, a value that this rank alone goes on from; malt..3-0.npy is its first array
    comment          the end of the archive: "sha256 ", and the SHA-256 of all bytes before the digits

np.load reads it too.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from malt.files import atomic, heartbeats, npz, values
from malt.files.npz import Member, Streamed
from malt.files.paths import check_readable
from malt.files.values import Packed

FORMAT: Final = 1
RESERVED: Final = "malt."
"""The prefix that the names of arrays must not have."""

_ABOUT: Final = f"{RESERVED}about"
_TEXT: Final = "text"
_MARK: Final = b"sha256 "
_DIGITS: Final = 2 * hashlib.sha256().digest_size
_BLOCK_NBYTES: Final = 1 << 20
_PIECE_NBYTES: Final = 1 << 23
"""The longest piece in which a streamed array is read, unless a row is longer."""
_FIRST_MEMBER: Final = slice(30, 30 + len(_ABOUT))
"""The bytes of the file that hold the name of the first member (APPNOTE.TXT, the ZIP specification, 4.3.7)."""


class Content(NamedTuple):
    """The content of a checkpoint."""

    program: str
    description: dict[str, Any]
    arrays: dict[str, Member | Packed]
    ranks: int = 0
    """The number of ranks that have written it together. 0: there are no parts by rank."""
    parts: Mapping[int, Packed] = MappingProxyType({})
    """What each rank alone goes on from, by rank."""


def write(path: str, content: Content) -> None:
    """Write `content` to the file `path`, complete and synced to the disk. Local.

    Unfinished files of killed writers are deleted. OSError, with the name `path`: `path` is unchanged.
    """
    about = {
        "format": FORMAT, "program": content.program, "description": content.description,
        "streamed": [name for name, array in content.arrays.items() if isinstance(array, Streamed)],
        "lengths": {
            name: array.length for name, array in content.arrays.items()
            if isinstance(array, Streamed) and array.length is not None
        },
        "values": [name for name, array in content.arrays.items() if isinstance(array, Packed)],
        **({"ranks": content.ranks, "parts": list(content.parts)} if content.ranks else {}),
    }  # fmt: skip
    members: dict[str, Member] = {_ABOUT: np.array(json.dumps(about))}
    for rank, part in content.parts.items():
        members[_of_rank(rank, _TEXT)] = np.array(part.text)
        members |= {_of_rank(rank, number): array for number, array in enumerate(part.arrays)}
    for name, one in content.arrays.items():
        members |= {name: one} if not isinstance(one, Packed) else {
            name: np.array(one.text), **{_part(name, number): array for number, array in enumerate(one.arrays)}
        }  # fmt: skip
    atomic.remove_unfinished(path)
    atomic.write(path, lambda file: _fill(file, members))


def _fill(file: IO[bytes], members: Mapping[str, Member]) -> None:
    def ordered(array: Member) -> Member:
        """The array with its rows in order in memory: a copy where it is not so. One that is streamed is left. Pure."""
        return array if isinstance(array, Streamed) else np.asarray(array, order="C")

    with zipfile.ZipFile(file, "w") as archive:
        archive.comment = _MARK + bytes(_DIGITS)
        npz.write_arrays(archive, {name: ordered(array) for name, array in members.items()})
    digits = _digest(file, file.seek(0, 2) - _DIGITS)
    file.write(digits)


def _digest(file: IO[bytes], nbytes: int) -> bytes:
    """Return the SHA-256 of the first `nbytes` bytes, in hexadecimal. The file is then positioned after them."""
    digest = hashlib.sha256()
    file.seek(0)
    while nbytes > 0 and (block := file.read(min(nbytes, _BLOCK_NBYTES))):
        digest.update(block)
        nbytes -= len(block)
    return digest.hexdigest().encode()


def read(path: str) -> Content:
    """Return the content of the file `path`. Local. The arrays are copies, C-contiguous and writable, or `Streamed`.

    ValueError, of one line that names the file: it is damaged, not a checkpoint, or of another format. OSError: it
    cannot be read, or is not a regular file.
    """
    check_readable(path)
    with heartbeats.opened(path, "rb") as file:
        _check_whole(file, path)
        try:
            with zipfile.ZipFile(file) as archive:
                npz.check_sizes(archive)
                about = json.loads(str(npz.read_array(archive, _ABOUT)))
                is_known = about["format"] == FORMAT
                members = _members(archive, path, about) if is_known else {}
                parts = {int(rank): _part_of(archive, int(rank)) for rank in about.get("parts", ()) if is_known}
            if is_known:
                whose = int(about.get("ranks", 0)), parts
                return Content(str(about["program"]), dict(about["description"]), members, *whose)
        except npz.DAMAGES as error:
            raise ValueError(f"{path}: not a checkpoint of malt, but for its checksum ({error})") from None
    raise ValueError(f"{path}: a checkpoint of format {about['format']}, and this version of malt reads {FORMAT}: "
                     "continue with the version that wrote it, or name another file")  # fmt: skip


def _members(archive: zipfile.ZipFile, path: str, about: Mapping[str, Any]) -> dict[str, Member | Packed]:
    """The state. Raises one of npz.DAMAGES."""
    streamed, lengths = frozenset(about.get("streamed", ())), dict(about.get("lengths", {}))
    packed = frozenset(about.get("values", ()))

    def member(name: str) -> Member | Packed:
        """The array or value `name`. Local. Raises one of npz.DAMAGES."""
        if name in streamed:
            return _streamed(archive, name, path, lengths.get(name))
        return _packed(archive, name) if name in packed else npz.read_array(archive, name)

    names = [name.removesuffix(".npy") for name in archive.namelist()]
    return {name: member(name) for name in names if not name.startswith(RESERVED)}


def _packed(archive: zipfile.ZipFile, name: str) -> Packed:
    """The value `name`. Raises one of npz.DAMAGES."""
    return _checked(archive, name, name, partial(_part, name))


def _part_of(archive: zipfile.ZipFile, rank: int) -> Packed:
    """The part of `rank`. Raises one of npz.DAMAGES."""
    return _checked(archive, f"rank {rank}", _of_rank(rank, _TEXT), partial(_of_rank, rank))


def _checked(archive: zipfile.ZipFile, what: str, text_name: str, name_of: Callable[[int], str]) -> Packed:
    """The value whose text is `text_name`, and whose arrays have the names that name_of(number) returns.

    Raises one of npz.DAMAGES. `what`: for them.
    """
    found = Packed(str(npz.read_array(archive, text_name)), [])

    def taken(dtype: str, shape: list[int]) -> NDArray[Any]:
        """The next array. Local. Raises one of npz.DAMAGES."""
        array = npz.read_array(archive, name_of(len(found.arrays)))
        if (array.dtype.str, list(array.shape)) != (dtype, shape):
            raise ValueError(f"the arrays of {what} are not as described")
        found.arrays.append(array)
        return array

    values.made(found.text, taken, values.OF_LIBRARIES)
    return found


def _part(name: str, number: int) -> str:
    """The name of an array of the value `name`."""
    return f"{RESERVED}{name}.{number}"


def _of_rank(rank: int, what: int | str) -> str:
    """The name of an array, or of the text, of the part of `rank`: none that `_part` returns."""
    return f"{RESERVED}.{rank}-{what}"


def _streamed(archive: zipfile.ZipFile, name: str, path: str, length: Any) -> Streamed:
    """An array that is streamed. `length`: as of `Streamed`, as the file says. Raises one of npz.DAMAGES."""
    found = npz.streamed(archive, name, path, _PIECE_NBYTES)
    if (length is None) != (found.dtype.names is None) or not isinstance(length, (int, type(None))):
        raise TypeError(f"{name} is of {found.dtype}, with length {length!r}")
    return found._replace(length=length)


def _check_whole(file: IO[bytes], path: str) -> None:
    """Check the checksum. ValueError: a byte has changed, or the file is not a checkpoint."""
    head = file.read(_FIRST_MEMBER.stop)
    size = file.seek(0, 2)
    file.seek(max(size - len(_MARK) - _DIGITS, 0))
    tail = file.read()
    if tail.startswith(_MARK) and len(tail) == len(_MARK) + _DIGITS and tail.endswith(_digest(file, size - _DIGITS)):
        return
    if tail.startswith(_MARK) or head[_FIRST_MEMBER] == _ABOUT.encode():
        raise ValueError(f"{path}: a damaged checkpoint, cut short or changed since it was written: "
                         "replace it with a copy, or remove it to start over")  # fmt: skip
    raise ValueError(f"{path}: not a checkpoint of malt: name another file")
