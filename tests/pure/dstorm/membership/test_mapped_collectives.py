"""Collectives in mapped memory, on ranks that are threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from contracts import check_collectives

from dstorm.membership.collectives import mapped
from dstorm.membership.collectives.mapped import MappedCollectives, nbytes
from dstorm.transports.mapped import fence
from dstorm.view import View

PIECE = 4096
LONG = (np.arange(2 * PIECE) // 64).astype(np.uint8)


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch):
    monkeypatch.setattr(mapped, "_PIECE_NBYTES", PIECE)
    monkeypatch.setattr(mapped, "_ALONE_NBYTES", 100)


class Barrier:
    """The barrier of one rank; all count alike."""

    def __init__(self, shared):
        self.next_number, self._shared = 1, shared

    def enter(self, what):
        self.next_number += 1
        self._shared.wait(10)

    def heartbeat(self): ...


def on_ranks(size, body):
    """The results of body(collectives, rank) by rank."""
    shared = threading.Barrier(size)
    memory = {rank: np.zeros(nbytes(size), np.uint8) for rank in range(size)}

    def run(rank):
        barrier = Barrier(shared)
        try:
            return body(MappedCollectives(rank, View(size), barrier, memory, fence, barrier.enter), rank)
        except BaseException:
            shared.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_collectives_keep_their_promises(size):
    def run(check):
        def body(collectives, rank):
            collectives.rank, collectives.size = rank, size
            check(collectives)

        on_ranks(size, body)

    check_collectives(run)


@pytest.mark.parametrize("dtype", ["f2", "f4", "i8", ">f8"])
@pytest.mark.parametrize("length", [0, 1, 7, 600, 2500])
def test_reductions_are_those_in_rank_order(dtype, length):
    arrays = [np.random.default_rng(rank).standard_normal(length).astype("f4").astype(dtype) for rank in range(3)]
    wide = [array.astype("f4") if dtype == "f2" else array for array in arrays]
    expected = {"sum": (wide[0] + wide[1] + wide[2]).astype(dtype), "max": np.maximum.reduce(wide).astype(dtype)}
    weighted = ((0.5 * wide[0] + 1.0 * wide[2]) / np.float32(1.5)).astype(dtype)

    def body(collectives, rank):
        for op, wanted in expected.items():
            array = arrays[rank].copy()
            collectives.allreduce(array, op)
            assert array.tobytes() == wanted.tobytes(), op
        if dtype != "i8":
            array = arrays[rank].copy()
            collectives.allreduce(array, "mean", {0: 1.0, 1: 0.0, 2: 2.0})
            np.testing.assert_allclose(array.astype("f8"), weighted.astype("f8"), rtol=1e-3 if dtype == "f2" else 1e-6)

    on_ranks(3, body)


def test_a_piece_stays_until_all_have_read_it():
    """Rank 1 has written its next piece before rank 0 reads the first ones."""
    written = threading.Event()

    def body(collectives, rank):
        rounds = collectives._exchange(LONG + np.uint8(rank), "allgather")
        _, _, pieces = next(rounds)
        if rank == 0:
            assert written.wait(10)
        else:
            collectives._enter = lambda what, enter=collectives._enter: (written.set(), enter(what))
        first = {of: piece.copy() for of, piece in pieces.items()}
        return [first, *[{of: piece.copy() for of, piece in later.items()} for _, _, later in rounds]]

    for found in on_ranks(2, body):
        for of in range(2):
            whole = np.concatenate([pieces[of] for pieces in found])
            np.testing.assert_array_equal(whole, LONG + np.uint8(of))
