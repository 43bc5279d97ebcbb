"""Messages to other hosts leave while their sender goes on: none is torn, and none is lost that is not superseded."""

import numpy as np
import pytest
from carried import ROUND_TRIP_S
from mutation import plant
from queued import CAPACITY, gathered, payload, run
from schedules import (
    OneEnd,
    RecordingWindow,
    ReplayedWindow,
    Schedule,
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


def test_a_scatter_and_a_close_take_no_time_and_what_waits_is_superseded():
    def live(rank, queues, transport):
        array = payload(rank, 1)
        before = transport.clock()
        for step in range(1, 5):
            array[:] = payload(rank, step)
            send(queues, [1 - rank], step, array)
        took_s = transport.clock() - before
        array[:] = 255
        assert took_s < ROUND_TRIP_S / 4 and queues.statistics().bytes_sent == 0
        transport.barrier()
        waited_s = queues.statistics().waited_s
        assert ROUND_TRIP_S < waited_s < 2 * ROUND_TRIP_S  # payload and header share a round trip
        assert gathered(queues, [1 - rank])[-1] == (1 - rank, 4)
        end = queues.statistics()
        (edge,) = end.peers.values()
        assert (end.sent, end.bytes_sent) == (4, (4 - end.superseded) * CAPACITY)
        assert end.superseded >= 2 and end.superseded + end.gathered + end.overwritten == 4
        assert edge.superseded == end.superseded and edge.waited_s == pytest.approx(waited_s)
        before = transport.clock()
        send(queues, [1 - rank], 5, array)
        queues.close()
        assert transport.clock() - before < ROUND_TRIP_S / 4
        assert queues.statistics().bytes_sent == end.bytes_sent + CAPACITY

    run(live)


def fails():
    raise ValueError("MPI_ERR_RMA_SYNC")


def test_a_barrier_whose_messages_do_not_leave_as_the_transfer_thread_has_failed_says_so():
    def live(rank, queues, transport):
        if rank == 0:
            send(queues, [1], 1, payload(0, 1))
            transport.carrier.later(fails, [1])
            with pytest.raises(TransferFailed):
                transport.barrier()

    run(live)


def test_an_interrupt_in_a_scatter_comes_out_though_the_transfer_thread_has_failed():
    def live(rank, queues, transport):
        def interrupted(waiting, new):
            transport.carrier._error = ValueError("MPI_ERR_RMA_SYNC")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            queues.send_each([OutgoingMessage(1 - rank, payload(0, 1), None, CAPACITY)], 1, join=interrupted)
        transport.carrier._error = None

    run(live)


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

    run(live, "aab")


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
        return took_s, len(steps), gathered(queues, [1 - rank], newest=True)

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
        return gathered(queues, [1 - rank])

    assert run(live, deadline_s=2.0)[1] == [(0, 1)]


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
        return gathered(queues, [1 - rank])

    assert run(live)[1] == [(0, 2)]


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
        gathered(others, [1 - rank], newest=True)
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


WAITS = [
    ("twt", "", 1),  # a later step in its place
    ("tw(t)", "", 0), ("t(wt)", "", 0), ("t(tw)", "", 1),  # a step is told when its flush has ended
    ("kw(k)", "", 0), ("k(wk)", "", 0), ("k(kwk)", "", 1),  # the message that is leaving counts
    ("kwx", "", 1), ("kktw", "k", 3), ("kktw", "x", 1),  # however much comes meanwhile
]  # fmt: skip
"""What is done, what comes before each round of the wait, and how many rounds that has.

k, x, t: a scatter keeps what waits, takes its place, or tells a step alone; w: the wait begins; (, ): the flush does,
and ends.
"""


@pytest.mark.parametrize(("acts", "meanwhile", "wanted"), WAITS)
def test_a_wait_ends_once_all_that_was_there_has_arrived(acts, meanwhile, wanted):
    """Or what has taken its place."""
    queues, rounds, scatter = one_sender()
    outgoing = queues.outbox.outgoing
    track, due, left = outgoing.tracks[1], 0, 0
    calls = {"k": lambda: scatter(9, keep_all), "x": lambda: scatter(9, supersede),
             "t": lambda: outgoing.tell([1], 9), "(": outgoing.start, ")": outgoing.flush}  # fmt: skip
    for act in acts:
        if act == "w":
            due = track.due
        else:
            calls[act]()
        if act == ")":
            assert track.lacks(due)
            outgoing.finish()
    while track.lacks(due):
        if meanwhile:
            calls[meanwhile]()
        assert rounds.round()
        left += 1
    assert left == wanted


@pytest.mark.parametrize("state", [WHOLE, DONE])
def test_a_message_tells_its_step_itself_and_not_that_its_sender_has_closed(state):
    queues, rounds, scatter = one_sender()
    outgoing, told = queues.outbox.outgoing, []
    outgoing.tracks[1].edge.progress = lambda number, step, state: told.append((number, step, state))
    outgoing.tell([1], 1, state)
    scatter(2, supersede)
    while rounds.round():
        pass
    assert told == ([(1, 1, DONE)] if state == DONE else [])


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


ARRIVALS = {
    "the newest whole message, while a newer one comes": (
        "ss", True, 0,
        [(lambda first, second: [*first, second[-1]], [1]), (lambda *stages: stages[-1], [2])],
    ),
    "what lies behind a message that is being overwritten": (
        "sss", False, 1,
        [(lambda first, second, third: [*first, *second, third[0]], [2]), (lambda *stages: stages[-1], [3])],
    ),
    # The rest of the header may take as long as the network likes.
    "half a header over a message holds up none that is whole": (
        "sss", False, 1,
        [(lambda first, second, third: [*first, *second, half(third)], [2]), (lambda *_: [], []),
         (lambda *stages: stages[-1], [3])],
    ),
    "half a header of the first message in a slot is waited for": (
        "ss", False, 0,
        [(lambda first, _: [half(first)], []), (lambda first, second: [*first, *second], [1, 2])],
    ),
}  # fmt: skip
"""Messages, whether the newest is gathered, how many are overwritten; what arrives of their stages before each gather,
and the steps that it finds."""


def half(stage):
    """The first words of the header."""
    place, words = stage[-1]
    return place, words[:12]


@pytest.mark.parametrize("case", ARRIVALS)
def test_what_is_gathered_while_messages_arrive(case):
    plan, newest, overwritten, turns = ARRIVALS[case]
    queues, stages, arrive, gather = receiver_of(plan, 2)
    for pieces, found in turns:
        arrive(pieces(*stages))
        assert gather(newest) == found
        assert queues.statistics().overwritten == overwritten


def header_first(stages):
    """The order of arrival in which most is to be told apart: each stage from its end, its header first."""
    yield [piece for stage in stages for piece in reversed(stage)]


SCENARIOS = {
    "ss-1": dict(messages=2, depth=1, plan="ss"),
    "srssr-1": dict(messages=2, depth=1, plan="srssr", joins=supersede),
    "ssrsr-2": dict(messages=2, depth=2, plan="ssrsr", joins=supersede, orders=header_first),
    "ssrsr-2-in-any-order": dict(messages=2, depth=2, plan="ssrsr", joins=supersede),
    "sss-2": dict(messages=3, depth=2, plan="sss", orders=header_first),  # the third is written over the first
    "ss-1-in-order": dict(messages=2, depth=1, plan="ss", ordered=True),
    "srs-2-cut": dict(messages=2, depth=2, plan="srs", cut_headers=True, orders=header_first),
}
LONG = ("ssrsr-2-in-any-order", "sss-2", "srs-2-cut")


@pytest.fixture
def few_retries(monkeypatch):
    """Each retry multiplies the schedules."""
    monkeypatch.setattr(receiving, "_TORN_RETRIES", 2)


@pytest.mark.parametrize(("scenario", "newest"), [
    *((one, True) for one in SCENARIOS),
    *(pytest.param(one, False, marks=[pytest.mark.thorough] * (one in LONG)) for one in SCENARIOS),
])  # fmt: skip
def test_every_schedule_keeps_the_promises(scenario, newest, few_retries):
    assert explore(**SCENARIOS[scenario], newest=newest) > 100


TELLING = "ssrsr-2"
MUTANTS = {
    # A copy passes for whole where its header was there before and after.
    "payload_unchecked": (
        TELLING, receiving.Inbox, "_settled_payload", ("header.payload_check(copy) == seen.check", "True"),
    ),
    "half_unchecked": ("ssrsr-2-in-any-order", header, "payload_check", ("payload.data,", "payload[:8].data,")),
    # What is not whole passes for overwritten where a newer message is there, though it may have come meanwhile.
    "lost_as_it_comes": (
        TELLING, receiving.Inbox, "_take_all", ("if had_come:", "if edge.holds_newer(seen.number):"),
    ),
    # The buffer holds the caller's array, which it goes on changing.
    "payload_of_the_caller": (TELLING, Outgoing, "send", ("copies[key])", "message.body)")),
    "writes_into_the_last_slot": (TELLING, Outgoing, "_put", ("edge.ring.next_slot", "0")),
    # A message that became whole meanwhile passes for one that is rewritten.
    "whole_passes_for_rewritten": (
        "srs-2-cut", receiving.Inbox, "_is_rewritten", (" and edge.headers[slot].read() is None", ""),
    ),
    # Also where Puts keep their order the slot must be marked.
    "no_mark": ("ss-1-in-order", Outgoing, "_put", ("if self._marks:", "if False:")),
}  # fmt: skip
"""The schedules of which some catches the mutant; a function, its old and new text."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_some_schedule_catches(mutant, monkeypatch, few_retries):
    scenario, *change = MUTANTS[mutant]
    plant(monkeypatch, *change)
    with pytest.raises(AssertionError):
        explore(**SCENARIOS[scenario], newest=False)
