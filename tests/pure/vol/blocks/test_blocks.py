"""Blocks that go from rank to rank in the simulator: none is lost, none is held twice, also while ranks fail."""

import random

import numpy as np
import pytest

from dstorm import ClosedError, DeadlinePassed, Group, PeerLost, SimulatedTransport, SoloTransport
from dstorm.membership.resilient import SurvivingTransport
from vol import Blocks

ARENA = 1 << 23


class Trainer:
    """Trains blocks of `size` rows, the last of which one rank alone uses; and sees from outside who holds a block."""

    def __init__(self, group, count, size, owner=0):
        self._group, self._holders = group, {}
        self.taken_over = np.zeros(count)
        """How often others trained the lone row of a block, as its owner had failed."""
        self._count, self._size, self._owner = count, size, owner

    def blocks(self, transport):
        owners = np.full((self._count, self._size), -1)
        owners[:, -1] = self._owner
        array = np.zeros((self._count * self._size, 5), np.float32)
        ranks = range(self._group.size)
        return Blocks(array, [self._size] * self._count, transport, owners.ravel(), ranks=ranks)

    def rounds(self, blocks, transport, rounds):
        """Make `rounds` rounds; return the blocks of each, in order."""
        made = []
        for _ in range(rounds):
            made.append([])
            for visit in blocks.round():
                is_gone = self._owner not in blocks.ranks
                self.taken_over[visit.block] += is_gone
                self._train(blocks.array[visit.rows], visit.block, transport, transport.rank == self._owner or is_gone)
                made[-1].append(visit.block)
        return made

    def _train(self, rows, block, transport, has_lone):
        """Add 1 to the rows, with a pause in the middle."""
        holder = self._holders.setdefault(block, transport.rank)
        assert holder == transport.rank or holder in self._group.failed, "two ranks hold a block"
        self._holders[block] = transport.rank
        shared, lone = rows[:-1], rows[-1]
        assert (shared == shared[:1, :1]).all(), "rows of different visits"
        for columns in (slice(2), slice(2, None)):
            shared[:, columns] += 1
            lone[columns] += has_lone
            transport.pause(0)
        del self._holders[block]

    def parts(self, common):
        """The shared rows and the lone ones."""
        rows = common.reshape(self._count, self._size, -1)
        return rows[:, :-1], rows[:, -1]


@pytest.mark.parametrize("seed", range(40))
def test_each_rank_visits_each_block_once_a_round(seed):
    size, count, rounds = 1 + (seed + 3) % 5, 1 + (seed + 4) % 7, 4
    group = Group(size, seed)
    trainer = Trainer(group, count, 1 + (seed + 2) % 4, owner=seed % size)

    def live(rank):
        transport = SimulatedTransport(group, rank)
        blocks = trainer.blocks(transport)
        made = trainer.rounds(blocks, transport, rounds)
        return made, blocks.common(), blocks.statistics(), blocks.array.nbytes

    results = group.run(live)
    for made, common, *_ in results:
        assert [sorted(one) for one in made] == [list(range(count))] * rounds
        shared, lone = trainer.parts(common)
        assert (shared == size * rounds).all() and (lone == rounds).all()
    passes = count * rounds * (size - 1)  # the last of a round is the first of the next
    sent, came, nbytes = (sum(getattr(one[2], name) for one in results) for name in ("sent", "gathered", "bytes_sent"))
    assert sent == came == passes and nbytes == passes * ((seed + 2) % 4) * 5 * 4


@pytest.mark.parametrize("seed", range(50))
def test_the_others_go_on_when_ranks_fail_at_any_moment(seed):
    size, count, rounds = 2 + (seed + 2) % 4, 1 + (seed + 3) % 6, 6
    choose = random.Random(seed)
    failures = {rank: int(2 ** choose.uniform(5, 9)) for rank in choose.sample(range(size), choose.randrange(1, size))}
    group = Group(size, seed, failures)
    trainer = Trainer(group, count, 3, owner=seed % size)

    def live(rank):
        inner = SimulatedTransport(group, rank)
        transport = SurvivingTransport(inner, inner.window(ARENA), inner.find_failed, 5.0)
        blocks = trainer.blocks(transport)
        made = trainer.rounds(blocks, transport, rounds)
        return made, blocks.common(), blocks.ranks, blocks.passes_lost

    results = group.run(live)
    ends = [results[rank] for rank in range(size) if rank not in group.failed]
    for made, common, *rest in ends:
        assert [sorted(one) for one in made] == [list(range(count))] * rounds
        assert common.tobytes() == ends[0][1].tobytes() and rest == list(ends[0][2:])
        shared, lone = trainer.parts(common)
        assert (shared == shared[:, :1, :1]).all()
        assert rounds * len(ends) <= shared.min() <= shared.max() <= rounds * size
        assert (lone == rounds).all() or seed % size in group.failed
        is_taken_over = group.failed == {seed % size} == set(range(size)) - set(rest[0])
        assert not is_taken_over or (trainer.taken_over == lone.T).all()
        assert 0 <= rest[1] <= count * len(group.failed)


def test_a_rank_that_passes_no_block_on_is_named():
    group = Group(2)

    def live(rank):
        transport = SimulatedTransport(group, rank)
        blocks = Blocks(np.zeros((4, 1)), [2, 2], transport, ranks=range(2), deadline_s=5.0, name="b")
        while rank == 1 and transport.clock() < 20:
            transport.pause(30)
        if rank == 0:
            with pytest.raises(DeadlinePassed, match="b.round: the deadline passed waiting for rank 1"):
                list(blocks.round())

    group.run(live)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("early", [True, False])
def test_who_closes_early_is_named_at_once_and_nobody_else(seed, early):
    size, lost = 2 + seed % 3, []
    group = Group(size, seed)

    def live(rank):
        transport = SimulatedTransport(group, rank)
        with Blocks(np.zeros((6, 1)), [1] * 6, transport, ranks=range(size), deadline_s=5.0, name="b") as blocks:
            try:
                for _ in range(1 if early and rank == 1 else 3):
                    assert len(list(blocks.round())) == 6
            except PeerLost as error:
                lost.append((error.rank, str(error)))
        assert transport.clock() < 5.0

    group.run(live)
    first = [(1, "rank 1 is lost: it has closed b, and owes this rank a block")]
    assert (len(lost), lost[:1]) == ((size - 1, first) if early else (0, []))


def test_a_loop_that_was_left_is_named():
    blocks = Blocks(np.zeros((4, 2)), [2, 2], SoloTransport(), ranks=[0], name="b")
    for _ in blocks.round():
        break
    for call in (lambda: list(blocks.round()), blocks.common):
        with pytest.raises(RuntimeError, match="b: a loop over a round was left before its end"):
            call()
    blocks.close()
    with pytest.raises(ClosedError, match="b is closed"):
        blocks.common()


def test_a_round_of_blocks_that_were_closed_ends():
    with Blocks(np.zeros((4, 2)), [2, 2], SoloTransport(), ranks=[0], name="b") as blocks:
        visits = blocks.round()
        next(visits)
    with pytest.raises(ClosedError, match="b is closed"):
        next(visits)
