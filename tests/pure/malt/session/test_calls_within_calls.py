"""The user's code that malt calls, and that calls malt: it closes, makes, scatters, gathers, steps and changes."""

import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from interleaved import interleaved
from ranks import run_failing

import malt
from dstorm import ClosedError
from dstorm.membership.processes import ProcessMonitor
from dstorm.membership.resilient import SurvivingTransport
from malt.session.resilience import start

MODES = ("asp", "ssp:1", "bsp", "notify-ack")


def run_with_callback(seed, turns, live, monkeypatch):
    """Run live(rank) on three ranks, of which rank 2 fails after so many turns, in a session that calls callbacks."""
    monkeypatch.setattr(start, "_reason", lambda world, rank: "it was to fail")

    def begin(rank):
        world = malt.init()
        transport = world.transport
        monitor = ProcessMonitor({}, transport.clock)
        transport.view.subscribe(lambda one: start.report(world, transport, one, monitor))
        return live(rank)

    results, failed = run_failing(3, seed, {2: turns}, begin)
    assert failed == {2}
    return results[:2]


@pytest.mark.parametrize("sync", MODES)
def test_a_callback_closes_the_vector_of_its_call(sync, monkeypatch):
    """Nothing is sent or merged after it, and the other rank does not wait for this one."""

    def live(rank):
        v, calls = malt.vector(np.zeros(3), sync=sync, name="v"), []
        if rank == 0:
            malt.on_death(lambda _: v.close())
        while not v.closed and not (rank == 1 and v._queues.outbox.edges[0].done):
            malt.init().transport.pause(14)  # until a failure is found
            for call in (v.scatter, v.gather):
                step = v.step
                try:
                    call()
                    assert not v.closed
                except ClosedError as error:
                    calls.append((call.__name__, v.closed, v.step - step, str(error)))
                    break
        for _ in range(5 * rank):  # it waits for nobody
            v.scatter()
            v.gather()
        return calls

    for seed in range(3):
        calls, none = run_with_callback(seed, 60 + 7 * seed, live, monkeypatch)
        assert none == [] and calls in [[(name, True, 0, "v is closed")] for name in ("scatter", "gather")]


@pytest.mark.parametrize("sync", MODES)
def test_a_callback_replaces_the_vector_of_its_call(sync, monkeypatch):
    """The new one lies where the old one was: nothing may arrive there that was for that."""

    def live(rank):
        v, new = malt.vector(np.zeros(3), sync=sync), []

        def replace(_):
            v.close()
            new.append(malt.vector(np.zeros(3), sync=sync))

        malt.on_death(replace)
        while not new:
            malt.init().transport.pause(14)  # until a failure is found
            for call in (v.scatter, v.gather):
                try:
                    call()
                except ClosedError:
                    break
        (w,) = new
        assert w._queues.window.place == v._queues.window.place
        malt.barrier()
        found = w.gather().count
        malt.barrier()
        w.array[:] = 1 + rank
        w.scatter()
        malt.barrier()
        return found, w.gather(malt.SUM).count, w.array.tolist()

    for seed in range(2):
        assert run_with_callback(seed, 60 + 7 * seed, live, monkeypatch) == [(0, 1, [3.0] * 3)] * 2


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("sync", MODES)
def test_a_gather_function_closes_its_vector(sync, kind):
    """Its result counts, and no acknowledgement takes the place of what says so: the other rank goes on."""

    def live(rank):
        v, merged = malt.vector(np.zeros(3), kind=kind, sync=sync), []

        def function(own, updates):
            if rank == 0 and v.step >= 3:
                v.close()
            merged.append(v.step)
            return own + 1

        while not v.closed and not v._queues.outbox.edges[1 - rank].done:
            v.array[rank] = v.step + 1
            v.scatter()
            v.gather(function)
        steps = v.step
        while v.step < steps + 5 and not v.closed:  # it waits for nobody
            v.scatter()
            v.gather(function)
        return v.closed, merged[-1] == v.step, v.array[2] == len(merged)

    for seed in range(3):
        assert malt.simulate(live, 2, seed=seed) == [(True, True, True), (False, False, True)]


@pytest.mark.parametrize("sync", MODES)
def test_a_gather_function_replaces_its_vector(sync):
    """Its memory is freed then, and nothing is acknowledged there."""

    def live(rank):
        v, new = malt.vector(np.zeros(3), sync=sync), []

        def function(own, updates):
            v.close()
            new.append(malt.vector(np.zeros(3)))
            own += 1

        v.scatter()
        malt.barrier()
        assert v.gather(function)
        return v.array.tolist(), new[0].gather().count

    assert malt.simulate(live, 2) == [([1.0] * 3, 0)] * 2


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("steps", [(2,), (2, 3), (1, 3, 5, 7)])
def test_the_next_gather_merges_what_a_gather_function_has_scattered(steps, kind):
    def live(rank):
        v, log = malt.vector(np.zeros(3), kind=kind, sync="bsp"), []

        def function(own, updates):
            if v.step in steps:
                v.array[rank] += 1
                v.scatter()
            return own + updates[0].values.sum()

        while v.step < 8:
            v.array[rank] += 1
            v.scatter()
            found = v.gather(function)
            while found:
                log.append((found.count, found.steps, found.lag))
                found = v.gather(function)
        return log, v.statistics().overwritten

    for log, overwritten in malt.simulate(live, 2):
        assert log == [(1, (step,), 0) for step in range(1, 9)] and not overwritten


