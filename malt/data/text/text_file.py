"""The lines of a text file, plain or compressed, in chunks that fit in memory: all lines, or one part of several.

The parts of a plain file are byte ranges of equal size, each moved up to the next line start. So each line is in one
part. A compressed file cannot be read from the middle: its part 0 is the whole file, and its other parts are empty.
"""

from __future__ import annotations

import importlib
import os
import re
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final

from malt.files import heartbeats

CHUNK_NBYTES = 1 << 18
"""The bytes that are read at once. A parser takes some 7 times as much memory for them."""
MAX_LINE_NBYTES = 1 << 26
"""The longest line. A file without line ends must not be read into memory whole."""

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MODULES: Final = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}
_MAGICS: Final = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\x00": ".xz"}
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_LONE_RETURN: Final = re.compile(rb"\r(?!\r*\n)")


def is_compressed(path: str) -> bool:
    """Return whether the file is compressed, by its name: .gz, .bz2 or .xz. Local."""
    return os.path.splitext(path)[1].lower() in _MODULES


def read_chunks(path: str, part: int = 0, parts: int = 1) -> Iterator[bytes]:
    """Yield the lines of part `part` of `parts` of a text file, several whole lines at a time. Local.

    `path`: plain text, or .gz, .bz2 or .xz. Each line ends in a newline: one is added to the last line if it has none.
    A byte order mark at the start of the file is left out. OSError: the file cannot be read. ValueError: it is damaged,
    its name does not fit its compression, it is UTF-16, its lines end in single carriage returns, or one is longer than
    64 MiB; there is no part `part`.
    """
    if not 0 <= part < parts:
        raise ValueError(f"part must be one of {parts} parts, from 0 on, got {part!r}")
    if is_compressed(path):
        return _read_compressed(path) if part == 0 else iter(())
    return _read_plain(path, part, parts)


def squeezed(text: bytes) -> bytes:
    """Return `text` with single spaces, none at the start or end of a line, and without blank lines. Local."""
    while b"  " in text:
        text = text.replace(b"  ", b" ")
    text = text.replace(b" \n", b"\n").replace(b"\n ", b"\n")
    while b"\n\n" in text:
        text = text.replace(b"\n\n", b"\n")
    return text.lstrip(b" \n")


def _read_plain(path: str, part: int, parts: int) -> Iterator[bytes]:
    with heartbeats.opened(path, "rb") as file:
        _refuse_misnamed(file, path)
        nbytes = os.fstat(file.fileno()).st_size
        first = _line_start(file, nbytes * part // parts)
        last = _line_start(file, nbytes * (part + 1) // parts)
        file.seek(first)
        chunks = _whole_lines(_blocks(file, last - first), path)
        yield from _unmarked(chunks, path) if first == 0 else chunks


def _read_compressed(path: str) -> Iterator[bytes]:
    # Not imported above: a Python built without liblzma or libbz2 still reads plain files.
    module = importlib.import_module(_MODULES[os.path.splitext(path)[1].lower()])
    damages = (EOFError, zlib.error, getattr(module, "LZMAError", EOFError))
    try:
        with heartbeats.opened(path, "rb") as file:
            blocks = _blocks(module.open(file, "rb")) if module.__name__ == "gzip" else _decompressed(file, module)
            yield from _unmarked(_whole_lines(blocks, path), path)
    except damages as error:
        raise ValueError(_damaged(path, error)) from error
    except OSError as error:
        if error.errno is None:  # gzip and bz2 report damaged data like this
            raise ValueError(_damaged(path, error)) from error
        raise


def _decompressed(file: IO[bytes], module: Any) -> Iterator[bytes]:
    """Yield the contents of a file of bz2 or xz, CHUNK_NBYTES at a time. EOFError, OSError, LZMAError: it is damaged.

    It may have several streams. To the file objects of bz2 and lzma all ends where a stream does not begin as one.
    """
    new = getattr(module, "BZ2Decompressor", None) or module.LZMADecompressor
    stream, block = new(), b""
    while True:
        if stream.eof:
            block = stream.unused_data.lstrip(b"\0")
            while not block and (more := file.read(CHUNK_NBYTES)):
                block = more.lstrip(b"\0")
            if not block:
                return
            stream = new()
        elif stream.needs_input and not (block := file.read(CHUNK_NBYTES)):
            raise EOFError("it ends within a stream")
        yield stream.decompress(block, CHUNK_NBYTES)
        block = b""


def _damaged(path: str, error: Exception) -> str:
    kind = _MODULES[os.path.splitext(path)[1].lower()]
    return f"{path}: a damaged or cut-off {kind} file ({error}): fetch it again"


def _refuse_misnamed(file: IO[bytes], path: str) -> None:
    head = file.read(8)
    for magic, suffix in _MAGICS.items():
        if head.startswith(magic):
            raise ValueError(f"{path}: a compressed file without the ending {suffix}: rename it to {path}{suffix}")


def _line_start(file: IO[bytes], offset: int) -> int:
    """Return the first line start at or after `offset`, or the end of the file."""
    if offset == 0:
        return 0
    # Starts at the byte before: if that is a newline, `offset` is a line start.
    position = offset - 1
    file.seek(position)
    while block := file.read(CHUNK_NBYTES):
        found = block.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += len(block)
    return position


def _blocks(file: IO[bytes], nbytes: int | None = None) -> Iterator[bytes]:
    """Yield the next `nbytes` of `file`, or the rest of it, CHUNK_NBYTES at a time."""
    while nbytes is None or nbytes > 0:
        block = file.read(CHUNK_NBYTES if nbytes is None else min(nbytes, CHUNK_NBYTES))
        if not block:
            return
        nbytes = None if nbytes is None else nbytes - len(block)
        yield block


def _unmarked(chunks: Iterator[bytes], path: str) -> Iterator[bytes]:
    """Yield the chunks of a file, read from its start, without its byte order mark. ValueError: it is UTF-16."""
    first = next(chunks, b"")
    if first.startswith(_UTF_16):
        raise ValueError(f"{path}: UTF-16 text: write it as UTF-8, as by iconv -f UTF-16 -t UTF-8")
    yield first.removeprefix(BYTE_ORDER_MARK)
    yield from chunks


def _whole_lines(blocks: Iterator[bytes], path: str) -> Iterator[bytes]:
    """Yield the same bytes, cut at line ends."""
    pending: list[bytes] = []
    for block in blocks:
        cut = block.rfind(b"\n") + 1
        if cut:
            yield _checked(b"".join([*pending, block[:cut]]), path)
            pending = []
        pending.append(block[cut:])
        if sum(map(len, pending)) > MAX_LINE_NBYTES:
            raise ValueError(f"{path}: a line is longer than {MAX_LINE_NBYTES >> 20} MiB: this is not text in lines")
    rest = b"".join(pending)
    if rest:
        yield _checked(rest + b"\n", path)


def _checked(lines: bytes, path: str) -> bytes:
    """Return `lines`. ValueError: they end in other ways, and would be one line: a comment would hide all the rest."""
    if b"\r" in lines and _LONE_RETURN.search(lines):
        if b"\0" in lines:
            raise ValueError(f"{path}: a zero byte, so this is a binary file, not text in lines")
        raise ValueError(f"{path}: lines end in a single carriage return: write a newline, as by tr '\\r' '\\n'")
    return lines
