"""A parser of the numbers in a text, all at once: the marks between digits, their order, and the values of the numbers.

A mark is a byte that is not a digit. The text is split at its marks. A table says which mark may follow which. The
digits of all numbers are added up together, place by place. The reader of a format says which marks begin and end a
number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Positions = NDArray[np.intp]
Rules = Mapping[int, Mapping[int, tuple[int, ...]]]
"""For each mark: the marks that may follow it, and how many digits are between them: NONE, SOME or ANY number."""

NEWLINE, SPACE, COLON, SIGN, POINT, EXPONENT, EXPONENT_SIGN, DIGIT = range(8)
_MARKS: Final = {ord(mark): kind for mark, kind in zip("\n :+-.eE", (0, 1, 2, 3, 3, 4, 5, 5), strict=True)}
_KINDS: Final = bytes(_MARKS.get(byte, DIGIT) for byte in range(256))
_KNOWN: Final = bytes(_MARKS) + b"0123456789"

NONE, SOME, ANY = (0,), (1,), (0, 1)

_INT64_DIGITS: Final = 18
_INT64_POWERS: Final = 10 ** np.arange(_INT64_DIGITS + 1, dtype=np.int64)
_EXPONENT_DIGITS: Final = 4
_EXACT: Final = 2**53
"""Every integer up to this one is a double."""
_EXACT_POWERS: Final = np.array([10.0**power for power in range(23)])
"""The powers of ten that are doubles, 10**0 to 10**22."""


def number_rules(*ends: int) -> dict[int, dict[int, tuple[int, ...]]]:
    """Return the rules inside a decimal number that ends at one of the marks `ends`. Local."""
    return {
        SIGN: {POINT: ANY, EXPONENT: SOME, **dict.fromkeys(ends, SOME)},
        POINT: {EXPONENT: ANY, **dict.fromkeys(ends, ANY)},
        EXPONENT: {EXPONENT_SIGN: NONE, **dict.fromkeys(ends, SOME)},
        EXPONENT_SIGN: dict.fromkeys(ends, SOME),
    }


def table(rules: Rules) -> Flags:
    """Return `rules` as an array. Local.

    Element [i, j, 0] is True if mark j may follow mark i directly, [i, j, 1] if it may follow after digits.
    """
    allowed = np.zeros((DIGIT, DIGIT, 2), dtype=bool)
    for left, rights in rules.items():
        for right, digits in rights.items():
            allowed[left, right, list(digits)] = True
    return allowed


def squeezed(text: bytes) -> bytes:
    """Return `text` with single spaces, none at the start or end of a line, and without blank lines. Local."""
    while b"  " in text:
        text = text.replace(b"  ", b" ")
    text = text.replace(b" \n", b"\n").replace(b"\n ", b"\n")
    while b"\n\n" in text:
        text = text.replace(b"\n\n", b"\n")
    return text.lstrip(b" \n")


def as_singles(numbers: Any) -> NDArray[np.float32]:
    """Return numbers as float32: infinity where they are too large for it. Local."""
    with np.errstate(over="ignore"):
        singles: NDArray[np.float32] = numbers.astype(np.float32)
    return singles


class Marks:
    """The marks of a text, in order. Local. The text ends in a newline; a newline before its start is assumed."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.raw = np.frombuffer(text, dtype=np.uint8)
        kinds = np.frombuffer(text.translate(_KINDS), dtype=np.uint8)
        self.ends = np.flatnonzero(kinds != DIGIT)
        """The position of each mark, at which the digits before it end."""
        self.lengths = np.diff(self.ends, prepend=-1) - 1
        """The number of digits before each mark."""
        self.right = kinds[self.ends]
        """The kind of each mark."""
        self.left = np.full_like(self.right, NEWLINE)
        """The kind of the mark before each mark."""
        self.left[1:] = self.right[:-1]
        self._distinguish_signs()

    def _distinguish_signs(self) -> None:
        behind_exponent = (self.left == EXPONENT) & (self.right == SIGN)
        if behind_exponent.any():
            self.right[behind_exponent] = EXPONENT_SIGN
            self.left[1:] = self.right[:-1]

    @staticmethod
    def are_known(text: bytes) -> bool:
        """Return whether every byte is a digit or a mark."""
        return not text.translate(None, _KNOWN)

    def follow(self, allowed: Flags) -> bool:
        """Return whether each mark may follow the one before it. `allowed`: the rules, as `table` returns them."""
        return bool(allowed[self.left, self.right, (self.lengths > 0).view(np.uint8)].all())

    def digits(self, chosen: Positions) -> NDArray[np.int64]:
        """Return the integers before the chosen marks: 0 without digits, undefined with more than 18."""
        ends, lengths = self.ends[chosen], self.lengths[chosen]
        longest, shortest = int(lengths.max(initial=0)), lengths.min(initial=_INT64_DIGITS)
        result = np.zeros(ends.size, dtype=np.int64)
        for place in range(min(longest, _INT64_DIGITS), 0, -1):
            if place <= shortest:
                digits = self.raw[ends - place] - np.uint8(ord("0"))
            else:
                has_place = lengths >= place
                digits = (self.raw[ends - place * has_place] - np.uint8(ord("0"))) * has_place
            result *= 10
            result += digits
        return result

    def numbers(self, begins: Flags, ends: Flags) -> NDArray[np.float64] | None:
        """Return the decimal numbers, with the bits that float() gives; None if one has no digits.

        `begins` is a mask of the first mark after the start of each number: its sign, point, exponent or end. `ends` is
        a mask of the mark that ends it. The marks follow `number_rules`.

        An integer up to 2**53, times or over a power of ten up to 10**22, is rounded once and so correctly (W. Clinger,
        "How to read floating point numbers accurately", 1990). float() reads all other numbers.
        """
        leads = np.flatnonzero((begins & (self.right != SIGN)) | (self.left == SIGN))
        owner: Positions = np.cumsum(ends) - ends  # for each mark, the index of its number
        mantissas, lengths = self.digits(leads), self.lengths[leads]
        powers = np.zeros(mantissas.size, dtype=np.int64)
        self._add_fractions(owner, mantissas, lengths, powers)
        if not lengths.all():
            return None
        self._add_exponents(owner, powers)
        inexact = (lengths > _INT64_DIGITS) | (mantissas > _EXACT) | (np.abs(powers) >= _EXACT_POWERS.size)
        powers[inexact] = 0
        result = _scaled(mantissas.astype(np.float64), powers)
        np.negative(result, where=self._follow_minus(leads), out=result)
        if inexact.any():
            self._read_singly(np.flatnonzero(inexact), begins, ends, result)
        return result

    def _add_fractions(
        self, owner: Positions, mantissas: NDArray[np.int64], lengths: Positions, powers: NDArray[np.int64]
    ) -> None:
        """Add the digits after points to the mantissas, lengths and powers of their numbers."""
        chosen = np.flatnonzero(self.left == POINT)
        if chosen.size:
            whose, places = owner[chosen], self.lengths[chosen]
            mantissas[whose] *= _INT64_POWERS[np.minimum(places, _INT64_DIGITS)]
            mantissas[whose] += self.digits(chosen)
            lengths[whose] += places
            powers[whose] -= places

    def _add_exponents(self, owner: Positions, powers: NDArray[np.int64]) -> None:
        after_sign = self.left == EXPONENT_SIGN
        chosen = np.flatnonzero(after_sign | ((self.left == EXPONENT) & (self.right != EXPONENT_SIGN)))
        if chosen.size:
            exponents = self.digits(chosen)
            exponents[self.lengths[chosen] > _EXPONENT_DIGITS] = 10**_EXPONENT_DIGITS  # left to float()
            powers[owner[chosen]] += np.where(self._follow_minus(chosen), -exponents, exponents)

    def _follow_minus(self, chosen: Positions) -> Flags:
        """Return whether the digits before each chosen mark follow a minus.

        Index -1, before the text, is its last byte, a newline.
        """
        return np.asarray(self.raw[self.ends[chosen] - self.lengths[chosen] - 1] == ord("-"))

    def _read_singly(self, which: Positions, begins: Flags, ends: Flags, result: NDArray[np.float64]) -> None:
        first = (self.ends - self.lengths)[begins][which].tolist()
        last = self.ends[ends][which].tolist()
        result[which] = [float(self.text[start:end]) for start, end in zip(first, last, strict=True)]


def _scaled(mantissas: NDArray[np.float64], powers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return mantissas * 10**powers, rounded once: a negative power is a division."""
    scales: NDArray[np.float64] = _EXACT_POWERS[np.abs(powers)]
    if (powers <= 0).all():
        return mantissas / scales
    return np.where(powers < 0, mantissas / scales, mantissas * scales)