def test_a_gather_function_may_scatter_each_time():
    """What it merges is acknowledged before: else each rank would wait for the other in the scatters."""

    def live(rank):
        v, counts = malt.vector(np.zeros(3), sync="bsp"), []

        def function(own, updates):
            v.scatter()

        for _ in range(6):
            v.scatter()
            counts.append(v.gather(function).count)
        return counts, v.step, v.statistics().overwritten

    assert malt.simulate(live, 2) == [([1] * 6, 12, 5)] * 2


def test_a_gather_function_gathers():
    """Each update is merged once. Its own result is what stays."""

    def live(rank):
        v = malt.vector(np.zeros(1), sync="notify-ack")
        v.scatter()
        malt.barrier()

        def function(own, updates):
            malt.barrier()
            v.array[:] = 10 * (1 + rank)
            v.scatter()
            malt.barrier()
            inner.append((v.gather(malt.SUM).count, v.array.tolist()))
            return v.array + 1

        inner = []
        outer = v.gather(function)
        edge = v.statistics().peers[1 - rank]
        return inner, outer.count, v.array.tolist(), edge.gathered, edge.pending, edge.lag.count

    assert malt.simulate(live, 2) == [([(1, [30.0])], 1, [31.0], 2, 0, 2)] * 2


def test_what_a_gather_function_changed_before_it_raised_is_sent():
    def live(rank):
        v = malt.vector(np.zeros(3), kind="sparse", sync="bsp")

        def function(own, updates):
            v.array[2] = 7
            raise KeyError

        v.array[rank] = 1
        v.scatter()
        if rank == 0:
            with pytest.raises(KeyError):
                v.gather(function)
        else:
            v.gather(malt.REPLACE)
        v.scatter()
        v.gather(malt.REPLACE)
        return v.array.tolist()

    assert malt.simulate(live, 2) == [[1.0, 0.0, 7.0], [1.0, 1.0, 7.0]]


def test_an_exchange_within_an_exchange_is_refused():
    def live(rank):
        w, refused = np.full(2, float(rank)), []

        def params():
            if rank == 0 and replica:
                with pytest.raises(RuntimeError, match=r"Replica 1.step: it is called within an exchange of this Repl"):
                    replica[0].step()
                refused.append(1)
            return {"w": w}

        replica = []
        replica.append(malt.Replica(params, average="delta", sync="bsp"))
        for _ in range(3):
            w += 1 + rank
            assert replica[0].step()
        return w.tolist(), len(refused)

    assert malt.simulate(live, 2) == [([4.5, 4.5], 3), ([4.5, 4.5], 0)]


def test_the_function_of_zip_closes_a_vector():
    """None of them is changed."""

    def live(rank):
        s, t = malt.sharded(6), malt.sharded(6)
        local = s.local

        def function(a, b):
            t.close()
            return a + 1, b + 1

        with pytest.raises(ClosedError, match="sharded 2 is closed"):
            s.zip(function, t)
        return local.tolist()

    assert malt.simulate(live, 2) == [[0.0] * 3] * 2


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_function_of_zip_may_not_change_what_zip_changes(kind):
    def live(rank):
        s, t, other = (malt.sharded(6, kind=kind) for _ in range(3))
        changes = [lambda: s.scale(2.0), lambda: t.axpy(1.0, s), lambda: s.fill(0), lambda: t.zip(max, s),
                   lambda: s.push(np.ones(6), np.arange(6)), lambda: t.push(np.ones(6), np.arange(6))]  # fmt: skip

        def function(a, b):
            for change in changes:
                with pytest.raises(RuntimeError, match="the function of zip may not change the vectors that zip chan"):
                    change()
            other.push(np.ones(6), np.arange(6))
            return a + 1, b + 2

        for vector in (s, t):
            vector.push(np.ones(6), np.arange(6))
            malt.barrier()
        s.zip(function, t)
        with pytest.raises(ValueError, match="sharded 1.zip: a vector is given twice"):
            s.zip(lambda a, same: a + same, s)
        malt.barrier()
        return s.sum(), t.sum(), other.sum()

    assert malt.simulate(live, 2) == [(18.0, 24.0, 12.0)] * 2


def test_a_callback_is_called_once_though_another_thread_polls():
    calls = []

    def prepare():
        calls.append([])
        quiet = SimpleNamespace(is_outside=False, heartbeat=int, check_now_and_then=int)
        transport = SimpleNamespace(
            returns=None, _barrier=quiet, settle=int, _report=int, attend=int,
            _calls=[partial(calls[-1].append, 1)], _reporting=threading.RLock(),
        )  # fmt: skip
        transport._make_calls = partial(SurvivingTransport._make_calls, transport)
        return (partial(SurvivingTransport.poll_failures, transport),) * 2

    places = list(interleaved(SurvivingTransport._make_calls.__wrapped__.__code__, prepare))
    assert len(places) > 10 and calls == [[1]] * len(calls)
