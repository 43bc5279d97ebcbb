"""Numbers in text, all at once: where the marks between the digits stand, which may follow which, what they are worth.

A mark is a byte that is no digit. A text is taken apart at its marks, which are checked against a table of what may
follow what, and the digits of all numbers are added up together, place by place. Whoever reads a format with it says
which marks begin and end a number there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Positions = NDArray[np.intp]
Rules = Mapping[int, Mapping[int, tuple[int, ...]]]
"""Which marks may follow a mark, and with how many digits between: NONE, SOME or ANY number."""

NEWLINE, SPACE, COLON, SIGN, POINT, EXPONENT, EXPONENT_SIGN, DIGIT = range(8)
_MARKS: Final = {ord(mark): kind for mark, kind in zip("\n :+-.eE", (0, 1, 2, 3, 3, 4, 5, 5), strict=True)}
_KINDS: Final = bytes(_MARKS.get(byte, DIGIT) for byte in range(256))
_KNOWN: Final = bytes(_MARKS) + b"0123456789"

NONE, SOME, ANY = (0,), (1,), (0, 1)

_INT64_DIGITS: Final = 18
_INT64_POWERS: Final = 10 ** np.arange(_INT64_DIGITS + 1, dtype=np.int64)
_EXPONENT_DIGITS: Final = 4
_EXACT: Final = 2**53
"""Up to here every integer is a double."""
_EXACT_POWERS: Final = np.array([10.0**power for power in range(23)])
"""The powers of ten that are doubles."""


def number_rules(*ends: int) -> dict[int, dict[int, tuple[int, ...]]]:
    """What may follow what inside a decimal number that one of the marks `ends` ends."""
    return {
        SIGN: {POINT: ANY, EXPONENT: SOME, **dict.fromkeys(ends, SOME)},
        POINT: {EXPONENT: ANY, **dict.fromkeys(ends, ANY)},
        EXPONENT: {EXPONENT_SIGN: NONE, **dict.fromkeys(ends, SOME)},
        EXPONENT_SIGN: dict.fromkeys(ends, SOME),
    }


def table(rules: Rules) -> Flags:
    """`rules` as an array: may, after mark i and no (0) or some (1) digits k, mark j follow? [i, j, k]"""
    allowed = np.zeros((DIGIT, DIGIT, 2), dtype=bool)
    for left, rights in rules.items():
        for right, digits in rights.items():
            allowed[left, right, list(digits)] = True
    return allowed


class Marks:
    """The marks of a text that ends in a newline, in their order; a newline is taken to stand before the text."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.raw = np.frombuffer(text, dtype=np.uint8)
        kinds = np.frombuffer(text.translate(_KINDS), dtype=np.uint8)
        self.ends = np.flatnonzero(kinds != DIGIT)
        """Where the marks stand: there the digits before them end."""
        self.lengths = np.diff(self.ends, prepend=-1) - 1
        """The number of digits before each mark."""
        self.right = kinds[self.ends]
        """What each mark is."""
        self.left = np.full_like(self.right, NEWLINE)
        """What the mark before it is."""
        self.left[1:] = self.right[:-1]
        self._distinguish_signs()

    def _distinguish_signs(self) -> None:
        behind_exponent = (self.left == EXPONENT) & (self.right == SIGN)
        if behind_exponent.any():
            self.right[behind_exponent] = EXPONENT_SIGN
            self.left[1:] = self.right[:-1]

    @staticmethod
    def are_known(text: bytes) -> bool:
        """Whether every byte is a digit or a mark."""
        return not text.translate(None, _KNOWN)

    def follow(self, allowed: Flags) -> bool:
        """Whether each mark may follow the one before it, with the digits between, by `table(rules)`."""
        return bool(allowed[self.left, self.right, (self.lengths > 0).view(np.uint8)].all())

    def digits(self, chosen: Positions) -> NDArray[np.int64]:
        """The integers before the chosen marks, 0 where there are no digits, nonsense where more than 18."""
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
        """The decimal numbers, bit for bit as float() reads them; None where one has no digits at all.

        `begins` chooses the first mark after the start of each number (its sign, point, exponent or end), `ends` the
        mark that ends it; the marks follow `number_rules`.

        An integer up to 2**53 times or over a power of ten up to 10**22 is rounded once, and so right (W. Clinger,
        "How to read floating point numbers accurately", 1990). Of numbers with more digits float() is asked.
        """
        leads = np.flatnonzero((begins & (self.right != SIGN)) | (self.left == SIGN))
        owner: Positions = np.cumsum(ends) - ends  # the number that each mark is part of
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
        """Put the digits behind points into the mantissas, lengths and powers of their numbers."""
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
            exponents[self.lengths[chosen] > _EXPONENT_DIGITS] = 10**_EXPONENT_DIGITS  # float() will be asked
            powers[owner[chosen]] += np.where(self._follow_minus(chosen), -exponents, exponents)

    def _follow_minus(self, chosen: Positions) -> Flags:
        """Whether the digits before each chosen mark follow a minus. (Before the text: its last byte, a newline.)"""
        return np.asarray(self.raw[self.ends[chosen] - self.lengths[chosen] - 1] == ord("-"))

    def _read_singly(self, which: Positions, begins: Flags, ends: Flags, result: NDArray[np.float64]) -> None:
        first = (self.ends - self.lengths)[begins][which].tolist()
        last = self.ends[ends][which].tolist()
        result[which] = [float(self.text[start:end]) for start, end in zip(first, last, strict=True)]


def _scaled(mantissas: NDArray[np.float64], powers: NDArray[np.int64]) -> NDArray[np.float64]:
    """mantissas * 10**powers, rounded once: where the power is negative that is a division."""
    scales: NDArray[np.float64] = _EXACT_POWERS[np.abs(powers)]
    if (powers <= 0).all():
        return mantissas / scales
    return np.where(powers < 0, mantissas / scales, mantissas * scales)
