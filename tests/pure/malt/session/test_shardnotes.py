"""If ranks pass different rows to malt.shard, the next collective call raises an error on all of them."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import error_of_all
from scipy import sparse

import malt
from malt.session.world.shardnotes import MOST, ShardNotes, difference

pytestmark = pytest.mark.serial

RANDOM = np.random.default_rng(0).standard_normal((500, 7))


class Frame:
    """A data frame, as far as malt.shard asks for it."""

    columns = ("a",)

    def __init__(self, values):
        self.iloc = values

    @property
    def shape(self):
        return self.iloc.shape

    def __len__(self):
        return len(self.iloc)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.iloc)


def noted(*rows, seed=None):
    notes = ShardNotes()
    for one in rows:
        is_number = isinstance(one, int)
        notes.note(one if is_number else np.shape(one)[0], seed, None if is_number else one)
    return notes._notes


DIFFERENT = [
    (RANDOM[::-1], "500 rows of float64, checksum "), (RANDOM[:-1], "499 rows of float64, checksum "),
    (RANDOM.astype("f4"), "500 rows of float32, checksum "), (list(RANDOM[:, 0]), "500 rows of a list, checksum "),
    (Frame(RANDOM), "500 rows of a Frame, checksum "), (500, "the number 500;"),
]  # fmt: skip


@pytest.mark.parametrize("other, said", DIFFERENT, ids=[said for _, said in DIFFERENT])
def test_rows_that_differ(other, said):
    y = np.arange(3)
    found = difference({0: noted(y, RANDOM), 1: noted(y, RANDOM), 3: noted(y, other)})
    assert found.startswith("malt.shard, call 2: rank 0 gave 500 rows of float64, checksum ")
    assert f"rank 3 gave {said}" in found


def test_rows_of_many_zeros_in_another_order():
    """The first pixels of pictures are all zero, so the samples must not be of one column."""
    pixels = np.zeros((1 << 13, 1 << 14), np.uint8)
    pixels[:, 5000:9000] = np.arange(1 << 13)[:, None]
    assert difference({0: noted(pixels), 1: noted(pixels[::-1])})
    labels = sparse.csr_array(np.diag(np.arange(100)))
    assert difference({0: noted(labels), 1: noted(labels[::-1])})


REMEDY = "ranks draw from different generators: malt.shard(len(rows), shuffle=True, seed=epoch) has one order for all"


def test_as_many_rows_in_another_order_are_the_work_of_generators():
    def told(one, other, **options):
        return difference({0: noted(one), 1: noted(other, **options)})

    assert told(RANDOM, RANDOM[::-1]).endswith(f"twice and some never: if they are shuffled, {REMEDY}")
    others = [told(RANDOM, RANDOM[1:]), told(RANDOM, RANDOM.astype("f4")), told(9, 8), told(RANDOM, RANDOM, seed=3)]
    assert all(one.endswith("twice and some never") for one in others)


def test_only_rows_that_all_ranks_have_passed_are_compared():
    assert (
        difference({0: noted(RANDOM), 1: noted()}) == difference({0: noted(RANDOM), 1: noted(RANDOM, RANDOM[1:])}) == ""
    )
    assert len(noted(*[RANDOM] * 20)) == MOST


KINDS = {
    "list": lambda order: order.tolist(),
    "texts": lambda order: [f"row {row}" for row in order],
    "array": lambda order: order,
    "objects": lambda order: order.astype(object),
    "frame": lambda order: Frame(order),
    "sparse": lambda order: sparse.csr_array(np.eye(100)[order]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_each_rank_has_shuffled_by_itself_are_refused(kind):
    def live(rank):
        order = np.random.default_rng(rank).permutation(100)
        malt.shard(KINDS[kind](order))
        malt.Replica(np.zeros(3))

    assert "all must give the same rows, in the same order" in error_of_all(live)


def test_ranks_that_count_other_rows_are_told():
    assert "rank 0 gave the number 100, rank 1 gave the number 101" in error_of_all(
        lambda rank: (malt.shard(100 + rank), malt.barrier())
    )


def test_rows_that_cannot_be_compared_are_named_on_one_rank(recwarn):
    malt.simulate(lambda rank: malt.shard([object()] * 4), 2)
    assert [str(one.message) for one in recwarn] == [
        "malt.shard cannot compare rows of class object between ranks: all must give the same rows, in the same order"
    ]
