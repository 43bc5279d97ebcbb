"""Ratings out of text: a line a rating, `user item rating [timestamp]`, between spaces, tabs, commas or `::`.

There are two readers, as in svmlight.py: `_read_lines` decides what a line means and says what is wrong with it;
`_read_chunk` reads many lines at once, where it has proved that the other would say the same, and else gives None:

- separators become one space each, white space around them is left out, and so a missing word shows;
- every line is digits, digits, one decimal number and perhaps digits, which is looked for mark by mark;
- user and item are written as int() would write them, so that the number stands for the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from malt.data.marks import ANY, EXPONENT, NEWLINE, NONE, POINT, SIGN, SOME, SPACE, Marks, number_rules, table
from malt.data.svmlight import BadLine, finite, shown
from malt.data.textfile import read_chunks

MAX_ID_NBYTES: Final = 256
"""A longer name of a user or an item is refused: each of them would take as much memory as the longest."""
_ID_DIGITS: Final = 18
"""So many fit in 64 bits."""

_RATING: Final = {SPACE: SOME, NEWLINE: SOME, SIGN: NONE, POINT: ANY, EXPONENT: SOME}
_ALLOWED: Final = table({NEWLINE: {SPACE: SOME}, SPACE: _RATING, **number_rules(SPACE, NEWLINE)})
_SEPARATOR: Final = re.compile(rb"[ \t]*(?:,|::)[ \t]*|[ \t]+")
_WHOLE: Final = re.compile(rb"0|-?[1-9][0-9]{0,17}")

Ids = NDArray[Any]
"""int64 where each is a whole number as int() writes it, of up to 18 digits; else the bytes of the text."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Some ratings, as they stand in the file."""

    users: Ids
    items: Ids
    ratings: NDArray[np.float32]


def read(path: str) -> Lines:
    """All ratings of a file. Local.

    Raises OSError where it cannot be read; ValueError, which starts with FILE:LINE, where a line is not a rating.
    """
    chunks, lines = [], 0
    for number, text in enumerate(read_chunks(path)):
        try:
            chunks.append(parse(text, is_head=number == 0))
        except BadLine as bad:
            raise ValueError(f"{path}:{lines + bad.line}: {bad.what}") from None
        lines += text.count(b"\n")
    if not sum(chunk.ratings.size for chunk in chunks):
        raise ValueError(f"{path}: there are no ratings in it")
    return Lines(
        _joined([chunk.users for chunk in chunks]),
        _joined([chunk.items for chunk in chunks]),
        np.concatenate([chunk.ratings for chunk in chunks]),
    )


def parse(text: bytes, is_head: bool = False) -> Lines:
    """The ratings of some whole lines, the last newline included. Raises BadLine.

    `is_head`: they begin the file, so that the first line that is not blank may be a line of titles: one whose third
    word is no number.
    """
    titles = _titles_nbytes(text) if is_head else 0
    chunk = _read_chunk(text[titles:])
    return chunk or _read_lines(text, text[:titles].count(b"\n"))


def as_text(ids: Ids) -> Ids:
    """The ids as bytes."""
    return ids if ids.dtype.kind == "S" else ids.astype("S")


def _joined(parts: list[Ids]) -> Ids:
    parts = [part for part in parts if part.size]
    kinds = {part.dtype.kind for part in parts}
    return np.concatenate(parts if kinds == {"i"} else [as_text(part) for part in parts])


def _titles_nbytes(text: bytes) -> int:
    """How many bytes the line of titles, and blank lines before it, take."""
    blank = len(text) - len(text.lstrip(b" \t\r\n"))
    words = _words(text[blank : text.index(b"\n", blank)]) if blank < len(text) else []
    if len(words) < 3 or not all(words):
        return 0
    try:
        finite(words[2], "")
    except ValueError as error:
        return 0 if "finite" in str(error) else text.index(b"\n", blank) + 1
    return 0


def _words(line: bytes) -> list[bytes]:
    return _SEPARATOR.split(line.strip())


# -- many lines at once ------------------------------------------------------------------------------------------


