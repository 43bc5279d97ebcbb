"""Checks of numbers, integers and timeouts."""

from fractions import Fraction

import numpy as np
import pytest

import malt
from vol import arguments


@pytest.mark.parametrize("number", [2, 2.0, np.float32(2), np.int8(2), Fraction(2), np.array(2.0)])
def test_numbers(number):
    assert arguments.real("weight", number) == 2.0


@pytest.mark.parametrize("bad", [True, np.True_, "1", np.str_("1"), None, [1.0], np.zeros(3), 1j], ids=repr)
def test_what_is_not_a_number(bad):
    with pytest.raises(TypeError, match="v: weight must be a number, got "):
        arguments.real("v: weight", bad)


def test_a_number_beyond_the_range_of_float():
    assert arguments.real("weight", 10**400) == float("inf")


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
