"""The text format of ratings. A line is `user item rating [timestamp]`, separated by white space, tabs, commas or `::`.

A file has one separator, which `form_of` finds from its first lines. A name may hold the other ones: `u1,movie 17,4.5`
is a rating of "movie 17".

There are two readers, as in svmlight.py. `_read_lines` reads line by line; it defines what a line means, and what is
wrong with it. `_read_chunk` reads many lines at once. It returns None unless it has proved that the other one would
return the same:

- Each separator becomes one space, and white space around it is removed. So a missing word shows.
- The marks show that every line is digits, digits, one decimal number, and digits if there is a timestamp.
- User and item are written as int() would write them. So the number stands for the text.
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
"""The longest name of a user or an item. In memory every name takes as much as the longest one."""
_ID_DIGITS: Final = 18
"""The number of digits that fit in 64 bits."""

_RATING: Final = {SPACE: SOME, NEWLINE: SOME, SIGN: NONE, POINT: ANY, EXPONENT: SOME}
_ALLOWED: Final = table({NEWLINE: {SPACE: SOME}, SPACE: _RATING, **number_rules(SPACE, NEWLINE)})
_SEPARATORS: Final = {
    b"::": re.compile(rb"[ \t]*::[ \t]*"),
    b"\t": re.compile(rb" *\t *"),
    b",": re.compile(rb"[ \t]*,[ \t]*"),
    b" ": re.compile(rb"[ \t]+"),
}
"""The separators. The one that makes ratings of the most first lines is chosen; of equal ones the first."""
_NAMES: Final = {b"::": "::", b"\t": "tabs", b",": "commas", b" ": "white space"}
_FIRST_LINES: Final = 10
"""The number of lines from which the separator is found."""
_SHORT_TIME: Final = 2
"""The largest number of digits of a last word that may be the decimals of a rating with a decimal comma, as `4,5`."""
_STRAY: Final = re.compile(rb"^(?:,|::)|(?:,|::)$")
"""A separator at the start or end of a word, in a file separated by white space."""
_DECIMAL_COMMA: Final = re.compile(rb"[+-]?[0-9]*,[0-9]+")
_WHOLE: Final = re.compile(rb"0|-?[1-9][0-9]{0,17}")

Ids = NDArray[Any]
"""int64 if each id is a whole number of up to 18 digits, written as by int(); else the bytes of the text."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Some ratings, in the order of the file."""

    users: Ids
    items: Ids
    ratings: NDArray[np.float32]


@dataclass(frozen=True)
class Form:
    """The separator of a file, and whether it has titles."""

    separator: bytes
    """The separator: b"::", b"\\t", b",", or b" " for white space."""
    titles: int = 0
    """The number of words in the line of titles; 0 without one. It is the first line that is not blank."""

    def words(self, line: bytes) -> list[bytes]:
        """Return the words of a line. Local."""
        return _SEPARATORS[self.separator].split(line.strip(b" \r\n") if self.separator == b"\t" else line.strip())


def form_of(text: bytes) -> Form | None:
    """Return the form of a file that begins with these whole lines; None if all are blank. Local."""
    lines: list[bytes] = []
    for match in re.finditer(rb"[^\n]*\S[^\n]*\n", text):
        lines.append(match.group())
        if len(lines) == _FIRST_LINES:
            break
    if not lines:
        return None
    forms = list(map(Form, _SEPARATORS))
    found = max(forms, key=lambda form: sum(_is_rating(form.words(line)) for line in lines))
    if not any(_is_rating(found.words(line)) for line in lines):
        found = max(forms, key=lambda form: min(3, len(form.words(lines[0]))))
        if len(found.words(lines[0])) == 1:
            found = Form(b" ")
    words = found.words(lines[0])
    return Form(found.separator, len(words) if _are_titles(words) else 0)


def _is_rating(words: list[bytes]) -> bool:
    return len(words) in (3, 4) and all(words) and _is_number(words[2])


def _are_titles(words: list[bytes]) -> bool:
    return len(words) >= 3 and all(words) and not _is_number(words[2]) and not _DECIMAL_COMMA.fullmatch(words[2])


def _is_number(word: bytes) -> bool:
    """Whether `word` is a number; NaN and infinity count."""
    try:
        finite(word, "")
    except ValueError as error:
        return "finite" in str(error)
    return True


