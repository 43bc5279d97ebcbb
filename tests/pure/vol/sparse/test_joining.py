"""What has not begun to leave for another host when the next message comes is superseded, or joined with that."""

import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from carried import ROUND_TRIP_S, run_carried
from lines import before_lines

import vol
from dstorm import parse
from dstorm.queues.sending.edge import OutEdge, OutgoingMessage
from dstorm.queues.sending.outgoing import Outgoing
from dstorm.queues.sending.unsent import Unsent
from malt.watch.trace.vectors import TracedDense
from vol.dense import DenseVector
from vol.merging.merge import AVG, MEAN, PUSH_SUM, REPLACE, SUM, WEIGHTED
from vol.sparse.joining import largest_join, row_join
from vol.sparse.vector import SparseVector
from vol.sparse.wire import RowFormat, RowValues, decode, encode_rows

N = 12


def run(live, hosts="ab", seed=0, kind=DenseVector, shape=(N,), dtype=np.float64, **options):
    """live(rank, vector, transport) on all ranks; results by rank."""

    def start(transport):
        array = np.zeros(shape, dtype)
        made = kind(array, transport, vol.graph("all", len(hosts)), parse("asp"), **{"depth": 4, **options})
        return live(transport.rank, made, transport)

    return run_carried(start, hosts, seed)


def settled(v, transport, function):
    """All that was scattered is merged; what became of this rank's messages."""
    transport.barrier()
    v.gather(function)
    transport.barrier()
    return v.statistics()


def exchanged(v, transport, changes, polls, function=SUM):
    """Scatter one of `changes` after the other; the sum of what arrives, and what became of this rank's messages."""
    v.gather(function)
    got = np.zeros_like(v.array)
    for change in changes:
        v.array[:] = change
        v.scatter()
        v.array[:] = 0
        v.gather(function)
        got += v.array
        transport.pause(polls)
    v.array[:] = 0
    counts = settled(v, transport, function)
    return got + v.array, counts


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("dtype", "function", "kind"),
    [(np.float64, SUM, DenseVector), (np.float16, SUM, DenseVector), (np.int32, SUM, DenseVector),
     (np.float64, MEAN, DenseVector), (np.float64, MEAN, SparseVector)],
)  # fmt: skip
def test_changes_are_added_up(dtype, function, kind, seed):
    def live(rank, v, transport):
        return exchanged(v, transport, [step * (1 + rank) for step in range(1, 13)], 9, function)

    (first, counts), (second, _) = run(live, dtype=dtype, seed=seed, kind=kind)
    total = 78 if function is SUM else 39  # half of it, as two ranks count
    assert (first == 2 * total).all() and (second == total).all()
    assert counts.superseded > 0


@pytest.mark.parametrize("seed", range(3))
def test_no_mass_is_lost(seed):
    def live(rank, v, transport):
        v.gather(PUSH_SUM)
        v.array[:] = 10.0 * rank
        transport.barrier()
        for _ in range(6):
            v.scatter()
            v.gather(PUSH_SUM)
            transport.pause(11)
        counts = settled(v, transport, PUSH_SUM)
        return v._mass, v._mass * v.array[0], counts

    ends = run(live, "aab", seed=seed, depth=8)
    assert sum(mass for mass, _, _ in ends) == pytest.approx(3.0)
    assert sum(value for _, value, _ in ends) == pytest.approx(30.0)
    assert sum(counts.superseded for _, _, counts in ends) > 0
    assert sum(counts.overwritten for _, _, counts in ends) == 0


def test_of_what_a_users_function_merges_as_many_wait_as_a_queue_holds():
    def live(rank, v, transport):
        seen = []
        for step in range(1, 9):
            v.array[:] = step
            v.scatter()
        transport.barrier()
        v.gather(lambda own, updates: seen.extend(int(one.values[0]) for one in updates))
        return seen, v.statistics()

    for seen, counts in run(live):
        assert seen == [5, 6, 7, 8] and counts.superseded == 4


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("capacity", [None, 5])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("function", [AVG, REPLACE], ids=repr)
def test_no_row_is_lost(function, capacity, named, seed):
    def live(rank, v, transport):
        v.gather(function)
        for step in range(1, 9):
            rows = [(step * 3 + place) % N for place in range(4)]
            v.array[rows] = 100 * rank + step
            v.scatter(rows=rows if named else None)
            transport.pause(9)
        mine = v.array.copy()
        return mine, settled(v, transport, REPLACE), v.array

    (first, counts, got), (second, _, its) = run(live, kind=SparseVector, capacity=capacity, seed=seed, depth=8)
    assert (got == second).all() and (its == first).all()
    assert counts.superseded > 0 and counts.overwritten == 0


