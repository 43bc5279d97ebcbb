"""If ranks pass different rows to malt.shard, the next collective call raises an error on all of them."""

import random

import numpy as np
import pytest
from ranks import error_of_all
from scipy import sparse

import malt
from malt.session.world.shard_notes import MOST, ShardNotes, difference

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


def told(rows, other, **options):
    return difference({0: noted(rows), 2: noted(other, **options)})


@pytest.mark.parametrize("rows, other", [(RANDOM, RANDOM.copy()), ([1, 2], (1, 2)), (7, 7)], ids=["array", "list", "n"])
def test_rows_that_are_equal(rows, other):
    assert told(rows, other) == ""


REMEDY = "ranks draw from different generators: malt.shard(len(rows), shuffle=True, seed=epoch) has one order for all"
DIFFERENT = [
    (RANDOM, RANDOM[::-1], "500 rows of float64, checksum "),
    (RANDOM, RANDOM[:-1], "499 rows of float64, checksum "),
    (RANDOM, RANDOM.astype("f4"), "500 rows of float32, checksum "),
    (RANDOM, 500, "the number 500;"),
    (RANDOM, list(RANDOM[:, 0]), "500 rows of a list, checksum "),
    (9, 8, "the number 8;"),
    (RANDOM, Frame(RANDOM), "500 rows of a Frame, checksum "),
]


@pytest.mark.parametrize("rows, other, said", DIFFERENT, ids=[said for *_, said in DIFFERENT])
def test_rows_that_differ(rows, other, said):
    """As many rows of one kind in another order are the work of generators."""
    y = np.arange(3)
    found = difference({0: noted(y, rows), 1: noted(y, rows), 3: noted(y, other)})
    of_rank_0 = "the number 9" if rows is not RANDOM else "500 rows of float64, checksum "
    assert found.startswith(f"malt.shard, call 2: rank 0 gave {of_rank_0}") and f"rank 3 gave {said}" in found
    is_reversed = said == DIFFERENT[0][2]
    assert found.endswith(f"never: if they are shuffled, {REMEDY}" if is_reversed else "twice and some never")


def test_rows_of_many_zeros_in_another_order():
    """The first pixels of pictures are all zero, so the samples must not be of one column."""
    pixels = np.zeros((1 << 13, 1 << 14), np.uint8)
    pixels[:, 5000:9000] = np.arange(1 << 13)[:, None]
    assert difference({0: noted(pixels), 1: noted(pixels[::-1])})
    labels = sparse.csr_array(np.diag(np.arange(100)))
    assert difference({0: noted(labels), 1: noted(labels[::-1])})


def test_another_seed():
    message = told(RANDOM, RANDOM, seed=3)
    assert "rank 2 gave 500 rows of float64, checksum" in message and ", shuffled with seed 3; all must" in message
    assert message.endswith("twice and some never")


def test_only_rows_that_all_ranks_have_passed_are_compared():
    assert all(difference({0: noted(RANDOM), 1: notes}) == "" for notes in (noted(), noted(RANDOM, RANDOM[1:])))
    assert len(noted(*[RANDOM] * 20)) == MOST


def test_a_number_is_noted_once_in_a_loop():
    """Arrays that come after many epochs are noted, too."""
    assert [note[:2] for note in noted(*[7] * 40, RANDOM, 7)] == [[1, 7], [41, 500]]


KINDS = {
    "texts": lambda order: [f"row {row}" for row in order],
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


CALLS = {
    "vector": lambda: malt.vector(3),
    "Replica": lambda: malt.Replica(np.zeros(3)),
    "barrier": malt.barrier,
    "allreduce": lambda: malt.allreduce(np.zeros(3)),
    "reduce_rows": lambda: malt.reduce_rows(np.zeros(3)),
    "broadcast": lambda: malt.broadcast(np.zeros(3)),
    "allgather": lambda: malt.allgather(1),
    "map_reduce": lambda: malt.map_reduce(lambda _, rows: len(rows), None, [1, 2]),
    "finish": None,
}


@pytest.mark.parametrize("call", CALLS)
def test_the_next_collective_call_raises(call):
    y = list(range(100))

    def live(rank):
        replica = malt.Replica(np.zeros(3))
        malt.shard(y)
        malt.barrier()
        malt.shard(random.Random(rank).sample(y, 100))
        if rank == 0:
            malt.shard(y[1:])
        with pytest.raises(ValueError, match="^malt.shard, call 2: rank 0 gave 100 rows of a list, checksum") as raised:
            (CALLS[call] or replica.finish)()
        if rank > 0:
            malt.shard(y[1:])
        replica.finish()
        return str(raised.value)

    assert len(set(malt.simulate(live, 2))) == 1


def test_ranks_that_count_other_rows_are_told():
    assert "rank 0 gave the number 100, rank 1 gave the number 101" in error_of_all(
        lambda rank: (malt.shard(100 + rank), malt.barrier())
    )


def test_rows_that_cannot_be_compared_are_named_on_one_rank(recwarn):
    malt.simulate(lambda rank: malt.shard([object()] * 4), 2)
    assert [str(one.message) for one in recwarn] == [
        "malt.shard cannot compare rows of class object between ranks: all must give the same rows, in the same order"
    ]
