"""The text format of ratings. A line is `user item rating [timestamp]`, separated by white space, tabs, commas or `::`.

A file has one separator, which `form_of` finds from its first lines. A name may hold the other ones: `u1,movie 17,4.5`
is a rating of "movie 17". Between commas a name may stand in quotes, as in CSV. Titles, in the first line, say which
columns are which; those of other titles are ignored.

There are two readers, as in svmlight.py. `_read_lines` reads line by line; it defines what a line means, and what is
wrong with it. `_read_chunk` reads many lines at once. It returns None unless it has proved that the other one would
return the same:

- Other columns are left out, those of user, item and rating put in this order.
- Each separator becomes one space, and white space around it is removed. So a missing word shows.
- All lines are of one pattern: two integers, a decimal number, and digits if there are timestamps.
- User and item are written as int() would write them, and float64 has them. So the number stands for the text.
- Lines have as many words as titles. Without titles no rating may be a timestamp, and no timestamp its decimals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from malt.data.text.rating_form import DECIMAL_COMMA, IN_ORDER, NAMES, REMEDY, Form, form_of, is_comment
from malt.data.text.svmlight import NUMBER, BadLine, as_singles, numbers_of, shown, single
from malt.data.text.text_file import read_chunks, squeezed

MAX_ID_NBYTES: Final = 256
"""The longest name of a user or an item. In memory every name takes as much as the longest one."""

_ID: Final = rb"(?:0|[1-9][0-9]{0,14})"
_THREE: Final = rb"%b %b %b" % (_ID, _ID, NUMBER)
_LINE: Final = {3: re.compile(_THREE), 4: re.compile(_THREE + rb" [0-9]{1,18}")}
"""The pattern of a line, by its number of words."""
_STRAY: Final = re.compile(rb"^(?:,|::)|(?:,|::)$")
"""A separator at the start or end of a word, in a file separated by white space."""
_UNCLEAR: Final = "neither a rating nor titles that say which columns are user, item and rating"
_SIMPLE: Final = "`user item rating`, or that and a timestamp"
_SHORT_TIME: Final = 2
"""The largest number of digits of a last word that may be the decimals of a rating with a decimal comma, as `4,5`."""
_TIME: Final = re.compile(rb"-?[0-9]+(\.0*)?")
_LATE: Final = 10**8
"""The smallest integer that, as a rating, seems to be a timestamp: seconds since 1970, in 1973."""
_MATRIX_MARKET: Final = b"%%MatrixMarket"
_WHOLE: Final = re.compile(rb"0|-?[1-9][0-9]{0,17}")

Ids = NDArray[Any]
"""int64 if each id is an integer of up to 18 digits, written as by int(); else the bytes of the text."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Some ratings, in the order of the file."""

    users: Ids
    items: Ids
    ratings: NDArray[np.float32]


def read(path: str) -> tuple[Lines, Form]:
    """Return all ratings of a file, and its form. Local.

    OSError: the file cannot be read. ValueError: it has no ratings, or a line is not a rating (the message starts with
    FILE:LINE).
    """
    chunks, lines, form = [], 0, None
    for text in read_chunks(path):
        is_head, form = form is None, form or form_of(text)
        try:
            chunks.append(parse(text, form, is_head))
        except BadLine as bad:
            raise ValueError(f"{path}:{lines + bad.line}: {bad.what}") from None
        lines += text.count(b"\n")
    if form is None or not sum(chunk.ratings.size for chunk in chunks):
        raise ValueError(f"{path}: there are no ratings in it")
    users, items = (_joined([getattr(chunk, name) for chunk in chunks]) for name in ("users", "items"))
    return Lines(users, items, np.concatenate([chunk.ratings for chunk in chunks])), form


def parse(text: bytes, form: Form | None = None, is_head: bool = False) -> Lines:
    """Return the ratings of `text`, whole lines with their newlines. Local. Raises BadLine.

    `form`: the form of the file, by default found from `text`. `is_head`: whether `text` has the first line of the file
    that is not blank. That line may hold titles.
    """
    titles = _titles_nbytes(text) if is_head and form and form.titles else 0
    if form and form.columns is None:
        line = text[:titles].strip()
        raise BadLine(text[:titles].count(b"\n"), f"{_UNCLEAR}: {REMEDY}: {shown(line)}")
    chunk = _read_chunk(text[titles:], form)
    return chunk or _read_lines(text, text[:titles].count(b"\n"), form)


def as_text(ids: Ids) -> Ids:
    """Return the ids as bytes: a copy, or `ids` itself. Local."""
    return ids if ids.dtype.kind == "S" else ids.astype("S")


def _joined(parts: list[Ids]) -> Ids:
    parts = [part for part in parts if part.size]
    kinds = {part.dtype.kind for part in parts}
    return np.concatenate(parts if kinds == {"i"} else [as_text(part) for part in parts])


def _titles_nbytes(text: bytes) -> int:
    """Return the number of bytes of the line of titles and the blank lines before it."""
    blank = len(text) - len(text.lstrip())
    return text.index(b"\n", blank) + 1


# -- many lines at once ------------------------------------------------------------------------------------------


def _read_chunk(text: bytes, form: Form | None = None) -> Lines | None:
    """Return the ratings of `text`, or None if `_read_lines` must read it."""
    form = form or form_of(text) or Form(b" ")
    if form.columns != IN_ORDER:
        text, form = _in_order(text, form), Form(b"\t", titles=3)
    tidied = _tidied(text, form.separator) or b""
    *lines, rest = tidied.split(b"\n")
    words = lines[0].count(b" ") + 1 if lines and not rest else 0
    if words not in _LINE or form.titles not in (0, words) or not all(map(_LINE[words].fullmatch, lines)):
        return None
    numbers = numbers_of(tidied).reshape(-1, words)
    ratings, times = as_singles(numbers[:, 2]), numbers[:, 3:]
    may_be_decimals = form.separator == b"," and (times < 10**_SHORT_TIME).any()
    is_unclear = not form.titles and (may_be_decimals or (ratings >= _LATE).any())
    if is_unclear or not np.isfinite(ratings).all():
        return None
    return Lines(numbers[:, 0].astype(np.int64), numbers[:, 1].astype(np.int64), ratings)