@pytest.mark.parametrize("wire", [None, "int8"])
@pytest.mark.parametrize("depth", [1, 4])
def test_a_row_that_goes_along_with_newer_ones_keeps_its_step(depth, wire):
    """Rank 1, on another host, sends row 5 at step 3 and row 9 at step 8, in one message; rank 2 row 5 at step 6."""

    def live(rank, v, transport):
        seen = []

        def newest(own, updates):
            for one in sorted(updates, key=lambda one: one.step):
                own[one.rows] = one.values
            seen.extend((one.sender, one.step, one.lag, one.rows.tolist()) for one in updates)

        function = newest if depth == 1 else REPLACE  # of messages for a user's as many wait as a queue holds
        v.gather(function)
        transport.barrier()
        for step in range(1, 9):
            rows = {(1, 2): [0, 1], (1, 3): [1, 5], (1, 8): [9], (2, 6): [5]}.get((rank, step), [])
            v.array[rows] = 10 * step + rank
            v.scatter(rows=rows)
        transport.barrier()
        v.gather(function)
        return v.array.round(3), seen, v.statistics().peers.get(1)

    array, seen, edge = run(live, "aba", kind=SparseVector, wire=wire, depth=depth)[0]
    assert array[[0, 1, 5, 9]].tolist() == [21, 31, 62, 81] and edge.gathered == 1
    if depth == 1:
        assert seen == [(1, 2, 6, [0]), (1, 3, 5, [1, 5]), (1, 8, 0, [9]), (2, 6, 2, [5])]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("capacity", "wire"), [(None, None), (5, None), (5, "float16")])
def test_rows_of_changes_are_added_up(capacity, wire, seed):
    def live(rank, v, transport):
        v.gather(SUM)
        given = np.zeros((N, 2))
        for step in range(1, 9):
            rows = [(step * 3 + place) % N for place in range(4)]
            v.array[:] = 0
            v.array[rows] = step
            given += v.array
            v.scatter(rows=rows)
        v.array[:] = 0
        counts = settled(v, transport, SUM)
        return given, v.array, counts

    options = dict(kind=SparseVector, shape=(N, 2), capacity=capacity, track=False, wire=wire, seed=seed, depth=8)
    for given, got, counts in run(live, **options):
        np.testing.assert_array_equal(got, given)
        assert counts.superseded > 0 and counts.overwritten == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("wire", [None, "int8"])
def test_what_top_k_has_sent_and_has_not_left_goes_back(wire, seed):
    def live(rank, v, transport):
        changes = np.random.default_rng(rank).normal(size=(20, N, 2))
        got, counts = exchanged(v, transport, changes, 10)
        tracks = v._queues.outbox.outgoing.tracks.values()
        left = sum(one.values for one in [*v._residuals.values(), *(track.rest for track in tracks)] if one is not None)
        return changes.sum(axis=0) - left, got, counts

    options = dict(kind=SparseVector, shape=(N, 2), top_k=3, wire=wire, seed=seed, depth=8)
    (first, from_second, counts), (second, from_first, _) = run(live, **options)
    np.testing.assert_allclose(from_first, first, atol=1e-9)
    np.testing.assert_allclose(from_second, second, atol=1e-9)
    assert counts.superseded > 0


def waits(form, step, rows, value, weight=1.0):
    """A message of these rows, which has not begun to leave."""
    values = np.full((len(rows), form.width), value, np.float32)
    encoding, payload = encode_rows(form, RowValues(np.array(rows), values))
    return Unsent(step, encoding, weight, 0.5, payload)


def contents(form, waiting):
    """The contents of the messages, none of which is larger than a slot."""
    found = [decode(form, one.encoding, one.payload) for one in waiting]
    assert all(len(one.rows) <= form.capacity for one in found)
    assert all(one.payload.nbytes <= form.slot_nbytes for one in waiting)
    return found


