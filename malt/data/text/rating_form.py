"""The form of a file of ratings: what separates words, and which columns are the user, the item and the rating."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from malt.data.text.svmlight import finite

Columns = tuple[int, int, int]
"""The places of user, item and rating in a line."""
IN_ORDER: Final[Columns] = (0, 1, 2)
"""Without titles."""
REMEDY: Final = "name the columns in a first line: user, item, rating, timestamp"

_KNOWN: Final = {
    "user": "user users u uid reviewer customer member rater viewer",
    "item": "item items i iid movie film book isbn product asin parentasin song track artist album anime business game",
    "rating": "rating ratings r score stars star value weight count plays playcount preference overall vote",
    "time": "time times timestamp ts date datetime unixtime unixreviewtime reviewtime ratingtime",
}
"""Titles, in small letters, without what is no letter or digit and without a last `id`."""
_ROLES: Final = {name.encode(): role for role, names in _KNOWN.items() for name in names.split()}
_SEPARATORS: Final = {
    b"::": re.compile(rb"[ \t]*::[ \t]*"),
    b"\t": re.compile(rb" *\t *"),
    b",": re.compile(rb"[ \t]*,[ \t]*"),
    b" ": re.compile(rb"[ \t]+"),
}
"""The separators. The one that makes ratings of the most first lines is chosen; of equal ones the first."""
NAMES: Final = {b"::": "::", b"\t": "tabs", b",": "commas", b" ": "white space"}
DECIMAL_COMMA: Final = re.compile(rb"[+-]?[0-9]*,[0-9]+")
_FIRST_LINES: Final = 10
"""The number of lines from which the separator is found."""


@dataclass(frozen=True)
class Form:
    """The separator of a file, and whether it has titles."""

    separator: bytes
    """The separator: b"::", b"\\t", b",", or b" " for white space."""
    titles: int = 0
    """The number of words in the line of titles; 0 without one. It is the first line that is not blank."""
    columns: Columns | None = IN_ORDER
    """The columns of user, item and rating; None: the titles do not name them."""

    @classmethod
    def of(cls, separator: bytes, first_line: bytes) -> Form:
        """Return the form of a file with this separator and first line. Local."""
        words = cls(separator).words(first_line)
        are_titles = len(words) >= 3 and any(words) and not any(_is_number(word) for word in words)
        if not are_titles or is_comment(first_line) or any(map(DECIMAL_COMMA.fullmatch, words)):
            return cls(separator)
        return cls(separator, len(words), columns_of(words))

    def words(self, line: bytes) -> list[bytes]:
        """Return the words of a line. Local."""
        text = line.strip(b" \r\n") if self.separator == b"\t" else line.strip()
        if self.separator == b"," and b'"' in text:
            try:
                [found] = csv.reader([text.decode("latin-1")], skipinitialspace=True, strict=True)
                return [word.strip().encode("latin-1") for word in found]
            except csv.Error:
                return []
        return _SEPARATORS[self.separator].split(text)

    def is_rating(self, line: bytes) -> bool:
        """Return whether a line has the words of a rating. Local."""
        words = self.words(line)
        return self.has_length(words) and all(words) and _is_number(words[(self.columns or IN_ORDER)[2]])

    def has_length(self, words: list[bytes]) -> bool:
        """Return whether a line may have so many words. Local."""
        return len(words) == self.titles if self.titles else len(words) in (3, 4)


def is_comment(line: bytes) -> bool:
    """Return whether a line seems to be a comment, as Matrix Market and KONECT write them. Pure."""
    return line.lstrip().startswith((b"#", b"%"))


def form_of(text: bytes) -> Form | None:
    """Return the form of a file that begins with these whole lines; None if all are blank. Local."""
    lines: list[bytes] = []
    for match in re.finditer(rb"[^\n]*\S[^\n]*\n", text):
        lines.append(match.group())
        if len(lines) == _FIRST_LINES:
            break
    if not lines:
        return None
    forms = [Form.of(separator, lines[0]) for separator in _SEPARATORS]
    found = max(forms, key=lambda form: sum(map(form.is_rating, lines)))
    if not any(map(found.is_rating, lines)):
        found = max(forms, key=lambda form: min(3, len(form.words(lines[0]))))
        if len(found.words(lines[0])) <= 1:
            found = Form(b" ")
    return found


def _is_number(word: bytes) -> bool:
    """Return whether `word` is a number; NaN and infinity count."""
    try:
        finite(word, "")
    except ValueError as error:
        return "finite" in str(error)
    return True


def columns_of(titles: Sequence[bytes]) -> Columns | None:
    """The columns that these titles name. None: they do not say which are the user, the item and the rating. Pure.

    One of the three may have any title, where all other columns have known ones.
    """
    roles = [role_of(title) for title in titles]
    missing = [role for role in ("user", "item", "rating") if role not in roles]
    if len(missing) == roles.count("") == 1 and len(titles) > 1:
        roles[roles.index("")] = missing[0]
    if any(roles.count(role) != 1 for role in ("user", "item", "rating")):
        return None
    return roles.index("user"), roles.index("item"), roles.index("rating")


def role_of(title: bytes) -> str:
    """The column that has this title: user, item, rating or time; "": it is not known. Pure."""
    name = re.sub(rb"[^a-z0-9]", b"", title.lower().partition(b":")[0])  # user_id:token, as RecBole writes it
    return _ROLES.get(name) or _ROLES.get(re.sub(rb"ids?$", b"", name), "")
