"""A merge in which an operation raises changes nothing, on every path."""

import warnings

import numpy as np
import pytest
from carried import run_carried

import malt
from dstorm import parse
from vol import DenseVector, SparseVector
from vol.merging import merge, undo_buffer
from vol.merging.undo_buffer import all_or_nothing, is_kept
from vol.sparse import merge as rowmerge

pytestmark = pytest.mark.serial
LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("kind", ["numpy", "warnings"])
def test_many_values_are_kept_where_an_operation_may_raise_and_else_not_in_vain(kind, monkeypatch):
    monkeypatch.setattr(undo_buffer, "FEW", 0)
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.resetwarnings()
        assert not is_kept(1)
        if kind == "warnings":
            warnings.simplefilter("error")
        else:
            np.seterr(under="raise")
        assert is_kept(1)


@pytest.mark.parametrize("rows", [None, np.array([0, 3])])
def test_values_come_back(rows):
    array, other = np.arange(8.0).reshape(4, 2), np.zeros((4, 1))
    with pytest.raises(ZeroDivisionError), all_or_nothing(array, other, rows=rows):
        array[[0, 3]] = -1
        other[[0, 3]] = -1
        raise ZeroDivisionError
    assert array.ravel().tolist() == list(range(8)) and not other.any()


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
def test_an_array_is_unchanged(kind, sync, function, hosts, monkeypatch):
    """Also that of a function of the user's whose values do not fit. The next exchange is as any other."""
    monkeypatch.setattr(undo_buffer, "FEW", 0)
    monkeypatch.setattr(merge, "_BLOCK", 4)  # it raises in the last block
    monkeypatch.setattr(rowmerge, "_BLOCK", 4)

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
