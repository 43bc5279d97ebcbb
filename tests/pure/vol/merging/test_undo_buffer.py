"""A merge in which an operation raises changes nothing, on every path."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from carried import run_carried

import malt
from dstorm import parse
from vol import DenseVector, SparseVector
from vol.merging import undo_buffer
from vol.merging.merge import Blend
from vol.merging.undo_buffer import all_or_nothing, is_kept

pytestmark = pytest.mark.serial
LARGEST = float(np.finfo(np.float32).max)


@pytest.fixture
def only_many(monkeypatch):
    """No values are kept because they are few."""
    monkeypatch.setattr(undo_buffer, "FEW", 0)
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.resetwarnings()
        yield


def test_values_are_kept_where_an_operation_may_raise(only_many):
    assert not is_kept(1)
    with np.errstate(under="raise"):
        assert is_kept(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_kept(1)


def test_many_are_not_kept_in_vain(only_many):
    array = np.zeros(4)
    with pytest.raises(ZeroDivisionError), all_or_nothing(array):
        array[:2] = 1
        raise ZeroDivisionError
    assert array.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("rows", [None, np.array([0, 3])])
def test_values_come_back(rows):
    array, other = np.arange(8.0).reshape(4, 2), np.zeros((4, 1))
    with pytest.raises(ZeroDivisionError), all_or_nothing(array, other, rows=rows):
        array[[0, 3]] = -1
        other[[0, 3]] = -1
        raise ZeroDivisionError
    assert array.ravel().tolist() == list(range(8)) and not other.any()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1, 10, 25])
def test_a_blend_that_raises_in_its_last_block_changes_no_block(size, weighted, monkeypatch):
    monkeypatch.setattr("vol.merging.merge._BLOCK", 10)
    target, other = np.ones(size, np.float32), np.ones(size, np.float32)
    target[-1] = other[-1] = LARGEST
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        Blend([(1.0, target), (1.0, other)], weighted, 2.0).store(target)
    assert (target == other).all()


def doubled(own, updates):
    return np.full(own.shape, 2 * LARGEST)


CASES = [
    (kind, sync, function)
    for kind in (DenseVector, SparseVector)
    for sync in ("asp", "bsp", "notify-ack")
    for function in (malt.AVG, malt.SUM, doubled)
]


@pytest.mark.parametrize("hosts", ["aa", "ab"], ids=["one host", "two hosts"])
@pytest.mark.parametrize(("kind", "sync", "function"), CASES)
def test_an_array_is_unchanged(kind, sync, function, hosts):
    """Also that of a function of the user's whose values do not fit. The next exchange is as any other."""

    def live(transport):
        v = kind(np.ones(10, np.float32), transport, malt.graph("all", 2), parse(sync), deadline_s=9.0)
        for value in (LARGEST, 4.0 * transport.rank):
            v.array[-1] = value
            own = v.array.copy()
            v.scatter()
            transport.barrier()
            if value == LARGEST:
                with np.errstate(over="raise"), pytest.raises(FloatingPointError):
                    v.gather(function)
                np.testing.assert_array_equal(v.array, own)
            else:
                v.gather(malt.SUM)
                assert v.array[-1] in (4, LARGEST)  # under asp and notify-ack the message of before may be there still
            transport.barrier()

    run_carried(live, hosts)
