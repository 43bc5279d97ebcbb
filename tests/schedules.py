"""Every interleaving of one sender and one receiver, with the real Queues on both sides.

The sender runs first, against a window that only records its Puts: under "asp" it never looks at what the receiver
does. The receiver then runs against a memory into which the recorded pieces arrive, some before each of its own
accesses; `explore` plays every choice of how many. Pieces between two flushes arrive in every order that is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise, permutations, product

import numpy as np

from dstorm import Layout, Queues, header
from dstorm.queues.consistency import ASP, NOTIFY_ACK
from dstorm.queues.sending.edge import OutgoingMessage
from dstorm.queues.sending.unsent import Join
from dstorm.transports.mapped import MappedMemory
from dstorm.transports.transfer import Rounds
from dstorm.view import View

CAPACITY = 16
"""Bytes of a payload; all of them hold the number of the message."""

Piece = tuple[int, bytes]


class Violation(AssertionError):
    """The receiver was handed something that no message ever was, or the account does not add up."""


def complete(size: int, depth: int = 2, capacity: int = 40) -> Layout:
    """Queues between all pairs of ranks."""

    def others(rank: int) -> list[int]:
        return [peer for peer in range(size) if peer != rank]

    return Layout(others, others, depth, capacity)


class RecordingWindow:
    """The sender's: notes what each stage (all between two flushes) writes into the receiver's memory."""

    keeps_order = False

    def __init__(self, nbytes: int, cut_headers: bool) -> None:
        self.memory = np.zeros(max(nbytes, 1), np.uint8)
        self.stages: list[list[Piece]] = []
        self._stage: list[Piece] = []
        self._cut_headers = cut_headers

    def put(self, source, peer, offset):
        data, cuts = bytes(source), [12]  # inside a word
        if len(data) == header.NBYTES and not self._cut_headers:
            cuts = []
        elif len(data) > header.NBYTES:  # a compact message: inside its words, its check and its payload
            cuts = [12, 60, header.NBYTES + 6]
        places = [0, *(cut for cut in cuts if cut < len(data)), len(data)]
        self._stage += [(offset + at, data[at:to]) for at, to in pairwise(places) if at < to]

    def prepared(self, source, peer, offset):
        return lambda: self.put(source, peer, offset)

    def prepared_flush(self, peers):
        return lambda: self.flush(peers)

    def linger(self, peers): ...

    def flush(self, peers):
        self.stages.append(self._stage)
        self._stage = []

    def sync(self): ...

    def free(self): ...


class RecordingMemory(MappedMemory):
    """The sender's, where it has mapped the receiver's memory: notes what each stage changes there."""

    def __init__(self, own_nbytes: int, nbytes: int, cut_headers: bool, zeroed: bool) -> None:
        self._image = np.zeros(nbytes, np.uint8)
        super().__init__(0, {0: np.zeros(own_nbytes, np.uint8), 1: self._image}, self._fence)
        self.stages: list[list[Piece]] = []
        self._before = self._image.copy()
        self._cut_headers, self._zeroed = cut_headers, zeroed
        self._headers: set[int] = set()

    def prepared(self, source, peer, offset):
        if source.nbytes == header.NBYTES:
            self._headers.add(offset)
        return super().prepared(source, peer, offset)

    def _fence(self):
        stage: list[Piece] = []
        for line in sorted({place // 64 * 64 for place in np.flatnonzero(self._image != self._before).tolist()}):
            cuts = (0, 64) if line in self._headers and not self._cut_headers else (0, 12, 64)  # inside a word
            stage += [(line + at, self._image[line + at : line + to].tobytes()) for at, to in pairwise(cuts)]
        if self._zeroed:
            self.stages.append([(line, bytes(header.NBYTES)) for line, _ in stage if line in self._headers])
        self.stages.append(stage)
        self._before[:] = self._image

    def free(self): ...


class ReplayedWindow:
    """The receiver's: before each access as many of the sender's pieces arrive as the schedule says."""

    keeps_order = False

    def __init__(self, nbytes: int, pieces: Sequence[Piece], schedule: Schedule) -> None:
        self.memory = np.zeros(nbytes, np.uint8)
        self._pieces = list(pieces)
        self._schedule = schedule

    def access(self):
        self.arrive(self._schedule.choose(len(self._pieces) + 1))

    def arrive(self, count):
        for offset, data in self._pieces[:count]:
            self.memory[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
        del self._pieces[:count]

    def finish(self):
        self._schedule.closed = True
        self.arrive(len(self._pieces))

    def copy(self, offset, destination):
        half = destination.nbytes // 2
        self.access()
        destination[:half] = self.memory[offset : offset + half]
        self.access()
        destination[half:] = self.memory[offset + half : offset + destination.nbytes]

    def prepared(self, source, peer, offset):
        return lambda: None  # its acknowledgements go nowhere: the sender has run before

    def prepared_flush(self, peers):
        return lambda: None

    def flush(self, peers): ...

    def sync(self): ...

    def free(self): ...


class Schedule:
    """An odometer over choices: replays a prefix, then takes 0, and remembers how many there were."""

    def __init__(self, prefix: Sequence[int]) -> None:
        self.taken = list(prefix)
        self.options: list[int] = []
        self.closed = False

    def choose(self, options: int, is_fault: bool = False) -> int:
        if self.closed:
            return 0
        self.options.append(options)
        if len(self.options) > len(self.taken):
            self.taken.append(0)
        return self.taken[len(self.options) - 1]

    def next_prefix(self) -> list[int] | None:
        for place in reversed(range(len(self.options))):
            if self.taken[place] + 1 < self.options[place]:
                return [*self.taken[:place], self.taken[place] + 1]
        return None


def every_schedule() -> Iterator[Schedule]:
    """Each schedule after the other; one is to be played before the next is drawn."""
    prefix: list[int] | None = []
    while prefix is not None:
        schedule = Schedule(prefix)
        yield schedule
        prefix = schedule.next_prefix()


class OneEnd:
    """The transport of one of the two ranks: hands out a given window."""

    size = 2
    hosts = ("a", "b")
    local_peers = frozenset()
    view = View(2)

    carrier: Rounds | None = None

    def __init__(self, rank: int, window) -> None:
        self.rank = rank
        self._window = window

    def window(self, nbytes):
        return self._window

    def clock(self):
        return 0.0

    def count_step(self): ...

    def pause(self, polls, until=0.0): ...

    def progress(self): ...

    def opened(self): ...


def send(queues: Queues, peers, step: int, payload, encoding: int = 0) -> tuple[int, float]:
    """Publish one and the same payload to `peers`."""
    return queues.send_each([OutgoingMessage(peer, payload, None, payload.nbytes, encoding) for peer in peers], step)


def layout(depth: int) -> Layout:
    return Layout(into=[[], [0]].__getitem__, out=[[1], []].__getitem__, depth=depth, capacity=CAPACITY)


def recorded_stages(messages: int, depth: int, cut_headers: bool, mapped: bool, zeroed: bool) -> list[list[Piece]]:
    """The stages of the Puts of `messages` scatters."""
    sizes = [layout(depth).window_nbytes(rank) for rank in (0, 1)]
    window = RecordingMemory(*sizes, cut_headers, zeroed) if mapped else RecordingWindow(sizes[0], cut_headers)
    sender = Queues(OneEnd(0, window), layout(depth), ASP, 1.0)
    for number in range(1, messages + 1):
        send(sender, [1], number, np.full(CAPACITY, number, np.uint8))
    return window.stages


def carried_stages(
    plan: str, depth: int, joins: Join, ordered: bool = False, cut_headers: bool = False
) -> list[list[Piece]]:  # fmt: skip
    """The stages of messages that a carrier takes over: `plan` has an s for each scatter, an r for each round.

    Rounds go on until nothing is left. As many messages leave as the last one's number says. `ordered`: the window
    keeps the order of Puts; each piece is a stage.
    """
    end = OneEnd(0, RecordingWindow(layout(depth).window_nbytes(0), ordered or cut_headers))
    end._window.keeps_order = ordered
    end.carrier = rounds = Rounds(end, 1.0)
    sender = Queues(end, layout(depth), ASP, 1.0)
    for place, action in enumerate(plan):
        if action == "s":
            step = plan[: place + 1].count("s")
            content = np.full(CAPACITY, step, np.uint8)
            sender.send_each([OutgoingMessage(1, content, None, CAPACITY)], step, join=joins)
            content[:] = 255  # what the caller does with it afterwards must not matter
        else:
            rounds.round()
    while rounds.round():
        pass
    stages = [stage for stage in end._window.stages if stage]
    return [[piece] for stage in stages for piece in stage] if ordered else stages


def keep_all(waiting, new):
    """A join by which nothing is superseded."""
    return [*waiting, new]


def arrival_orders(stages: Sequence[Sequence[Piece]]) -> Iterator[list[Piece]]:
    """Every order in which the pieces may arrive: any within a stage, stages one after the other."""
    for orders in product(*(list(permutations(stage)) for stage in stages)):
        yield [piece for stage in orders for piece in stage]


@contextmanager
def scheduled_reads(window: ReplayedWindow, twice: bool):
    """Each look at a header is an access too. `twice`: so are its hash and the header behind it, one by one, and the
    payload of a compact message."""
    look, unpack, check = header.Watched.read, header._checked, header._compact_check

    def read(self):
        window.access()
        return look(self)

    def unpacked(buffer, offset):
        if twice:
            window.access()
        return unpack(buffer, offset)

    def checked(*arguments):
        window.access()
        return check(*arguments)

    header.Watched.read, header._checked, header._compact_check = read, unpacked, checked
    try:
        yield
    finally:
        header.Watched.read, header._checked, header._compact_check = look, unpack, check


def play(
    pieces: Sequence[Piece], messages: int, depth: int, newest: bool, schedule: Schedule, zeroed: bool, last: int
) -> None:  # fmt: skip
    """One gather while pieces arrive, one when all is quiet; Violation where the promises do not hold.

    `zeroed`: the first message is gathered before. `last`: the step of the last message.
    """
    window = ReplayedWindow(layout(depth).window_nbytes(1), pieces, schedule)
    receiver = Queues(OneEnd(1, window), layout(depth), ASP, 1.0)
    steps: list[int] = []
    if zeroed:
        schedule.closed = True
        window.arrive(len(pieces) // messages)
        steps += _receive(receiver, newest)
        schedule.closed = False
    with scheduled_reads(window, twice=zeroed):
        steps += _receive(receiver, newest)
    _check_account(receiver, messages, len(steps), quiet=False)
    window.finish()
    _check_account(receiver, messages, len(steps), quiet=True)
    steps += _receive(receiver, newest)
    overwritten = _check_account(receiver, messages, len(steps), quiet=True)
    if steps != sorted(set(steps)):
        raise Violation(f"messages out of order or twice: {steps}")
    if not newest and overwritten > max(0, messages - depth):
        raise Violation("a message that no other was written over counts as overwritten")
    if last not in steps:
        raise Violation(f"the newest message, {last}, was never gathered: {steps}")


def _receive(receiver: Queues, newest: bool) -> list[int]:
    steps = []
    for message in receiver.receive(lambda: [0], newest=newest):
        if set(message.payload.tolist()) != {message.step} or message.payload.nbytes != CAPACITY:
            raise Violation(f"message {message.step} holds {message.payload}")
        steps.append(message.step)
    return steps


def _check_account(receiver: Queues, sent: int, gathered: int, quiet: bool) -> int:
    """How many messages count as overwritten. What Queues.statistics says of the edge, in half of the time."""
    edge = receiver.inbox.edges[0]
    pending, overwritten = receiver.inbox.outstanding(edge)
    if edge.ring.gathered != gathered:
        raise Violation(f"{gathered} were handed over, {edge.ring.gathered} are counted")
    total = gathered + overwritten + edge.ring.refused + pending
    if total != sent if quiet else total > sent:
        raise Violation(f"sent {sent}, but the account says {total}, of which {overwritten} are overwritten")
    return overwritten


def explore(
    messages: int, depth: int, newest: bool, cut_headers: bool = False, orders: Callable = arrival_orders,
    mapped: bool = False, zeroed: bool = False, plan: str = "", joins: Join = keep_all, ordered: bool = False,
) -> int:  # fmt: skip
    """Play every schedule; how many there were.

    `plan`, `joins`, `ordered`: as `carried_stages`, whose stages are played. Then `messages` is how many leave.

    `mapped`: the sender stores into the receiver's memory. `zeroed`: there a header is zeroed before it is written, the
    receiver's loads of one header are accesses one by one, and it has gathered the first message.
    """
    count = 0
    if plan:
        stages = carried_stages(plan, depth, joins, ordered, cut_headers)
    else:
        stages = recorded_stages(messages, depth, cut_headers, mapped, zeroed)
    for pieces in orders(stages):
        for schedule in every_schedule():
            play(pieces, messages, depth, newest, schedule, zeroed, plan.count("s") or messages)
            count += 1
    return count


def crossed_stages(messages: int, depth: int) -> list[list[list[Piece]]]:
    """By message, the stages of its Puts under notify-ack. The slot that it goes to has been given back."""
    window = RecordingWindow(layout(depth).window_nbytes(0), cut_headers=False)
    sender = Queues(OneEnd(0, window), layout(depth), NOTIFY_ACK, 1.0)
    found = []
    for number in range(1, messages + 1):
        header.write(window.memory.data, layout(depth).acknowledgement(0, 1), number - 1, number - 1, header.WHOLE)
        send(sender, [1], number, np.full(CAPACITY, number, np.uint8))
        found.append([stage for stage in window.stages if stage])
        window.stages = []
    return found


def play_crossed(
    before: Sequence[Sequence[Sequence[Piece]]], pieces: Sequence[Piece], depth: int, newest: bool, schedule: Schedule
) -> None:  # fmt: skip
    """Gathers while the last message arrives, into a slot that an older one has left, and one when all is quiet."""
    window = ReplayedWindow(layout(depth).window_nbytes(1), [], schedule)
    receiver = Queues(OneEnd(1, window), layout(depth), NOTIFY_ACK, 1.0)
    steps: list[int] = []
    schedule.closed = True
    for stages in before:
        window._pieces = [piece for stage in stages for piece in stage]
        window.finish()
        steps += _receive(receiver, newest)
        receiver.acknowledge([])
    schedule.closed, window._pieces = False, list(pieces)
    with scheduled_reads(window, twice=True):
        steps += _receive(receiver, newest)
    receiver.acknowledge([])
    window.finish()
    steps += _receive(receiver, newest)
    if steps != list(range(1, len(before) + 2)):
        raise Violation(f"of {len(before) + 1} messages came {steps}")


def explore_crossed(messages: int, depth: int, newest: bool) -> int:
    """Play every schedule of a message that crosses to another host under notify-ack; how many there were.

    Those before have arrived and are gathered. The pieces of the last one arrive in every order in which its Puts may.
    """
    count = 0
    *before, last = crossed_stages(messages, depth)
    for pieces in arrival_orders(last):
        for schedule in every_schedule():
            play_crossed(before, pieces, depth, newest, schedule)
            count += 1
    return count
