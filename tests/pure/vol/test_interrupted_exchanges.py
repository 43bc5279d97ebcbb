"""A signal at each line of an exchange, which the program catches, and goes on: nothing is lost, counted twice or held.

A rank is interrupted in each of its exchanges, one line later each time, and makes the rest of that exchange again. In
the long form (MALT_FAULTS=long) it is at every line, else at a few.
"""

import contextlib

import numpy as np
import pytest
from carried import run_carried
from interrupts import LONG, Signal, lines, rest_of
from mapped import group
from ranks import run_ranks

import malt
from dstorm import parse
from dstorm.queues.calls import compiled
from vol import Blocks, DenseVector, SparseVector

pytestmark = pytest.mark.serial
SIZE = 3
"""Ranks, the first of which is interrupted."""


class Vectors:
    """The exchanges of a vector on one rank: its values at each step, and what they must be after the gather."""

    def __init__(self, transport, sync, function=malt.AVG, kind=DenseVector, **options):
        array = np.zeros(10, np.float32)
        self._transport, self._sync, self.function = transport, sync, function
        self.vector = kind(array, transport, malt.graph("all", transport.size), parse(sync), deadline_s=9.0, **options)

    def begin(self, step):
        """Set the values of `step`."""
        self.vector.array[:] = self._values(self._transport.rank, step)

    def _values(self, rank, step):
        return step % 5 + rank / 4

    def go_on(self, step):
        """Make what is left of the exchange of `step`."""
        if self.vector.step < step:
            self.vector.scatter()
        self.vector.gather(self.function)

    def check(self, step):
        """The array is that of a whole merge; nothing is held."""
        array = self.vector.array
        assert (array == array[0]).all()
        everyone = [self._values(rank, step) for rank in range(self._transport.size)]
        if self._sync == "bsp":
            assert array[0] == pytest.approx(sum(everyone) / (1 if self.function is malt.SUM else len(everyone)))
        elif self.function is malt.AVG:  # some gather twice, or merge the values of another step
            assert 0 <= array[0] <= 5
        assert not self.vector._call_lock._is_owned()

    def end(self, step):
        """The counts of what came are those of what was sent."""
        self._transport.barrier()
        self.vector.gather(self.function)
        self._transport.barrier()
        totals = self.vector.statistics()
        assert totals.sent == step * (self._transport.size - 1)
        sent = totals.sent - totals.superseded
        assert sent == totals.gathered + totals.overwritten + totals.refused + totals.pending
        if self._sync in ("bsp", "notify-ack"):
            assert (totals.overwritten, totals.pending) == (0, 0)


class Rows(Vectors):
    """The same of a sparse vector: rows that one step changes are those of the next one, too."""

    def __init__(self, transport, sync, function=malt.AVG):
        super().__init__(transport, sync, function, SparseVector)


class Masses(Vectors):
    """Push-sum: no mass is lost, whatever is interrupted."""

    def __init__(self, transport, sync):
        super().__init__(transport, sync, malt.PUSH_SUM)

    def end(self, step):
        super().end(step)
        masses = np.array([self.vector._mass])
        self._transport.allreduce(masses, "sum")
        assert masses[0] == pytest.approx(self._transport.size, abs=1e-9)


class Increments:
    """Increments, of which each scatter sends the largest: what is given comes once to each peer."""

    def __init__(self, transport, sync):
        self._transport = transport
        array = np.zeros(4, np.float32)
        graph = malt.graph("all", transport.size)
        self.vector = SparseVector(array, transport, graph, parse(sync), deadline_s=9.0, top_k=2)
        self._given, self._got, self._due = np.zeros(4), np.zeros(4), 0

    def begin(self, step):
        self.vector.array[:] = step % 7 + self._transport.rank + np.arange(4)
        self._given += self.vector.array

    def go_on(self, step):
        if self.vector.step < step:
            self.vector.scatter()
        if self._due < step:  # what was given is sent: the array takes what comes from here on
            self.vector.array[:] = 0
            self._due = step
        self.vector.gather(malt.SUM)

    def check(self, step):
        self._got += self.vector.array
        assert not self.vector._call_lock._is_owned()

    def end(self, step):
        for rest in range(step + 1, step + 5):  # what waits of the increments
            self.vector.array[:] = 0
            self.go_on(rest)
            self.check(rest)
        self._transport.barrier()
        self.vector.array[:] = 0
        self.vector.gather(malt.SUM)
        self._got += self.vector.array
        given = self._given.copy()
        self._transport.allreduce(given, "sum")
        np.testing.assert_array_equal(self._got, given - self._given)


CASES = {
    "asp": lambda one: Vectors(one, "asp"),
    "ssp": lambda one: Vectors(one, "ssp:1"),
    "bsp": lambda one: Vectors(one, "bsp"),
    "bsp sum": lambda one: Vectors(one, "bsp", malt.SUM),
    "notify-ack": lambda one: Vectors(one, "notify-ack"),
    "masses bsp": lambda one: Masses(one, "bsp"),
    "masses notify-ack": lambda one: Masses(one, "notify-ack"),
    "rows asp": lambda one: Rows(one, "asp"),
    "rows bsp": lambda one: Rows(one, "bsp"),
    "rows notify-ack": lambda one: Rows(one, "notify-ack"),
    "increments bsp": lambda one: Increments(one, "bsp"),
    "increments notify-ack": lambda one: Increments(one, "notify-ack"),
}


