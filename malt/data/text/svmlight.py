"""The svmlight text format. A line is a row: `label [qid:n] index:value index:value ... [# comment]`.

There are two readers. `_read_lines` reads line by line; it defines what a line means, and what is wrong with it.
`_read_chunk` reads many lines at once, some twenty times as fast. It returns None unless it has proved that the other
one would return the same. The proof:

- `_tidied` removes what has no meaning: comments, query numbers, blank lines, and white space but for single spaces.
- Every line left is of one pattern, `label( index:value)*`, whose numbers NumPy reads to the bits that float() gives.
- Every number is finite as a float32. Every index is small enough, and occurs once in its row.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from malt.data.text.text_file import read_chunks, squeezed

MAX_INDEX: Final = 2**31 - 2
"""The largest index: columns, and their number, are int32."""
MAX_INDEX_DIGITS: Final = 10
SHOWN_CHARACTERS: Final = 60
"""The number of characters of a bad line, or a bad word, that an error shows."""

NUMBER: Final = rb"[+-]?(?:[0-9]{1,18}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""The pattern of a decimal number, whose digits before a point fit in 64 bits."""
_ROW: Final = re.compile(rb"%b(?: [0-9]{1,%d}:%b)*" % (NUMBER, MAX_INDEX_DIGITS, NUMBER))
_WITHIN_WORDS: Final = b"0123456789+-.eE "
"""The bytes of a row but for colons."""
_COMMENT: Final = re.compile(rb"#[^\n]*")
_QUERY: Final = re.compile(rb" qid:[0-9]+(?=[ \n])")
_DECIMAL: Final = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_WHOLE: Final = (b".", b"e", b"E", b"-0")
"""What shows that a number may be no integer, or be -0, which integers lack."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows, in the order of the file. Row i has the non-zeros indptr[i]:indptr[i + 1]."""

    labels: NDArray[np.float64]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    """The indices as written, or the columns, from 0. They are ascending in each row, each once."""
    values: NDArray[np.float32]


