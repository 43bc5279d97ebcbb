"""Numbers that are read all at once equal those of float() and int(), bit for bit."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from malt.data.text.marks import ANY, EXPONENT, NEWLINE, NONE, POINT, SIGN, SOME, Marks, number_rules, table

pytestmark = pytest.mark.serial

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
ONE_A_LINE = table(
    {NEWLINE: {SIGN: NONE, POINT: ANY, EXPONENT: SOME, NEWLINE: SOME}, **number_rules(NEWLINE)},
)


def read(words):
    """The numbers, one a line; None where they are not numbers."""
    marks = Marks("".join(f"{word}\n" for word in words).encode())
    if not marks.follow(ONE_A_LINE):
        return None
    return marks.numbers(begins=marks.left == NEWLINE, ends=marks.right == NEWLINE)


def bits(numbers):
    return np.asarray(numbers, dtype=np.float64).view(np.int64).tolist()


WRITTEN = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda number: f"{number:.9g}"),
    st.from_regex(r"[+-]?[0-9]{1,20}\.?[0-9]{0,20}([eE][+-]?[0-9]{1,3})?", fullmatch=True).filter(str.isascii),
    st.from_regex(r"[+-]?0\.0{0,30}[0-9]{1,10}", fullmatch=True).filter(str.isascii),
    st.integers(-(2**70), 2**70).map(str),
)


@given(st.lists(WRITTEN, min_size=1, max_size=20))
@example(["9007199254740993", "9007199254740992", "9007199254740993e0", "0.9007199254740993"])
@example(["1e22", "1e23", "3e22", "1e-22", "1e-23", "123456789012345678e-22", "-0", "-0.0", "-.5", "5.", "1e99999"])
@example(["100000000000000000001", "1.0000000000000000000001", "0.0000000000000000001234", "-5000000000000000000000.5"])
@example(["1e400", "-1e400", "1e-400", "99999999999999999999999999999999"])
def test_numbers_are_what_float_reads(words):
    assert bits(read(words)) == bits([float(word) for word in words])


@given(st.lists(st.text("019+-.eE", max_size=7), min_size=1, max_size=4))
@example(["1", "."])
@example(["+."])
@example([".e5"])
def test_other_words_are_refused(words):
    numbers = read(words)
    if all(NUMBER.fullmatch(word) for word in words):
        assert bits(numbers) == bits([float(word) for word in words])
    else:
        assert numbers is None


@given(st.lists(st.integers(0, 10**18 - 1), max_size=20), st.integers(0, 5))
def test_digits_are_what_int_reads(numbers, zeros):
    marks = Marks("".join(f"{number:0{zeros}d}\n" for number in numbers).encode())
    assert marks.digits(np.arange(len(numbers))).tolist() == numbers


def test_every_byte_is_a_mark_a_digit_or_unknown():
    known = [byte for byte in range(256) if Marks.are_known(bytes([byte]))]
    assert bytes(known) == bytes(sorted(b"0123456789+-.eE: \n"))