SHORT = ("asp", "bsp", "masses notify-ack", "rows bsp", "increments bsp")


@pytest.mark.parametrize("hosts", ["aab", "aaa"] if LONG else ["aab"])
@pytest.mark.parametrize("case", CASES if LONG else SHORT)
def test_vectors(case, hosts):
    def live(transport):
        made = CASES[case](transport)
        for step, at in enumerate(lines(), 1):
            made.begin(step)
            came = rest_of(lambda step=step: made.go_on(step), at if transport.rank == 0 else None)
            made.check(step)
            if transport.allgather(bytes([came]))[0] == b"\0":
                break
        made.end(step)
        return step

    steps = run_carried(live, hosts, seed=list(CASES).index(case))
    assert len(set(steps)) == 1 and steps[0] > 10


@pytest.mark.parametrize("sync", ["asp", "bsp"])
def test_compiled_calls(sync, monkeypatch):
    monkeypatch.setattr(compiled, "kernels", compiled.load)
    _, (v, *others) = group(SIZE, 10, "f4", sync)

    def go_on():
        if v.step < step:
            v.scatter()
        v.gather()

    for step, at in enumerate(lines(), 1):
        for rank, one in enumerate((v, *others)):
            one.array[:] = step + rank
        for one in others:
            one.scatter()
        came = rest_of(go_on, at)
        assert (v.array == v.array[0]).all() and not v._call_lock._is_owned()
        for one in others:
            assert one.gather().steps[0] == step
        if not came:
            break
    assert v._compiled is not None and v.statistics().sent == (SIZE - 1) * step
    for one in (v, *others):
        totals = one.statistics()
        assert (totals.gathered, totals.overwritten, totals.pending) == ((SIZE - 1) * step, 0, 0)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("call", ["push", "pull", "zip", "axpy"])
def test_sharded_vectors(call, kind):
    """Of each call all is done, or nothing; and others see it whole."""
    keys = np.arange(20)

    def live(rank):
        s, x = (malt.sharded(20, kind=kind) for _ in range(2))
        calls = {
            "push": lambda: s.push(np.ones(20), keys),
            "pull": lambda: s.pull(keys),
            "zip": lambda: s.zip(lambda a, b: (a + 1, b + 1), x),
            "axpy": lambda: s.axpy(1.0, ones),
        }
        ones = malt.sharded(20, kind=kind)
        for one in (s, x, ones):
            one.push(np.ones(20) / 2, keys)
        malt.barrier()
        for at in lines():
            before, came, is_raised = s.pull(keys), False, False
            malt.barrier()
            if rank == 0:
                try:
                    with Signal(at) as signal:
                        calls[call]()
                except KeyboardInterrupt:
                    is_raised = True
                came = signal.where is not None
                assert not s._is_held and not s._queues.call_lock.lock._is_owned()
            malt.barrier()
            change = s.pull(keys) - before
            if call == "push":
                assert (change == change[0]).all() and change[0] in ((0, 1) if malt.allgather(is_raised)[0] else (1,))
            if call == "zip":
                np.testing.assert_array_equal(s.pull(keys), x.pull(keys))
            malt.barrier()
            if not malt.allgather(came)[0]:
                return at
        return at

    assert min(malt.simulate(live, 2)) > 10


class Round:
    """A round of blocks on one rank, in which a signal comes where it makes its visits."""

    def __init__(self, blocks, signal):
        self._blocks, self._signal = blocks, signal

    def make(self):
        """Add 1 to the rows of each block."""
        self._blocks._begin_round()
        while (visited := self._visited()) is not None:
            for block in visited:
                self._blocks.array[self._blocks._slices[block]] += 1

    def _visited(self):
        """The block of the next visit, in a list; an empty one where a signal has come first; None at the end."""
        blocks, before = self._blocks, self._blocks._visited
        try:
            with self._signal:
                visit = blocks._next()
                return None if visit is None else [visit.block]
        except KeyboardInterrupt:
            if not blocks._in_round:
                return None
            return [] if blocks._visited in (None, before) else [blocks._visited]


def test_blocks():
    """None is lost, or held twice: in each round each rank visits each of them."""

    def live(transport):
        blocks = Blocks(np.zeros((6, 2), np.float32), [2, 4], transport, ranks=range(2))
        rounds = 0
        for at in lines():
            rounds += 1
            signal = Signal(at) if transport.rank == 0 else contextlib.nullcontext()
            Round(blocks, signal).make()
            assert not blocks._slots.call_lock.lock._is_owned()
            if transport.allgather(bytes([transport.rank == 0 and signal.where is None]))[0] == b"\1":
                break
        assert (blocks.common() == 2 * rounds).all()
        return rounds

    assert min(run_ranks(live, "aa")) > 10