class BadLine(ValueError):
    """A line is not of the format. `line` is its number in the text, from 1; `what` says what is wrong."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line
        self.what = what


@dataclass
class Part:
    """The part of a file that one rank has read."""

    chunks: list[Rows] = field(default_factory=list)
    lines: int = 0
    """The number of lines read, with blank lines and comments."""
    problem: BadLine | None = None
    """The first bad line, from 1 in this part. Nothing after it was read."""
    largest: int = -1
    """The largest index; -1 without indices."""
    largest_line: int = 0
    """The first line with the largest index, from 1 in this part."""

    def note_largest(self, text: bytes, rows: Rows) -> None:
        """Update `largest` and `largest_line` by `rows`, the rows of the next chunk `text`. Local.

        Call it before `lines` counts the lines of that chunk.
        """
        largest = int(rows.indices.max(initial=-1))
        if largest > self.largest:
            row = int(np.searchsorted(rows.indptr, rows.indices.argmax(), side="right")) - 1
            self.largest, self.largest_line = largest, self.lines + _line_of(text, row, rows.labels.size)


def read_part(path: str, part: int = 0, parts: int = 1) -> Part:
    """Read the rows of part `part` of `parts` of a file. Local.

    A bad line is not raised: it is the `problem` of the result. OSError: the file cannot be read. ValueError: it is
    damaged, or its name does not fit its compression.
    """
    result = Part()
    for text in read_chunks(path, part, parts):
        try:
            rows = parse(text)
        except BadLine as bad:
            result.problem = BadLine(result.lines + bad.line, bad.what)
            break
        result.chunks.append(rows)
        result.note_largest(text, rows)
        result.lines += text.count(b"\n")
    return result


def _line_of(text: bytes, row: int, rows: int) -> int:
    """Return the line, from 1, of row `row`, from 0. `rows` is the number of rows in `text`."""
    if text.count(b"\n") == rows:
        return row + 1
    lines = (number for number, line in enumerate(text.split(b"\n"), start=1) if line.partition(b"#")[0].strip())
    return next(islice(lines, row, None))


def parse(text: bytes) -> Rows:
    """Return the rows of `text`, whole lines with their newlines. Local. Raises BadLine."""
    rows = _read_chunk(text)
    return _read_lines(text) if rows is None else rows


def _read_chunk(text: bytes) -> Rows | None:
    """Return the rows of `text`, or None if `_read_lines` must read it."""
    text = _tidied(text)
    if not all(map(_ROW.fullmatch, text.splitlines())):
        return None
    marks = np.frombuffer(text.translate(None, _WITHIN_WORDS), np.uint8)
    ends = np.flatnonzero(marks == ord("\n"))
    count = np.arange(ends.size)
    indptr = np.append(0, ends - count)
    numbers = numbers_of(text.replace(b":", b" "))
    labels = 2 * indptr[:-1] + count
    pairs = np.delete(numbers, labels).reshape(-1, 2)
    return _checked(numbers[labels], indptr, pairs[:, 0].astype(np.int64), pairs[:, 1])


def _tidied(text: bytes) -> bytes:
    """Return the same rows without comments, query numbers and blank lines, and with single spaces."""
    if b"#" in text:
        text = _COMMENT.sub(b"", text)
    text = squeezed(text.replace(b"\r", b" ").replace(b"\t", b" "))
    # Last, as each space is then inside a line: a `qid:` in place of the label is an error.
    return _QUERY.sub(b"", text) if b"qid:" in text else text


def _checked(
    labels: NDArray[np.float64], indptr: NDArray[np.int64], indices: NDArray[np.int64], values: NDArray[np.float64]
) -> Rows | None:
    """Return the rows with ascending indices; None if a number is out of range, or an index occurs twice in a row."""
    singles = as_singles(values)
    if indices.max(initial=0) > MAX_INDEX or not np.isfinite(singles).all() or not np.isfinite(labels).all():
        return None
    if not _ascend(indices, indptr):
        order = np.lexsort((indices, np.repeat(np.arange(labels.size), np.diff(indptr))))
        indices, singles = indices[order], singles[order]
        if not _ascend(indices, indptr):
            return None
    return Rows(labels, indptr, indices.astype(np.int32), singles)


def numbers_of(text: bytes) -> NDArray[np.float64]:
    """Return numbers, each as by NUMBER, between white space: with the bits that float() gives. Local."""
    is_whole = not any(mark in text for mark in _NOT_WHOLE)  # NumPy reads integers ten times as fast
    return np.fromstring(text, np.int64 if is_whole else np.float64, sep=" ").astype(np.float64)


def as_singles(numbers: Any) -> NDArray[np.float32]:
    """Return numbers as float32: infinity where they are too large for it. Local."""
    with np.errstate(over="ignore"):
        singles: NDArray[np.float32] = numbers.astype(np.float32)
    return singles


def _ascend(indices: NDArray[np.int64], indptr: NDArray[np.int64]) -> bool:
    """Return whether the indices of every row ascend strictly."""
    starts_row = np.zeros(indices.size + 1, dtype=bool)
    starts_row[indptr] = True
    descents = np.flatnonzero(indices[1:] <= indices[:-1]) + 1
    return bool(starts_row[descents].all())


def _read_lines(text: bytes) -> Rows:
    """Return the rows of `text`, read line by line. Raises BadLine."""
    labels: list[float] = []
    lengths: list[int] = []
    pairs: list[tuple[int, float]] = []
    for number, line in enumerate(text.split(b"\n"), start=1):
        words = line.partition(b"#")[0].split()
        if not words:
            continue
        try:
            labels.append(_label(words[0]))
            row = sorted(_pair(word) for word in words[1:] if not re.fullmatch(rb"qid:[0-9]+", word))
            _refuse_repeated(row)
        except ValueError as error:
            raise BadLine(number, f"{_cause(error, line)}: {shown(line)}") from None
        lengths.append(len(row))
        pairs += row
    indices = np.array([index for index, _ in pairs], dtype=np.int32)
    values = np.array([value for _, value in pairs], dtype=np.float32)
    indptr = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    return Rows(np.array(labels, dtype=np.float64), indptr.astype(np.int64), indices, values)


def _label(word: bytes) -> float:
    return finite(word, f"label {shown(word)}")


def _pair(word: bytes) -> tuple[int, float]:
    """Return the index and the value of `index:value`. ValueError: `word` is not that."""
    before, colon, after = word.partition(b":")
    if not colon:
        raise ValueError(f"{shown(word)} is not index:value")
    if re.fullmatch(rb"-[0-9]+", before):
        raise ValueError(f"index {shown(before)} is negative")
    if not re.fullmatch(rb"[0-9]+", before):
        raise ValueError(f"index {shown(before)} is not an integer")
    # The digits are counted first: int() raises an error of its own for a number of thousands of digits.
    if len(before.lstrip(b"0")) > MAX_INDEX_DIGITS or int(before) > MAX_INDEX:
        raise ValueError(f"index {shown(before)} is larger than {MAX_INDEX}")
    index = int(before)
    if not after:
        raise ValueError(f"feature {index} has no value")
    return index, single(after, f"value {shown(after)} of feature {index}")


def finite(word: bytes, name: str) -> float:
    """Return the decimal number `word`. Local.

    ValueError, which calls it `name`: `word` is not a finite decimal number. What only float() accepts (1_0, infinity)
    is refused.
    """
    if _DECIMAL.fullmatch(word):
        number = float(word)
    elif re.fullmatch(rb"(?i)[+-]?(nan|inf|infinity)", word):
        number = math.nan
    else:
        raise ValueError(f"{name} is not a number")
    if not math.isfinite(number):
        raise ValueError(f"{name} is not finite")
    return number


def single(word: bytes, name: str) -> float:
    """Return the decimal number `word`. Local. ValueError, which calls it `name`: as `finite`, or float32 lacks it."""
    number = finite(word, name)
    if not np.isfinite(as_singles(np.float64(number))):
        raise ValueError(f"{name} is too large for float32")
    return number


def _refuse_repeated(row: list[tuple[int, float]]) -> None:
    for (index, _), (following, _) in pairwise(row):
        if index == following:
            raise ValueError(f"feature {index} is there twice")


def _cause(error: ValueError, line: bytes) -> str:
    return "a zero byte, so this is a binary file, not svmlight text" if b"\0" in line else str(error)


def shown(text: bytes) -> str:
    """Return `text` in quotes, on one line, cut after SHOWN_CHARACTERS. Local."""
    shown = repr(text.strip()[:SHOWN_CHARACTERS].decode("ascii", errors="backslashreplace"))
    return f"{shown}..." if len(text.strip()) > SHOWN_CHARACTERS else shown