def read(path: str) -> Lines:
    """Return all ratings of a file. Local.

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
    if not sum(chunk.ratings.size for chunk in chunks):
        raise ValueError(f"{path}: there are no ratings in it")
    return Lines(
        _joined([chunk.users for chunk in chunks]),
        _joined([chunk.items for chunk in chunks]),
        np.concatenate([chunk.ratings for chunk in chunks]),
    )


def parse(text: bytes, form: Form | None = None, is_head: bool = False) -> Lines:
    """Return the ratings of `text`, whole lines with their newlines. Local. Raises BadLine.

    `form`: the form of the file, by default found from `text`. `is_head`: whether `text` has the first line of the file
    that is not blank. That line may hold titles.
    """
    titles = _titles_nbytes(text) if is_head and form and form.titles else 0
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
    tidied = _tidied(text, form.separator)
    if not tidied or not Marks.are_known(tidied):
        return None
    marks = Marks(tidied)
    if not marks.follow(_ALLOWED):
        return None
    ends = np.flatnonzero(marks.right == NEWLINE)
    first = np.append(0, ends[:-1] + 1)  # the mark that ends the user; the next mark ends the item
    if (ends - first < 2).any() or (marks.right[first] != SPACE).any() or (marks.right[first + 1] != SPACE).any():
        return None
    begins, is_end = np.zeros((2, marks.right.size), dtype=bool)
    begins[first + 2] = True
    has_time = _times(marks, first, ends)
    if has_time is None or (form.separator == b"," and _may_be_decimals(marks, ends[has_time > 0], form)):
        return None
    is_end[ends - has_time] = True
    return _numbers(marks, first, begins, is_end)


def _tidied(text: bytes, separator: bytes) -> bytes | None:
    """Return the same ratings with one space between words and no blank lines. A missing word shows.

    Return None if there are spaces within words.
    """
    text = text.replace(b"\r\n", b"\n")
    if separator != b"\t":
        text = text.replace(b"\t", b" ")
    while b"  " in text:
        text = text.replace(b"  ", b" ")
    text = text.replace(b" \n", b"\n").replace(b"\n ", b"\n")
    while b"\n\n" in text:
        text = text.replace(b"\n\n", b"\n")
    text = text.lstrip(b" \n")
    if separator == b" ":  # the commas and colons that are left do not separate words
        return text
    if b" " in text:
        text = text.replace(separator + b" ", separator).replace(b" " + separator, separator)
    return None if b" " in text else text.replace(separator, b" ")


def _times(marks: Marks, first: NDArray[np.intp], ends: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """Return for each line 1 with a timestamp of digits, 0 without one; None if other words follow a rating."""
    before = np.cumsum(marks.right == SPACE)
    spaces = before[ends] - before[first] + 1
    has_time = spaces == 3
    if not (has_time | (spaces == 2)).all() or (marks.left[ends[has_time]] != SPACE).any():
        return None
    places: NDArray[np.intp] = has_time.astype(np.intp)
    return places


def _may_be_decimals(marks: Marks, times: NDArray[np.intp], form: Form) -> bool:
    """Whether `_read_lines` may take a word after a rating for its decimals."""
    return times.size > 0 and form.titles < 4 and (form.titles > 0 or int(marks.lengths[times].min()) <= _SHORT_TIME)


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
            yield _triple(form.words(line), form)
        except ValueError as error:
            cause = "a zero byte, so this is a binary file" if b"\0" in line else str(error)
            raise BadLine(number, f"{cause}: {shown(line)}") from None


def _triple(words: list[bytes], form: Form) -> tuple[bytes, bytes, float]:
    if len(words) not in (3, 4) or not all(words) or (form.separator == b" " and any(map(_STRAY.search, words))):
        name = _NAMES[form.separator]
        raise ValueError(f"not `user item rating`, or that and a timestamp, with {name} between as in this file")
    _refuse_decimal_comma(words, form)
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


def _refuse_decimal_comma(words: list[bytes], form: Form) -> None:
    """ValueError: a rating has a decimal comma. In a file separated by commas its decimals look like a timestamp."""
    if form.separator != b",":
        if _DECIMAL_COMMA.fullmatch(words[2]):
            raise ValueError(f"rating {shown(words[2])} has a decimal comma: write a point")
        return
    decimals = words[3] if len(words) == 4 and form.titles < 4 and words[2].lstrip(b"+-").isdigit() else b""
    if decimals.isdigit() and (form.titles or len(decimals) <= _SHORT_TIME):
        rating = shown(b",".join(words[2:]))
        raise ValueError(f"rating {rating} seems to have a decimal comma: write a point, or, where {shown(decimals)} "
                         "is a timestamp, titles first: user,item,rating,timestamp")  # fmt: skip


def _ids(words: list[bytes]) -> Ids:
    if all(map(_WHOLE.fullmatch, words)):
        return np.array([int(word) for word in words], dtype=np.int64)
    return np.array(words)