@pytest.mark.parametrize("capacity", [3, 12])
@pytest.mark.parametrize("scaled", [False, True])
def test_rows_of_other_weights_stay_apart_and_newer_rows_win(capacity, scaled):
    form = RowFormat(N, 2, np.dtype(np.int8 if scaled else np.float32), capacity, scaled)

    def shown(waiting):
        values = [one.part(0, len(one.rows))[:, 0].round(3).tolist() for one in contents(form, waiting)]
        rows = [one.rows.tolist() for one in contents(form, waiting)]
        return list(zip([one.step for one in waiting], [one.weight for one in waiting], rows, values, strict=True))

    join = row_join(form, adds=False)
    waiting = join(join([], waits(form, 1, [0, 1, 2], 1)), waits(form, 2, [1, 5], 2, 9.0))
    assert shown(waiting) == [(1, 1.0, [0, 2], [1, 1]), (2, 9.0, [1, 5], [2, 2])]
    waiting = join(waiting, waits(form, 3, [2, 5], 3, 9.0))
    both = [1, 2, 5]
    assert shown(waiting) == [(1, 1.0, [0], [1]), (3, 9.0, both, [2, 3, 3])]
    assert shown(join(waiting, waits(form, 4, both, 4)))[-1][2:] in (([0, *both], [1, 4, 4, 4]), (both, [4, 4, 4]))


def test_ages_of_rows_are_dropped_where_another_function_merges_from_now_on():
    """A whole array has no room for them."""
    form = RowFormat(N, 1, np.dtype(np.float32), N)
    waiting = row_join(form, adds=False, dates=True)([waits(form, 1, [0, 1], 1)], waits(form, 3, [2, 3], 1))
    assert [one.ages.tolist() for one in contents(form, waiting)] == [[2, 2, 0, 0]]
    for adds in (False, True):
        [content] = contents(form, row_join(form, adds)(waiting, waits(form, 4, [3, *range(4, N)], 1)))
        assert len(content.rows) == N and content.ages is None


def test_rows_that_several_waiting_messages_share_are_added_where_there_is_room():
    form = RowFormat(N, 1, np.dtype(np.float16), 3, scaled=False)
    unknown, adding = (row_join(form, **how) for how in (dict(adds=False, keeps=3), dict(adds=True)))
    waiting = unknown([waits(form, 1, [0, 1, 2], 1)], waits(form, 2, [2, 3, 4], 40_000))
    waiting = unknown(waiting, waits(form, 3, [2, 3], 40_000))
    heard = np.zeros(N)
    for one in contents(form, adding(waiting, waits(form, 4, [5, 6, 7], 2048))):
        heard[one.rows] += one.part(0, len(one.rows))[:, 0]
    most = float(np.finfo(np.float16).max)  # 80,000 is beyond the wire
    assert heard.tolist() == [1, 1, most, most, 40_000, 2048, 2048, 2048, 0, 0, 0, 0]


def test_a_weighted_mean_takes_the_newest_weight():
    def live(rank, v, transport):
        v.gather(WEIGHTED)
        for step in range(1, 5):
            v.array[:] = step
            v.scatter(weight=float(step))
        v.array[:] = 0
        before = transport.clock()
        v.gather(WEIGHTED)
        assert transport.clock() - before < ROUND_TRIP_S
        transport.barrier()
        v.gather(WEIGHTED)
        return v.array[0]

    assert run(live) == [2.0, 2.0]


def test_a_trace_has_each_message_that_has_left_once():
    class Notes:
        def __init__(self):
            self.sent_to, self.totals = [], None

        def name(self, text):
            return 0

        def sent(self, name, step, start, end, messages):
            self.sent_to += [nbytes for _, nbytes in messages]

        def settle(self, totals):
            self.totals = totals

        def __getattr__(self, name):
            return lambda *_: None

    def start(transport):
        transport.trace = Notes()
        v = TracedDense(np.zeros(N), transport, vol.graph("all", 2), parse("asp"))
        v.gather(AVG)
        for _ in range(40):
            v.scatter()
            transport.pause(18)
        v.close()
        (totals,) = transport.trace.totals.values()
        counts = v.statistics()
        transport.barrier()
        assert len(transport.trace.sent_to) + totals.messages == counts.sent - counts.superseded
        assert sum(transport.trace.sent_to) + totals.nbytes == counts.bytes_sent
        return counts.superseded, len(transport.trace.sent_to)

    assert all(superseded and sent for superseded, sent in run_carried(start))


