"""If ranks pass different arrays to malt.shard, the next collective call raises an error on all of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import malt
from malt.world.shardnotes import MOST, ShardNotes, difference

RANDOM = np.random.default_rng(0).standard_normal((500, 7))


def noted(*arrays, seed=None):
    notes = ShardNotes()
    for array in arrays:
        notes.note(array, seed)
    return notes._notes


SAME = [
    RANDOM, RANDOM[:0], RANDOM[::2, ::-1], RANDOM.astype("f2"), np.array(["a", "bc"]), np.array(["a", None]),
    np.zeros(3, "i4, f8"), RANDOM.view(np.matrix), sparse.csr_matrix(RANDOM), sparse.csr_matrix((3, 3)),
]  # fmt: skip


@pytest.mark.serial
@pytest.mark.parametrize("array", SAME, ids=str)
def test_arrays_that_are_equal(array):
    assert difference({0: noted(array), 2: noted(array.copy())}) == ""


DIFFERENT = [
    RANDOM[::-1], RANDOM[:-1], RANDOM.astype("f4"), RANDOM.T.reshape(500, 7),
    np.random.default_rng(1).permutation(RANDOM), sparse.csr_matrix(RANDOM[::-1]),
]  # fmt: skip


@pytest.mark.serial
@pytest.mark.parametrize("other", DIFFERENT, ids=lambda array: f"{type(array).__name__} {array.dtype} {array.shape}")
def test_arrays_that_differ(other):
    y = np.arange(3)
    assert difference({0: noted(y, RANDOM), 1: noted(y, RANDOM), 3: noted(y, other)}, start=4).startswith(
        "malt.shard, call 6 with an array: rank 0 gave 500 rows of float64, checksum "
    )


@pytest.mark.serial
def test_rows_of_many_zeros_in_another_order():
    """The first pixels of pictures are all zero, so the samples must not be of one column."""
    pixels = np.zeros((1024, 1024), np.uint8)
    pixels[:, 300:700] = np.arange(1024)[:, None]
    assert difference({0: noted(pixels), 1: noted(pixels[::-1])})
    labels = sparse.csr_matrix(np.diag(np.arange(100)))
    assert difference({0: noted(labels), 1: noted(labels[::-1])})


@pytest.mark.serial
def test_another_seed():
    message = difference({0: noted(RANDOM), 1: noted(RANDOM, seed=3)})
    assert "rank 1 gave 500 rows of float64, checksum" in message and ", shuffled with seed 3; all must" in message


@pytest.mark.serial
def test_only_arrays_that_all_ranks_have_passed_are_compared():
    assert (
        difference({0: noted(RANDOM), 1: noted()}) == difference({0: noted(RANDOM), 1: noted(RANDOM, RANDOM[1:])}) == ""
    )
    assert len(noted(*[RANDOM] * 20)) == MOST


CALLS = {
    "vector": lambda: malt.vector(3),
    "Replica": lambda: malt.Replica(np.zeros(3)),
    "barrier": malt.barrier,
    "finish": None,
}


@pytest.mark.parallel
@pytest.mark.parametrize("call", CALLS)
def test_the_next_collective_call_raises(call):
    malt.finalize()
    y = np.arange(100)
    replica = malt.Replica(np.zeros(3))
    malt.shard(y)
    malt.barrier()
    malt.shard(np.random.default_rng(malt.rank()).permutation(y))
    if malt.rank() == 0:
        malt.shard(y[1:])
    with pytest.raises(
        ValueError, match="^malt.shard, call 2 with an array: rank 0 gave 100 rows of int64, checksum"
    ) as e:
        (CALLS[call] or replica.finish)()
    assert len(set(malt.init().transport.allgather(str(e.value).encode()))) == 1
    if malt.rank() > 0:
        malt.shard(y[1:])
    replica.finish()
    malt.finalize()
