"""Checks of numbers, integers and timeouts."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import malt
from vol import arguments

pytestmark = pytest.mark.serial


@pytest.mark.parametrize("number", [2, 2.0, np.float32(2), np.int8(2), Fraction(2), np.array(2.0)])
def test_numbers(number):
    assert arguments.real("weight", number) == 2.0


@pytest.mark.parametrize("bad", [True, np.True_, "1", np.str_("1"), None, [1.0], np.zeros(3), 1j], ids=repr)
def test_what_is_not_a_number(bad):
    with pytest.raises(TypeError, match="v: weight must be a number, got "):
        arguments.real("v: weight", bad)


def test_a_number_beyond_the_range_of_float():
    assert arguments.real("weight", 10**400) == float("inf")


def test_whole_numbers():
    assert arguments.integer(np.int64(3)) == 3 and arguments.whole("n", np.uint8(3), 3) == 3
    for bad in (True, np.True_, 1.0, "1", None, np.zeros(2, int)):
        with pytest.raises(TypeError):
            arguments.integer(bad)
        with pytest.raises(TypeError, match="n must be an integer of at least 0, got "):
            arguments.whole("n", bad, 0)
    with pytest.raises(ValueError, match="n must be a whole number of rows of at least 3, got 2$"):
        arguments.whole("n", 2, 3, "rows")


def test_choices():
    assert arguments.choice("op", "sum", ("mean", "sum")) == "sum"
    for bad in ("su", None, ["sum"], np.zeros(2), np.array(["sum"])):
        with pytest.raises(ValueError, match="^op must be 'mean' or 'sum', got "):
            arguments.choice("op", bad, ("mean", "sum"))


def test_timeouts():
    assert arguments.timeout("v", None) is None and arguments.timeout("v", 2) == 2.0
    for bad, error in ((-1, ValueError), (float("nan"), ValueError), ("a", TypeError), (True, TypeError)):
        with pytest.raises(error, match="v: timeout_s must be a number"):
            arguments.timeout("v", bad)


@pytest.mark.parametrize("call", [
    lambda v: v.scatter(weight="1"), lambda v: v.scatter(weight=True), lambda v: v.scatter(to=True),
    lambda v: v.scatter(to=[True]), lambda v: v.gather(timeout_s="a"), lambda v: v.gather(timeout_s=True),
])  # fmt: skip
def test_a_vector_refuses_bad_arguments_and_does_nothing(call):
    def live(rank):
        with malt.vector(3, name="w") as v:
            with pytest.raises(TypeError, match="w: (weight|to|timeout_s) must be a"):
                call(v)
            return v.step, v.statistics().sent

    assert malt.simulate(live, 2) == [(0, 0)] * 2
