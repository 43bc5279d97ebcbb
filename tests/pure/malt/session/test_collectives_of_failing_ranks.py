"""Collectives of ranks in one process: in any order of turns, and with a rank that fails at any of its turns."""

from contextlib import suppress

import numpy as np
import pytest
from ranks import run_failing

import malt
from malt.session import collectives


class TestSimulated:
    def test_ranks_in_process_get_the_same(self):
        def live(rank):
            array = np.random.default_rng(rank).normal(size=300).astype(np.float16)
            malt.allreduce(array, weight=rank)
            last = np.zeros(3) + rank
            malt.broadcast(last, root=4)
            return array.tobytes(), last.tolist(), malt.allgather(np.arange(rank)), malt.lowest(), malt.together(int)

        for rank, (array, last, gathered, is_lowest, nothing) in enumerate(found := malt.simulate(live, 5)):
            assert array == found[0][0] and last == [4.0] * 3 and is_lowest == (rank == 0) and nothing == 0
            assert [one.tolist() for one in gathered] == [list(range(peer)) for peer in range(5)]


@pytest.mark.parametrize("turn", range(4, 184, 11))
class TestFailures:
    """Rank `turn` mod 3 fails at its so many-th turn: before, in and after each part of a call."""

    SIZE = 3

    @pytest.fixture(autouse=True)
    def pieces(self, monkeypatch):
        monkeypatch.setattr("dstorm.membership.collectives.mailboxes.PIECE_NBYTES", 64)
        monkeypatch.setattr(collectives, "_GATHER_NBYTES", 400)

    def results(self, turn, live, fails):
        lists, failed = run_failing(self.SIZE, turn, {fails: turn}, live)
        ends = [lists[rank] for rank in range(self.SIZE) if rank not in failed]
        assert all(repr(other) == repr(ends[0]) for other in ends)
        return ends[0], failed

    @pytest.mark.parametrize("algorithm", ["auto", "summed at once", "reduce-scatter", "tree", "star"])
    def test_allreduce(self, turn, monkeypatch, algorithm):
        at_once = algorithm == "summed at once"
        monkeypatch.setattr(collectives, "_SUMMED_NBYTES", 1 << 16 if at_once else 0)

        def live(rank):
            array = np.full(60, 2.0**rank, np.float32)
            malt.allreduce(array, "sum", algorithm="auto" if at_once else algorithm)
            return array.tolist()

        for fails in range(self.SIZE) if algorithm == "auto" else [turn // 3 % 3]:
            sums, _ = self.results(turn, live, fails)
            assert set(sums) in ({7.0}, {7.0 - 2**fails})

    def test_rows(self, turn):
        """All others have the rows of all, or raise PeerLost, or are two and have the rows of two."""

        def live(rank):
            try:
                rows = malt.allgather(malt.reduce_rows(np.full(60, 2.0**rank), "sum"))
            except malt.PeerLost as error:
                return error.rank
            return np.concatenate([some for some in rows if some is not None]).tolist()

        fails = turn % 3
        found, failed = self.results(turn, live, fails)
        if failed and isinstance(found, int):
            assert {found} == failed
        else:
            assert set(found) in ({7.0}, {7.0 - 2**fails}) and len(found) in (60, 40)

    def test_sharded_vectors(self, turn):
        """Their parts fail with a rank: all others raise PeerLost. Vectors that are made later have parts on those."""

        def live(rank):
            malt.allgather(0)
            lost, s = -1, None
            try:
                s = malt.reduce_scatter(np.full(6, 2.0**rank))
                while True:
                    with suppress(malt.PeerLost):  # which pull and push raise on their caller alone
                        s.push(np.ones(6))
                        assert s.pull().min() >= 7 / 3
                    malt.barrier() if turn % 2 else s.dot(s)
            except malt.PeerLost as error:
                lost = error.rank
                if s is not None:
                    s.close()
            later = malt.sharded(6)
            later.push(np.ones(6))
            malt.barrier()
            return lost, later.pull().tolist()

        fails = turn % 3
        if turn > 20:  # else it fails in the first call
            (lost, later), failed = self.results(turn, live, fails)
            assert (lost, failed, later) == (fails, {fails}, [2.0] * 6)

    def test_products_with_a_sharded_matrix(self, turn):
        """A product is the whole one, or an error on all ranks."""

        def live(rank):
            malt.allgather(0)
            matrix, ones = malt.sharded((6, 2)), malt.sharded(6)
            matrix.fill(1)
            ones.fill(1)
            try:
                while True:
                    assert matrix.rmatvec(ones).tolist() == [6, 6]
            except malt.PeerLost as error:
                return error.rank

        fails = turn % 3
        if turn > 40:  # else it fails before there are vectors
            lost, failed = self.results(turn, live, fails)
            assert (lost, failed) == (fails, {fails})

    def test_a_weighted_mean(self, turn):
        def live(rank):
            array = np.full(60, 2.0**rank, np.float32)
            try:
                malt.allreduce(array, weight=float(rank == 2))
            except ValueError as error:
                return str(error)
            return array.tolist()

        for fails in range(self.SIZE):
            found, failed = self.results(turn, live, fails)
            if found == "malt.allreduce: all weights are zero":
                assert failed == {2}
            else:
                assert set(found) == {4.0}

    def test_broadcast(self, turn):
        def live(rank):
            array = np.full(60, rank)
            try:
                malt.broadcast(array, root=1)
            except malt.PeerLost as error:
                assert (array == rank).all()
                return error.rank
            return array.tolist()

        for fails in range(self.SIZE):
            found, failed = self.results(turn, live, fails)
            assert (found == 1 and failed == {1}) or found == [1] * 60

    @pytest.mark.parametrize("small_nbytes", [0, 1 << 18])
    def test_allgather(self, turn, monkeypatch, small_nbytes):
        monkeypatch.setattr(collectives, "_SMALL_NBYTES", small_nbytes)

        def live(rank):
            arrays = malt.allgather(np.full(20 + 30 * rank, rank))
            return malt.allgather([rank]), [array if array is None else array.tolist() for array in arrays]

        for fails in range(self.SIZE):
            (values, arrays), failed = self.results(turn, live, fails)
            for rank in range(self.SIZE):
                assert values[rank] == [rank] or (values[rank] is None and rank in failed)
                assert arrays[rank] == [rank] * (20 + 30 * rank) or (arrays[rank] is None and rank in failed)

    def test_together(self, turn):
        def live(rank):
            def work():
                malt.init().transport.pause(1)
                if rank == 1:
                    raise KeyError("model")

            try:
                return malt.together(work)
            except KeyError as error:
                return error.args

        for fails in range(self.SIZE):
            found, failed = self.results(turn, live, fails)
            assert found == ("model",) or (failed == {1} and found is None)
