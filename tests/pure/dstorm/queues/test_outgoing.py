"""Messages to other hosts leave while their sender goes on: none is torn, and none is lost that is not superseded."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from carried import ROUND_TRIP_S, run_carried
from mutation import plant
from schedules import (
    OneEnd,
    RecordingWindow,
    ReplayedWindow,
    Schedule,
    Violation,
    carried_stages,
    complete,
    explore,
    keep_all,
    layout,
    send,
)

from dstorm import DeadlinePassed, Queues, header, parse
from dstorm.errors import TransferFailed
from dstorm.header import DONE, WHOLE
from dstorm.queues.consistency import ASP
from dstorm.queues.receiving import receiver as receiving
from dstorm.queues.sending.edge import OutgoingMessage
from dstorm.queues.sending.outgoing import Outgoing
from dstorm.queues.sending.unsent import supersede
from dstorm.transports.transfer import Rounds

pytestmark = pytest.mark.serial

CAPACITY = 40


def run(live, hosts="ab", seed=0, sync="asp", depth=2, carried=True, deadline_s=5.0):
    """live(rank, queues, transport) on all ranks; results by rank."""

    def start(transport):
        queues = Queues(transport, complete(len(hosts), depth), parse(sync), deadline_s)
        return live(transport.rank, queues, transport)

    return run_carried(start, hosts, seed, carried)


def payload(rank, step):
    """Every byte shows who sent it and when."""
    return np.full(CAPACITY, (rank * 50 + step) % 251, np.uint8)


def steps_of(messages):
    for message in messages:
        assert set(message.payload.tolist()) == {(message.sender * 50 + message.step) % 251}
    return [message.step for message in messages]


@pytest.mark.parametrize("carried", [True, False])
def test_a_scatter_takes_no_time_and_what_waits_is_superseded(carried):
    def live(rank, queues, transport):
        array = payload(rank, 1)
        before = transport.clock()
        for step in range(1, 5):
            array[:] = payload(rank, step)
            send(queues, [1 - rank], step, array)
        took_s = transport.clock() - before
        array[:] = 255
        at_once = queues.statistics()
        transport.barrier()
        waited = queues.statistics().waited_s
        found = steps_of(queues.receive(lambda: [1 - rank], newest=False))
        return took_s, at_once, waited, found, queues.statistics()

    for took_s, at_once, waited_s, found, end in run(live, carried=carried):
        if carried:
            assert took_s < ROUND_TRIP_S / 4 and at_once.bytes_sent == 0 and waited_s > ROUND_TRIP_S
            assert waited_s < 2 * ROUND_TRIP_S  # payload and header share a round trip
            assert (end.sent, end.bytes_sent) == (4, (4 - end.superseded) * CAPACITY)
            assert end.superseded >= 2 and found[-1] == 4
            assert end.superseded + end.gathered + end.overwritten == 4
            (edge,) = end.peers.values()
            assert edge.superseded == end.superseded and edge.waited_s == pytest.approx(waited_s)
        else:
            assert took_s > 12 * ROUND_TRIP_S and end.superseded == 0 and found == [3, 4]


def test_what_was_sent_before_a_close_still_arrives_and_the_close_takes_no_time():
    def live(rank, queues, transport):
        found = []
        if rank == 0:
            before = transport.clock()
            send(queues, [1], 1, payload(0, 1))
            queues.close()
            assert transport.clock() - before < ROUND_TRIP_S / 4
            assert queues.statistics().bytes_sent == CAPACITY
        while rank == 1 and not queues.inbox.edges[0].done:
            found += steps_of(queues.receive(lambda: [0], newest=False))
            queues.inbox.edges[0].is_seen_at(9, transport.clock)
            transport.pause(9)
        transport.barrier()
        if rank == 1:
            found += steps_of(queues.receive(lambda: [0], newest=False))
            queues.close()
        transport.barrier()
        queues.free()
        return found

    for seed in range(5):
        assert run(live, seed=seed)[1] == [1]


def fails():
    raise ValueError("MPI_ERR_RMA_SYNC")


def test_a_barrier_whose_messages_do_not_leave_as_the_transfer_thread_has_failed_says_so():
    def live(rank, queues, transport):
        if rank == 0:
            send(queues, [1], 1, payload(0, 1))
            transport.carrier.later(fails, [1])
            with pytest.raises(TransferFailed):
                transport.barrier()
        return True

    assert run(live) == [True, True]


def test_an_interrupt_in_a_scatter_comes_out_though_the_transfer_thread_has_failed():
    def live(rank, queues, transport):
        def interrupted(waiting, new):
            transport.carrier._error = ValueError("MPI_ERR_RMA_SYNC")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            queues.send_each([OutgoingMessage(1 - rank, payload(0, 1), None, CAPACITY)], 1, join=interrupted)
        transport.carrier._error = None
        return True

    assert run(live) == [True, True]


def test_a_close_after_the_transfer_thread_has_failed_is_heard_on_this_host():
    def live(rank, queues, transport):
        if rank == 0:
            transport.carrier.later(fails, [2])
            while transport.carrier._error is None:
                transport.pause(9)
            with pytest.raises(TransferFailed):
                send(queues, [1, 2], 1, payload(0, 1))
            queues.close()
        while rank == 1 and not queues.inbox.edges[0].done:
            queues.inbox.edges[0].is_seen_at(9, transport.clock)
            transport.pause(9)
        return True

    assert run(live, "aab") == [True] * 3


def test_a_barrier_that_cannot_let_out_what_waits_names_the_peer():
    def live(rank, queues, transport):
        if rank == 0:
            transport.carrier.calling = None  # a carrier that does nothing any more
            transport.carrier.round = lambda: False
            send(queues, [1], 1, payload(0, 1))
            with pytest.raises(DeadlinePassed, match="end of the epoch: the deadline passed waiting for rank 1"):
                transport.barrier("end of the epoch")
        return True

    assert run(live, deadline_s=0.3) == [True, True]


@pytest.mark.parametrize("first", ["message", "step"])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_barrier_waits_for_what_was_handed_over_before_it_alone(depth, first):
    """A thread that scatters all the time holds nobody in it."""

    def live(rank, queues, transport):
        steps = [1]

        def scatter_on():
            steps.append(steps[-1] + 1)
            send(queues, [1 - rank], steps[-1], payload(rank, steps[-1]))

        send(queues, [1 - rank] if first == "message" else [], 1, payload(rank, 1))
        transport.duties.append(scatter_on)  # as another thread would, at each poll of the wait
        before = transport.clock()
        transport.barrier()
        took_s = transport.clock() - before
        transport.duties.clear()
        return took_s, len(steps), steps_of(queues.receive(lambda: [1 - rank], newest=True))

    for took_s, scatters, found in run(live, depth=depth):
        assert took_s < 8 * ROUND_TRIP_S and scatters > 10
        assert found or first == "step" or depth == 1  # a later message may be on its way into the only slot


@pytest.mark.parametrize("rounds", [0, 1])
def test_what_stands_still_has_a_deadline_though_its_receiver_lives(rounds):
    def live(rank, queues, transport):
        before = transport.clock()
        if rank == 0:
            left = [transport.carrier.round] * rounds
            transport.carrier.round = lambda: bool(left) and left.pop()()
            for step in (1, 2):
                queues.send_each([OutgoingMessage(1, payload(0, step), None, CAPACITY)], step, join=keep_all)
            with pytest.raises(DeadlinePassed):
                transport.barrier()
            return transport.clock() - before
        while transport.clock() - before < 1.5:
            transport.heartbeat()
            transport.pause(9)
        return None

    assert 0.3 < run(live, deadline_s=0.3)[0] < 0.6


def test_time_in_which_the_job_was_suspended_is_not_that_of_a_link_that_stands_still():
    def live(rank, queues, transport):
        if rank == 0:
            round_, polls = transport.carrier.round, []

            def poll():
                polls.append(1)
                if len(polls) == 100:
                    transport._group._schedule.now += 100.0
                if len(polls) == 110:
                    transport.carrier.round = round_

            transport.longest_poll_s, transport.carrier.round = 0.05, lambda: False
            send(queues, [1], 1, payload(0, 1))
            transport.duties.append(poll)
        transport.barrier()
        return steps_of(queues.receive(lambda: [1 - rank], newest=False))

    assert run(live, deadline_s=2.0)[1] == [1]


def test_a_wait_ends_with_its_patience_and_what_waits_is_joined_again():
    def live(rank, queues, transport):
        if rank == 0:
            round_ = transport.carrier.round
            transport.carrier.round = lambda: False
            send(queues, [1], 1, payload(0, 1))
            before = transport.clock()
            with pytest.raises(DeadlinePassed, match="the epoch: the deadline passed waiting for rank 1 "):
                transport.barrier("the epoch", patience_s=0.2)
            assert 0.2 < transport.clock() - before < 0.4
            send(queues, [1], 2, payload(0, 2))
            assert queues.statistics().superseded == 1
            transport.carrier.round = round_
        transport.barrier("the epoch")
        return steps_of(queues.receive(lambda: [1 - rank], newest=False))

    assert run(live)[1] == [2]


def test_a_long_wait_goes_on_while_messages_arrive_and_others_hear_of_it():
    """Both ranks wait for longer than the deadline: one until its messages have arrived, one for that rank."""

    def live(rank, queues, transport):
        others = Queues(transport, complete(2), parse("ssp:0"), 0.2)
        before = transport.clock()
        if rank == 0:
            for step in range(1, 24):
                queues.send_each([OutgoingMessage(1, payload(0, step), None, CAPACITY)], step, join=keep_all)
            transport.carrier.drain("the epoch")
            assert transport.clock() - before > 3 * 0.2
        send(others, [1 - rank], 1, payload(rank, 1))
        steps_of(others.receive(lambda: [1 - rank], newest=True))
        return transport.clock() - before

    assert run(live, deadline_s=0.2)[1] > 3 * 0.2


def one_sender(depth=2):
    """The sending end of a rank with one peer, and its rounds, which the test makes."""
    end = OneEnd(0, RecordingWindow(layout(depth).window_nbytes(0), cut_headers=False))
    end.carrier = Rounds(end, 1.0)
    queues = Queues(end, layout(depth), ASP, 1.0)

    def scatter(step, join):
        return queues.send_each([OutgoingMessage(1, np.full(16, step, np.uint8), None, 16)], step, join=join)

    return queues, end.carrier, scatter


def test_what_leaves_while_it_is_joined_stays_a_message_of_its_own():
    queues, rounds, scatter = one_sender()
    joined = []

    def slow(waiting, new):
        joined.append(([one.step for one in waiting], new.rest))
        if waiting:
            assert rounds.round()
        return [new._replace(rest=f"that of {new.step} and {len(waiting)}")]

    scatter(1, slow)
    scatter(2, slow)
    assert joined == [([], None), ([1], "that of 1 and 0"), ([], "that of 1 and 0")]
    assert queues.outbox.outgoing.tracks[1].rest == "that of 2 and 0"
    assert queues.statistics().superseded == 0 and queues.statistics().sent == 2
    while rounds.round():
        pass
    assert queues.outbox.edges[1].ring.sent == 2


@pytest.mark.parametrize("left", [0, 1])
def test_a_join_that_fails_leaves_what_waits_and_the_transfer_thread_is_woken(left):
    """As a signal handler does that raises within a scatter."""
    queues, rounds, scatter = one_sender()
    woken = []
    rounds.wake = lambda: woken.append(1)

    def fails(waiting, new):
        raise KeyboardInterrupt

    scatter(1, supersede)
    for _ in range(left):
        rounds.round()
    before = queues.statistics(), len(woken)
    with pytest.raises(KeyboardInterrupt):
        scatter(2, fails)
    assert (queues.statistics(), len(woken) - 1) == before
    scatter(3, supersede)
    while rounds.round():
        pass
    assert queues.outbox.edges[1].ring.sent == 1 + left and queues.statistics().superseded == 1 - left
    rounds.drain("scatter")


def test_what_waits_for_a_former_incarnation_is_dropped():
    """The edge begins anew, and a wait for what was dropped ends."""
    queues, rounds, scatter = one_sender()
    outgoing, track, base = queues.outbox.outgoing, queues.outbox.outgoing.tracks[1], 1 << 40
    scatter(1, keep_all)
    assert rounds.round()
    scatter(2, keep_all)
    outgoing.tell([1], 2)
    due = track.due
    scatter(3, keep_all)
    queues.renew(1, base)
    assert not track.lacks(due) and not rounds.round()
    assert queues.statistics().sent == 3 and queues.outbox.sent(1)[:2] == (0, 0)
    scatter(4, supersede)
    assert rounds.round() and not rounds.round()
    edge = queues.statistics().peers[1]
    assert (edge.sent, edge.superseded, edge.bytes_sent) == (1, 0, 16) and queues.outbox.sent(1)[:2] == (1, 16)
    assert queues.outbox.edges[1].ring.sent == base + 1 and queues.statistics().sent == 4


def told_of(queues):
    """The track of the only peer, and what progress headers say to it from now on."""
    track, told = queues.outbox.outgoing.tracks[1], []
    track.edge.progress = lambda number, step, state: told.append((number, step, state))
    return track, told


def test_a_wait_for_a_step_ends_with_a_later_one_in_its_place():
    queues, rounds, _ = one_sender()
    outgoing, (track, told) = queues.outbox.outgoing, told_of(queues)
    outgoing.tell([1], 1)
    due = track.due
    outgoing.tell([1], 2)
    assert track.lacks(due)
    assert rounds.round() and told == [(0, 2, WHOLE)] and not track.lacks(due)
    assert not rounds.round()


def test_a_step_is_told_once_its_flush_has_ended():
    """Also where a later one is equal, or it was put before the wait began."""
    queues, _, _ = one_sender()
    outgoing, (track, told) = queues.outbox.outgoing, told_of(queues)
    outgoing.tell([1], 1)
    before = track.due
    assert outgoing.start() and told == [(0, 1, WHOLE)]
    meanwhile = track.due
    assert track.lacks(before) and track.lacks(meanwhile)
    outgoing.tell([1], 1)
    later = track.due
    outgoing.flush()
    outgoing.finish()
    assert not track.lacks(before) and not track.lacks(meanwhile) and track.lacks(later)


@pytest.mark.parametrize("state", [WHOLE, DONE])
def test_a_message_tells_its_step_itself_and_not_that_its_sender_has_closed(state):
    queues, rounds, scatter = one_sender()
    outgoing, (_, told) = queues.outbox.outgoing, told_of(queues)
    outgoing.tell([1], 1, state)
    scatter(2, supersede)
    while rounds.round():
        pass
    assert told == ([(1, 1, DONE)] if state == DONE else [])


def test_a_wait_counts_the_message_that_is_leaving():
    queues, rounds, scatter = one_sender()
    outgoing = queues.outbox.outgoing
    track = outgoing.tracks[1]
    scatter(1, keep_all)
    assert outgoing.start() and track.leaving is not None
    scatter(2, keep_all)
    due = track.due
    scatter(3, keep_all)
    assert track.lacks(due)
    outgoing.flush()
    outgoing.finish()
    while track.lacks(due):
        assert rounds.round()
    assert track.edge.ring.sent == 2


def test_a_wait_ends_however_much_comes_meanwhile():
    """And not before what takes the place of what waited has arrived."""
    queues, rounds, scatter = one_sender()
    outgoing, track = queues.outbox.outgoing, queues.outbox.outgoing.tracks[1]
    for join, wanted in ((keep_all, 3), (supersede, 1)):
        scatter(1, keep_all)
        scatter(2, keep_all)
        outgoing.tell([1], 3)
        due, left = track.due, 0
        while track.lacks(due):
            scatter(4, join)
            assert rounds.round()
            left += 1
        assert left == wanted
        while rounds.round():
            pass
        scatter(1, keep_all)
        due = track.due
        scatter(2, join)
        assert track.lacks(due) and rounds.round() and not track.lacks(due)
        while rounds.round():
            pass


def receiver_of(plan, depth):
    """A receiver, what arrives of the messages of `plan`, stage by stage, and its gathers, as steps."""
    schedule = Schedule([])
    schedule.closed = True
    window = ReplayedWindow(layout(depth).window_nbytes(1), [], schedule)
    queues = Queues(OneEnd(1, window), layout(depth), ASP, 1.0)

    def arrive(pieces):
        window._pieces[:] = pieces
        window.finish()

    def gather(newest=False):
        return [message.step for message in queues.receive(lambda: [0], newest=newest)]

    return queues, carried_stages(plan, depth, keep_all), arrive, gather


@pytest.mark.parametrize("newest", [False, True])
def test_a_message_whose_header_comes_first_is_gathered_once_it_is_whole(newest):
    queues, [stage], arrive, gather = receiver_of("s", 2)
    edge = queues.inbox.edges[0]
    for piece in reversed(stage):
        assert gather(newest) == [] and not edge.is_seen_at(1, lambda: 0.0)
        assert not queues.look(lambda: [0])  # no view of it is handed out
        arrive([piece])
    assert queues.look(lambda: [0]) is None
    assert edge.is_seen_at(1, lambda: 0.0) and gather(newest) == [1]
    assert queues.statistics().gathered == 1
    assert queues.statistics().torn_retries == 2  # a gather copies once what has not come


@pytest.mark.parametrize("newest", [False, True])
def test_a_whole_copy_counts_though_its_slot_is_overwritten_meanwhile(newest, monkeypatch):
    _, (first, second), arrive, gather = receiver_of("ss", 1)
    arrive(first)
    check = header.payload_check

    def overwritten_then(payload):
        arrive(second)
        return check(payload)

    monkeypatch.setattr(header, "payload_check", overwritten_then)
    assert gather(newest)[0] == 1
    monkeypatch.undo()
    assert gather(newest) in ([2], [])


def test_a_message_of_a_wrong_length_holds_up_no_step():
    queues, _, arrive, gather = receiver_of("s", 2)
    edge, wrong = queues.inbox.edges[0], np.zeros(header.NBYTES, np.uint8)
    header.write(wrong.data, 0, 1, 1, header.checked(7), 0, edge.ring.capacity + 1)
    arrive([(edge.slots[0], wrong.tobytes())])
    assert edge.is_seen_at(1, lambda: 0.0) and gather() == [] and queues.statistics().refused == 1


def test_the_newest_whole_message_is_gathered_while_a_newer_one_comes():
    _, (first, second), arrive, gather = receiver_of("ss", 2)
    arrive([*first, second[-1]])
    assert gather(newest=True) == [1]
    arrive(second)
    assert gather(newest=True) == [2]


def test_what_lies_behind_a_message_that_is_being_overwritten_is_gathered_at_once():
    queues, (first, second, third), arrive, gather = receiver_of("sss", 2)
    arrive([*first, *second, third[0]])
    assert gather() == [2] and queues.statistics().overwritten == 1
    arrive(third)
    assert gather() == [3] and queues.statistics().overwritten == 1


def test_half_a_header_over_a_message_holds_up_none_that_is_whole():
    """The rest of it may take as long as the network likes."""
    queues, (first, second, third), arrive, gather = receiver_of("sss", 2)
    *_, (place, words) = third
    arrive([*first, *second, (place, words[:12])])
    assert gather() == [2] and queues.statistics().overwritten == 1
    assert gather() == []
    arrive(third)
    assert gather() == [3] and queues.statistics().overwritten == 1


def test_half_a_header_of_the_first_message_in_a_slot_is_waited_for():
    queues, (first, second), arrive, gather = receiver_of("ss", 2)
    *_, (place, words) = first
    arrive([(place, words[:12])])
    assert gather() == []
    arrive([*first, *second])
    assert gather() == [1, 2] and queues.statistics().overwritten == 0


def header_first(stages):
    """The order of arrival in which most is to be told apart: each stage from its end, its header first."""
    yield [piece for stage in stages for piece in reversed(stage)]


SCENARIOS = [
    dict(messages=2, depth=1, plan="ss"),
    dict(messages=2, depth=1, plan="srssr", joins=supersede),
    dict(messages=2, depth=2, plan="ssrsr", joins=supersede),
    dict(messages=3, depth=2, plan="sss"),  # the third is written over the first
    dict(messages=2, depth=1, plan="ss", ordered=True),
    dict(messages=2, depth=2, plan="srs", cut_headers=True, orders=header_first),
]


TELLING = SCENARIOS[2]
"""Some schedule of it catches each of the mutants."""


def played(scenario, newest):
    orders = {} if scenario["messages"] < 3 else {"orders": header_first}
    return explore(**{**orders, **scenario}, newest=newest)


@pytest.fixture
def few_retries(monkeypatch):
    """Each retry multiplies the schedules."""
    monkeypatch.setattr(receiving, "_TORN_RETRIES", 2)


def name_of(scenario, newest):
    way = "in-order-" if scenario.get("ordered") else "cut-" if scenario.get("cut_headers") else ""
    return f"{scenario['plan']}-{scenario['depth']}-{way}{'newest' if newest else 'all'}"


CASES = [
    pytest.param(scenario, newest, id=name_of(scenario, newest),
                 marks=[pytest.mark.thorough] * (not newest and (scenario["messages"] > 2 or "orders" in scenario)))
    for scenario, newest in product(SCENARIOS, (True, False))
]  # fmt: skip


@pytest.mark.parametrize(("scenario", "newest"), CASES)
def test_every_schedule_keeps_the_promises(scenario, newest, few_retries):
    assert played(scenario, newest) > 100


def payload_unchecked(monkeypatch):
    """A copy passes for whole where its header was there before and after."""
    plant(monkeypatch, receiving.Inbox, "_settled_payload", ("header.payload_check(copy) == seen.check", "True"))


def half_unchecked(monkeypatch):
    plant(monkeypatch, header, "payload_check", ("payload.data,", "payload[:8].data,"))


def lost_as_it_comes(monkeypatch):
    """What is not whole passes for overwritten where a newer message is there, though it may have come meanwhile."""
    plant(monkeypatch, receiving.Inbox, "_take_all", ("if had_come:", "if edge.holds_newer(seen.number):"))


def payload_of_the_caller(monkeypatch):
    """The buffer holds the caller's array, which it goes on changing."""
    plant(monkeypatch, Outgoing, "send", ("copies[key])", "message.body)"))


def writes_into_the_last_slot(monkeypatch):
    plant(monkeypatch, Outgoing, "_put", ("edge.ring.next_slot", "0"))


MUTANTS = [
    payload_unchecked, half_unchecked, lost_as_it_comes, payload_of_the_caller, writes_into_the_last_slot,
]  # fmt: skip


def test_a_message_that_became_whole_is_not_taken_for_one_that_is_rewritten(monkeypatch, few_retries):
    plant(monkeypatch, receiving.Inbox, "_is_rewritten", (" and edge.headers[slot].read() is None", ""))
    with pytest.raises(Violation):
        explore(messages=2, depth=2, plan="srs", cut_headers=True, orders=header_first, newest=False)


def test_where_puts_keep_order_the_slot_is_marked_before_it_is_written_to(monkeypatch, few_retries):
    plant(monkeypatch, Outgoing, "_put", ("if self._marks:", "if False:"))
    with pytest.raises(Violation):
        explore(messages=2, depth=1, plan="ss", ordered=True, newest=False)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.__name__)
def test_some_schedule_catches(mutant, monkeypatch, few_retries):
    mutant(monkeypatch)
    with pytest.raises((Violation, AssertionError)):
        played(TELLING, newest=False)