class Signal(BaseException):
    """What a signal handler raises."""


JOINING = ("sending/outgoing.py", "sparse/joining.py", "sparse/error_feedback.py", "sparse/rows.py", "sparse/wire.py")


def test_a_signal_at_any_line_of_a_join_loses_no_increments_and_doubles_none():
    form = RowFormat(N, 2, np.dtype(np.float32), 3, scaled=False)
    draw, endings = np.random.default_rng(0), []
    woken = []
    carrier = SimpleNamespace(add=lambda load: None, check=lambda: None, wake=lambda: woken.append(1))

    def message():
        # Where increments cancel out, rows leave that no message of the join has.
        rows = np.sort(draw.choice(N, 3, replace=False))
        values = draw.integers(-9, 10, (3, 2)).astype(np.float32)
        encoding, payload = encode_rows(form, RowValues(rows, values))
        whole = np.zeros((N, 2))
        whole[rows] = values
        return OutgoingMessage(1, payload, None, payload.nbytes, encoding), whole

    def inside(track):
        whole = np.zeros((N, 2)) if track.rest is None else track.rest.values.copy()
        for one in track.inside:
            content = decode(form, one.encoding, one.payload)
            whole[content.rows] += content.part(0, len(content.rows))
        return whole

    line, asleep, is_over = 0, 0, False
    window = SimpleNamespace(keeps_order=False)
    while not is_over:
        edge = SimpleNamespace(peer=1, ring=SimpleNamespace(sent=0, count=0), bytes_sent=0, message=None)
        outgoing, join = Outgoing(window, {1: edge}, carrier, None), largest_join(form, np.dtype(np.float64))
        given = np.zeros((N, 2))
        for _ in range(3):
            edge.message, values = message()
            outgoing.send([edge], 1, 1.0, 1.0, join)
            given += values
        edge.message, values = message()
        woken.clear()

        def interrupt(now, line=line):
            if now == line:
                raise Signal

        try:
            before_lines(interrupt, partial(outgoing.send, [edge], 2, 1.0, 1.0, join), JOINING)
            is_over = True
        except Signal:
            pass
        track = outgoing.tracks[1]
        is_in = track.superseded == 3
        assert track.superseded in (2, 3) and len(track.inside) == 1
        np.testing.assert_array_equal(inside(track), given + values if is_in else given)
        asleep += not woken
        endings.append(is_in)
        line += 1
    assert endings.count(False) > 50 and endings.count(True) > 2
    assert asleep <= 4  # before the scatter has begun, and in the line that wakes: a collective call does it then


def test_a_users_function_need_not_be_hashable():
    class Merge:
        __hash__ = None

        def __call__(self, own, updates):
            own += sum(one.values for one in updates)

    def live(rank, v, transport):
        for _ in range(2):
            v.gather(Merge())
            v.array[rank] = 1
            v.scatter()
            transport.barrier()
        v.gather(Merge())
        return v.array[1 - rank]

    assert run(live, kind=SparseVector) == [2.0, 2.0]


def test_a_trace_reads_counts_of_one_moment():
    """The transfer thread counts a message while a scatter notes what has left."""

    class Edge(OutEdge):
        @property
        def bytes_sent(self):
            if counting:
                thread = threading.Thread(target=counting.pop())
                thread.start()
                thread.join(0.2)
            return self.nbytes

        @bytes_sent.setter
        def bytes_sent(self, nbytes):
            self.nbytes = nbytes

    def start(transport):
        transport.trace = SimpleNamespace(name=lambda text: 0)
        v = TracedDense(np.zeros(N), transport, vol.graph("all", 2), parse("asp"))
        outgoing = v._queues.outbox.outgoing
        (track,) = outgoing.tracks.values()
        track.edge.__class__ = Edge
        nbytes = track.edge.nbytes = v.array.nbytes
        track.edge.ring.sent = 1

        def count():
            with outgoing._lock:
                track.edge.ring.sent += 1
                track.edge.nbytes += nbytes

        counting.append(count)
        return v._messages_of() == [(1 - transport.rank, nbytes)]

    counting = []
    assert run_carried(start, "ab")[0]
