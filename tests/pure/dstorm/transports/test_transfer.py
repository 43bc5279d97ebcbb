"""The transfer thread: what ends it is raised where its rank calls, and who waits for it waits until a deadline."""

import threading
from types import SimpleNamespace

import pytest
from carried import ROUND_TRIP_S, run_carried

from dstorm import DeadlinePassed, Group, SimulatedTransport
from dstorm.errors import TransferFailed
from dstorm.membership.barriers.barrier import Barrier, nbytes
from dstorm.transports import transfer
from dstorm.transports.transfer import Rounds, TransferThread
from dstorm.view import View


def fails():
    raise ValueError("MPI_ERR_RMA_SYNC:\nexecuted in a wrong order")


FAILED = (
    "^rank 0: the transfer thread has ended, and what was scattered to other hosts leaves no more: "
    "ValueError: MPI_ERR_RMA_SYNC: executed in a wrong order$"
)


def test_an_error_of_the_thread_is_raised_by_each_call_that_needs_it():
    thread = TransferThread(SimulatedTransport(Group(1), 0), 5.0)
    thread.later(fails, [1])
    thread._thread.join(10)
    for call in (thread.check, lambda: thread.drain("malt.barrier"), thread.check):
        with pytest.raises(TransferFailed, match=FAILED) as raised:
            call()
        assert isinstance(raised.value.__cause__, ValueError)
    thread.later(fails, [1])  # a heartbeat, or a close: the calls above say it
    thread.stop()


def test_a_barrier_in_which_the_thread_fails_says_why():
    def live(transport):
        if transport.rank == 0:
            transport.carrier.later(fails, [1])
            with pytest.raises(TransferFailed, match=FAILED):
                transport.barrier()

    run_carried(live)


@pytest.mark.parametrize("patience_s", [None, 0.5])
def test_an_errand_that_is_not_done_has_a_deadline_and_names_its_receivers(patience_s):
    def live(transport):
        if transport.rank == 0:
            transport.carrier.round = lambda: False  # it hangs
            transport.carrier.later(fails, [2, 1])
            before = transport.clock()
            with pytest.raises(DeadlinePassed, match=r"^the epoch: .* waiting for rank 1 .*, rank 2 ") as raised:
                transport.barrier("the epoch", patience_s)
            assert sorted(raised.value.missing) == [1, 2]
            assert (patience_s or 5.0) < transport.clock() - before < (patience_s or 5.0) + 0.5

    run_carried(live, "abc")


def take_time(transport, seconds):
    """What an errand does in a flush: others run meanwhile."""
    transport._group.switch(transport._group.current, seconds)


def test_an_errand_that_is_under_way_is_waited_for():
    def live(transport):
        carrier, done = transport.carrier, []

        def errand():
            take_time(transport, ROUND_TRIP_S)
            done.append(0)

        carrier.later(errand, [1 - transport.rank])
        while not carrier.is_under_way:
            transport.pause(9)
        assert not done
        carrier.drain("the epoch")
        return done == [0]

    assert run_carried(live) == [True, True]


def at_times(times):
    """A transport that has only a clock."""
    return SimpleNamespace(clock=lambda: times[-1], rank=0, view=View(2))


def test_all_waits_of_a_collective_call_share_its_patience():
    class Slow:
        def drain(self, what, timeout_s):
            given.append(timeout_s)
            times.append(times[-1] + 0.2)

    times, given = [1.0], []
    rounds = Rounds(at_times(times), 5.0)
    rounds.add(Slow())
    rounds.add(Slow())
    rounds.waiting = SimpleNamespace(until_none=lambda what, missing, timeout_s, moved_at: given.append(timeout_s))
    rounds.drain("the epoch", 0.3)
    assert given == pytest.approx([0.3, 0.1, 0.0])


def test_a_collective_call_wakes_the_thread():
    """A signal handler may have raised in a scatter before it did."""
    rounds, woken = Rounds(SimulatedTransport(Group(1), 0), 5.0), []
    rounds.wake = lambda: woken.append(1)
    rounds.drain("the epoch")
    assert woken == [1]


def test_a_heartbeat_that_does_not_leave_is_told_with_its_receivers():
    def live(transport):
        mine = Barrier(transport, transport.window(nbytes(2)), 0.1)
        if transport.rank == 0:
            transport.carrier.round = lambda: False  # it hangs
            take_time(transport, 0.05)
            mine.heartbeat()
            with pytest.raises(DeadlinePassed, match="^the epoch: .* waiting for rank 1 "):
                transport.carrier.drain("the epoch", 0.2)

    run_carried(live)


def test_a_wait_for_errands_ends_though_others_come_all_the_time():
    def live(transport):
        done = []
        transport.carrier.later(lambda: done.append(0), [1 - transport.rank])
        transport.duties.append(
            lambda: transport.carrier.later(lambda: take_time(transport, 0.02), [1 - transport.rank])
        )
        before = transport.clock()
        transport.carrier.drain("the epoch")
        transport.duties.clear()
        return done == [0] and transport.clock() - before < ROUND_TRIP_S

    assert run_carried(live) == [True, True]


def test_a_round_is_under_way_only_while_it_calls():
    """Others may hold `calling` for long, and call MPI themselves."""
    rounds, seen = Rounds(SimulatedTransport(Group(1), 0), 5.0), []
    with rounds.calling:
        seen.append(rounds.is_under_way)
    rounds.later(lambda: seen.append(rounds.is_under_way), [1])
    rounds.round()
    rounds.later(fails, [1])
    with pytest.raises(ValueError, match="MPI_ERR_RMA_SYNC"):
        rounds.round()
    assert [*seen, rounds.is_under_way] == [False, True, False]


def test_the_thread_makes_rounds_while_there_is_something_to_do():
    thread, done = TransferThread(SimulatedTransport(Group(1), 0), 5.0), threading.Event()
    thread.later(lambda: thread.later(done.set, [1]), [1])
    assert done.wait(10)
    thread.stop()
    assert not thread._thread.is_alive()


def test_the_thread_runs_at_once(monkeypatch):
    called = []
    monkeypatch.setattr(transfer, "run_at_once", lambda: called.append(threading.current_thread()))
    thread = TransferThread(SimulatedTransport(Group(1), 0), 5.0)
    thread.stop()
    assert called == [thread._thread]


def test_what_was_handed_over_before_the_end_leaves():
    thread = TransferThread(SimulatedTransport(Group(1), 0), 1.0)
    rounds = []

    def ends():
        rounds.append(len(rounds))
        if len(rounds) == 1:  # after its last look at what there is
            thread._is_stopping = True
            thread.wake()
        return False

    thread.round = ends
    thread.wake()
    thread._thread.join(5)
    assert rounds == [0, 1]


def test_only_rounds_with_something_to_send_count_as_busy_and_as_signs_of_life():
    now, starts = [0.0], iter([True, False, True, False])

    def flush():
        now[0] += 2.0

    def start():
        now[0] += 1.0
        return next(starts)

    rounds = Rounds(at_times(now), 5.0)
    rounds.add(SimpleNamespace(start=start, flush=flush, finish=lambda: None))
    assert [(rounds.round(), rounds.busy_s, rounds.moved_at) for _ in range(3)] == [
        (True, 3.0, 3.0), (False, 3.0, 3.0), (True, 6.0, 7.0),
    ]  # fmt: skip
    rounds.later(int, [1])
    assert (rounds.round(), rounds.moved_at) == (True, 8.0)