def _read_chunk(text: bytes) -> Lines | None:
    """The ratings of `text`, or None where that takes the careful reader."""
    tidied = _tidied(text)
    if not tidied or not Marks.are_known(tidied):
        return None
    marks = Marks(tidied)
    if not marks.follow(_ALLOWED):
        return None
    ends = np.flatnonzero(marks.right == NEWLINE)
    first = np.append(0, ends[:-1] + 1)  # the mark that ends the user; the next one ends the item
    if (ends - first < 2).any() or (marks.right[first] != SPACE).any() or (marks.right[first + 1] != SPACE).any():
        return None
    begins, is_end = np.zeros((2, marks.right.size), dtype=bool)
    begins[first + 2] = True
    has_time = _times(marks, first, ends)
    if has_time is None:
        return None
    is_end[ends - has_time] = True
    return _numbers(marks, first, begins, is_end)


def _tidied(text: bytes) -> bytes:
    """The same ratings with one space between words and no blank lines; where a word is missing, that shows."""
    text = text.replace(b"\r", b" ").replace(b"\t", b" ")
    while b"  " in text:
        text = text.replace(b"  ", b" ")
    text = text.replace(b" \n", b"\n").replace(b"\n ", b"\n")
    while b"\n\n" in text:
        text = text.replace(b"\n\n", b"\n")
    text = text.lstrip(b" \n")
    if b":" in text:
        text = text.replace(b"::", b",")
    if b"," in text:
        text = text.replace(b", ", b",").replace(b" ,", b",").replace(b",", b" ")
    return text


def _times(marks: Marks, first: NDArray[np.intp], ends: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """1 for a line with a timestamp of digits, 0 for one without; None where there is more behind the rating."""
    before = np.cumsum(marks.right == SPACE)
    spaces = before[ends] - before[first] + 1
    has_time = spaces == 3
    if not (has_time | (spaces == 2)).all() or (marks.left[ends[has_time]] != SPACE).any():
        return None
    places: NDArray[np.intp] = has_time.astype(np.intp)
    return places


def _numbers(
    marks: Marks, first: NDArray[np.intp], begins: NDArray[np.bool_], ends: NDArray[np.bool_]
) -> Lines | None:  # fmt: skip
    ratings = marks.numbers(begins, ends)
    if ratings is None:
        return None
    with np.errstate(over="ignore"):
        singles = ratings.astype(np.float32)
    if not np.isfinite(singles).all():
        return None
    for column in (first, first + 1):
        lengths = marks.lengths[column]
        leads = marks.raw[marks.ends[column] - lengths]
        if lengths.max(initial=0) > _ID_DIGITS or ((leads == ord("0")) & (lengths > 1)).any():
            return None
    return Lines(marks.digits(first), marks.digits(first + 1), singles)


# -- line by line ------------------------------------------------------------------------------------------------


def _read_lines(text: bytes, skipped: int) -> Lines:
    """The ratings of `text` but for its first `skipped` lines, read line by line. Raises BadLine."""
    found = list(_triples(text, skipped))
    return Lines(
        _ids([user for user, _, _ in found]),
        _ids([item for _, item, _ in found]),
        np.array([rating for _, _, rating in found], dtype=np.float32),
    )


def _triples(text: bytes, skipped: int) -> Iterator[tuple[bytes, bytes, float]]:
    for number, line in enumerate(text.split(b"\n"), start=1):
        if number <= skipped or not line.strip():
            continue
        try:
            yield _triple(_words(line))
        except ValueError as error:
            cause = "a zero byte, so this is a binary file" if b"\0" in line else str(error)
            raise BadLine(number, f"{cause}: {shown(line)}") from None


def _triple(words: list[bytes]) -> tuple[bytes, bytes, float]:
    if len(words) not in (3, 4) or not all(words):
        raise ValueError("not `user item rating`, or that and a timestamp")
    user, item, rating = words[:3]
    for name, word in (("user", user), ("item", item)):
        if b"\0" in word:
            raise ValueError("a zero byte")
        if len(word) > MAX_ID_NBYTES:
            raise ValueError(f"{name} {shown(word)} is longer than {MAX_ID_NBYTES} bytes")
    value = finite(rating, f"rating {shown(rating)}")
    with np.errstate(over="ignore"):
        if not np.isfinite(np.float32(value)):
            raise ValueError(f"rating {shown(rating)} is too large for float32")
    return user, item, value


def _ids(words: list[bytes]) -> Ids:
    if all(map(_WHOLE.fullmatch, words)):
        return np.array([int(word) for word in words], dtype=np.int64)
    return np.array(words)