def _in_order(text: bytes, form: Form) -> bytes:
    """Return the same ratings, in lines of user, item and rating between tabs; b"" if `_read_lines` must read them."""
    lines = [line for line in text.split(b"\n") if line.strip()]
    rows = list(map(form.words, lines))
    if (
        form.columns is None
        or any(map(is_comment, lines))
        or not all(form.has_length(row) and all(row) for row in rows)
    ):
        return b""
    user, item, rating = form.columns
    return b"".join([b"%b\t%b\t%b\n" % (row[user], row[item], row[rating]) for row in rows])


def _tidied(text: bytes, separator: bytes) -> bytes | None:
    """Return the same ratings with one space between words and no blank lines. A missing word shows.

    Return None if there are spaces within words.
    """
    text = text.replace(b"\r\n", b"\n")
    if separator != b"\t":
        text = text.replace(b"\t", b" ")
    text = squeezed(text)
    if separator == b" ":  # the commas and colons that are left do not separate words
        return text
    if b" " in text:
        text = text.replace(separator + b" ", separator).replace(b" " + separator, separator)
    return None if b" " in text else text.replace(separator, b" ")


# -- line by line ------------------------------------------------------------------------------------------------


def _read_lines(text: bytes, skipped: int, form: Form | None = None) -> Lines:
    """Return the ratings of `text` without its first `skipped` lines, read line by line. Raises BadLine."""
    found = list(_triples(text, skipped, form or form_of(text) or Form(b" ")))
    return Lines(
        _ids([user for user, _, _ in found]),
        _ids([item for _, item, _ in found]),
        np.array([rating for _, _, rating in found], dtype=np.float32),
    )


def _triples(text: bytes, skipped: int, form: Form) -> Iterator[tuple[bytes, bytes, float]]:
    for number, line in enumerate(text.split(b"\n"), start=1):
        if number <= skipped or not line.strip():
            continue
        try:
            if is_comment(line):
                raise ValueError(_comment(line))
            yield _triple(form.words(line), form)
        except ValueError as error:
            cause = "a zero byte, so this is a binary file" if b"\0" in line else str(error)
            raise BadLine(number, f"{cause}: {shown(line)}") from None


def _comment(line: bytes) -> str:
    if line.startswith(_MATRIX_MARKET):
        return "a Matrix Market file, which is not read: leave out its lines with % and the line of sizes after them"
    return "a comment, which is not read: leave out such lines, as by grep -v '^[#%]'"


def _triple(words: list[bytes], form: Form) -> tuple[bytes, bytes, float]:
    is_length = form.has_length(words) or (form.columns == IN_ORDER and len(words) in (3, 4))
    if not is_length or not all(words) or (form.separator == b" " and any(map(_STRAY.search, words))):
        name = NAMES[form.separator]
        what = f"the {form.titles} words of its titles" if form.titles > 4 or form.columns != IN_ORDER else _SIMPLE
        raise ValueError(f"not {what}, with {name} between as in this file")
    if not form.titles:
        _refuse_another_order(words)
    _refuse_decimal_comma(words, form)
    if not form.has_length(words):
        raise ValueError(f"{len(words)} words, and the titles are {form.titles}")
    user, item, rating = (words[place] for place in form.columns or IN_ORDER)
    for name, word in (("user", user), ("item", item)):
        if b"\0" in word:
            raise ValueError("a zero byte")
        if len(word) > MAX_ID_NBYTES:
            raise ValueError(f"{name} {shown(word)} is longer than {MAX_ID_NBYTES} bytes")
    return user, item, single(rating, f"rating {shown(rating)}")


def _refuse_another_order(words: list[bytes]) -> None:
    """ValueError: without titles, these are not user, item, rating and timestamp in this order."""
    if len(words) == 4 and not _TIME.fullmatch(words[3]):
        raise ValueError(f"timestamp {shown(words[3])} is not an integer: in another order, {REMEDY}")
    if _TIME.fullmatch(words[2]) and float(words[2]) >= _LATE:
        raise ValueError(f"rating {shown(words[2])} seems to be a timestamp: if so, {REMEDY}")


def _refuse_decimal_comma(words: list[bytes], form: Form) -> None:
    """ValueError: a rating has a decimal comma. In a file separated by commas its decimals look like a timestamp."""
    if form.separator != b",":
        rating = words[(form.columns or IN_ORDER)[2]]
        if DECIMAL_COMMA.fullmatch(rating):
            raise ValueError(f"rating {shown(rating)} has a decimal comma: write a point")
        return
    if form.columns != IN_ORDER:
        return
    decimals = words[3] if len(words) == 4 and form.titles < 4 and words[2].lstrip(b"+-").isdigit() else b""
    if decimals.isdigit() and (form.titles or len(decimals) <= _SHORT_TIME):
        number = shown(b",".join(words[2:]))
        raise ValueError(f"rating {number} seems to have a decimal comma: write a point, or, where {shown(decimals)} "
                         "is a timestamp, titles first: user,item,rating,timestamp")  # fmt: skip


def _ids(words: list[bytes]) -> Ids:
    if all(map(_WHOLE.fullmatch, words)):
        return np.array([int(word) for word in words], dtype=np.int64)
    return np.array(words)
