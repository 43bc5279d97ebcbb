"""A group of simulated ranks on a network: virtual time is what ranks compute and what their messages take.

The rank that runs is the one whose clock is lowest, so whatever it reads has happened by then. A Put leaves at once,
and arrives whole when its last byte is through the links. A flush returns when the Puts are there and their
acknowledgement is back. A rank that waits sleeps until a message arrives. Under asp and ssp messages to other hosts
leave while their sender goes on, as the transfer thread of a real rank sends them (carrier.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from dstorm.transport import Bytes, Transport
from dstorm.transports.simulated.carrier import TimedRounds
from dstorm.transports.simulated.collective import Collective
from dstorm.transports.simulated.group import TICK_S, Group
from dstorm.transports.simulated.network import MEMORY_BANDWIDTH, HostLinks, Network, NetworkTotals
from dstorm.transports.simulated.timeline import Timeline
from dstorm.transports.transfer import Rounds

Result = TypeVar("Result")

_LONGEST_POLL_S: Final = 1.0
"""The longest sleep of a wait to which no message comes. What it awaits may be in another rank's memory."""
_BACK_OFF: Final = 4.0
"""How much longer each such sleep is than the last one. The first is a tick."""
_MOST_LOOKS: Final = 10_000
"""So many looks at one moment are a loop that waits for messages: from then on each look is a poll."""

_LOOKS_AT_A_MESSAGE: Final = 100
"""The most looks that the merge of a message takes."""


class _Puts:
    """The Puts that a rank, or its transfer thread, has started, and the flush that waits for them."""

    def __init__(self, known: Callable[[float], object]) -> None:
        self.known = known
        """Called with the seconds after which the acknowledgement of a flush is back, once its Puts are there."""
        self._awaited: Collection[int] = ()
        """The peers of the flush that waits."""
        self._missing: set[int] = set()
        """Those of them to which a Put was under way all the time."""
        self._under_way: dict[int, int] = {}
        """By peer, how many Puts have not arrived."""
        self._known_at: dict[int, float] = {}
        """By peer, when it is known that those that have arrived are there."""

    def start(self, peer: int) -> None:
        """One more is under way."""
        self._under_way[peer] = self._under_way.get(peer, 0) + 1

    def arrive(self, peer: int, now: float, latency_s: float) -> None:
        """One has arrived."""
        self._under_way[peer] -= 1
        self._known_at[peer] = now + latency_s
        if peer in self._missing and not self._under_way[peer]:
            self._missing.discard(peer)
            if not self._missing:
                self.known(self.left_s(self._awaited, now))

    def flush(self, peers: Collection[int]) -> bool:
        """Wait for those to `peers`: `known` is called. Return whether there are any under way."""
        self._awaited, self._missing = peers, {peer for peer in peers if self._under_way.get(peer)}
        return bool(self._missing)

    def left_s(self, peers: Collection[int], now: float) -> float:
        """Seconds until it is known that those to `peers`, which have arrived, are there."""
        return max((self._known_at.get(peer, 0.0) for peer in peers), default=0.0) - now


class TimedGroup(Group):
    """A `Group` whose ranks are on the hosts of `network`. No rank fails."""

    def __init__(self, size: int, seed: int, network: Network) -> None:
        super().__init__(size, seed)
        self._links = HostLinks(network, size, self.random)
        self._network, self.hosts = network, self._links.hosts
        self._timeline = self._schedule = Timeline(size, self.random)
        self._copying_s = [0.0] * size
        """By rank, seconds of copies inside its host since its last flush."""
        self._own = [_Puts(partial(self._timeline.add, rank)) for rank in range(size)]
        """By rank, the Puts that it has started itself."""
        self._carried = [_Puts(lambda left_s: None) for _ in range(size)]
        """By rank, those of its transfer thread."""
        self._carrying: tuple[_Puts, set[int]] | None = None
        """While a transfer thread starts Puts: these, and the peers that it flushes."""
        self._is_polling = [False] * size
        """By rank, whether it sleeps until a message arrives."""
        self._is_undisturbed = [False] * size
        """By rank, whether messages do not wake it."""
        self._looks = [0] * size
        """By rank, how often it has looked for messages since it last computed, sent or got one."""
        self._waited_s = [0.0] * size
        self._ends: list[tuple[float, float, float]] = [(0.0, 0.0, 0.0)] * size
        """By rank, when its function returned, what it had sent and how long it had waited."""

    def run(self, function: Callable[[int], Result]) -> list[Result]:
        """Run all ranks, and set `Network.totals` when they are done."""
        results = super().run(function)
        times, sent, waited = zip(*self._ends, strict=True)
        self._network.totals = NetworkTotals(max(times), round(sum(sent)), waited)
        return results

    # -- turns ------------------------------------------------------------------------------------------------

    def compute(self, rank: int, seconds: float) -> None:
        """Let `rank` compute for a time. Its looks are counted anew."""
        self._check_turn()
        self._looks[rank] = 0
        self._sleep(rank, seconds)

    def poll(self, rank: int, polls: int, until: float) -> None:
        """Sleep until a message arrives, or for longer after more `polls`."""
        self._check_turn()
        nap_s = min(TICK_S * _BACK_OFF ** min(polls, 30), _LONGEST_POLL_S)
        left_s = until + TICK_S - self.now
        self._is_polling[rank] = True
        self._sleep(rank, min(nap_s, left_s) if left_s > 0 else nap_s, waits=True)
        self._is_polling[rank] = False

    def switch(self, rank: int, pause_s: float = 0.0) -> None:
        """Give up the turn. The time counts as waited."""
        self._sleep(rank, max(pause_s, TICK_S), waits=True)

    def maybe_switch(self, rank: int) -> None:
        """Nothing: a rank runs until its clock advances."""

    def look(self, rank: int) -> None:
        """Order loads with Puts. After very many looks at one moment a look is a poll, as else no time passes."""
        self._looks[rank] += 1
        if self._looks[rank] > _MOST_LOOKS and threading.get_ident() == self._thread:
            self.poll(rank, self._looks[rank] - _MOST_LOOKS, self.now + _LONGEST_POLL_S)

    def done(self, rank: int) -> None:
        """Note that `rank` is done: the totals say what it has sent and waited by now. Local."""
        self._ends[rank] = (self.now, self._links.sent[rank], self._waited_s[rank])

    def _sleep(self, rank: int, seconds: float, waits: bool = False) -> None:
        if seconds > 0.0:
            self._timeline.add(rank, seconds)
            self._until_due(rank, waits)

    def _until_due(self, rank: int, waits: bool = True) -> None:
        """Let others run until this rank is due. `waits`: the time counts as waited."""
        start = self.now
        if self.size > 1:
            self._wait_for_turn(rank)
        else:
            self._timeline.next()
        if waits:
            self._waited_s[rank] += self.now - start

    def _wake(self, rank: int) -> None:
        """A message has arrived."""
        self._looks[rank] = min(self._looks[rank], _MOST_LOOKS - _LOOKS_AT_A_MESSAGE)
        if self._is_polling[rank] and not self._is_undisturbed[rank]:
            self._timeline.add(rank)

    # -- collective calls -------------------------------------------------------------------------------------

    def gather(
        self, rank: int, call: str, thing: Any, meanwhile: Callable[[], object] | None = None, kind: str = ""
    ) -> Collective:  # fmt: skip
        """Take part in a collective call, at the cost of one of this `kind`."""
        self._check_turn()
        if self.size == 1:
            return super().gather(rank, call, thing)
        collective = self._collective
        collective.add(rank, call, thing)
        self._waiting.append(rank)
        if collective.entered == self.size:
            cost_s = self._links.collective_s(kind, _lengths(kind, collective.things))
            self._timeline.at(self.now + cost_s, self._end_collective)
        while not collective.is_over:
            if meanwhile is not None:
                meanwhile()
            if not collective.is_over:
                self._is_polling[rank] = meanwhile is not None
                self._until_due(rank)
                self._is_polling[rank] = False
        collective.check(rank, call)
        return collective

    # -- Puts -------------------------------------------------------------------------------------------------

    def send(self, origin: int, peer: int, source: Bytes, target: Bytes) -> None:
        """Start a Put: it leaves at once. One-sided."""
        nbytes = self._network.charged(source.nbytes)
        self._looks[origin] = 0
        if not self._links.are_apart(origin, peer):
            self._copying_s[origin] += nbytes / MEMORY_BANDWIDTH
            target[:] = source
            self._wake(peer)
            return
        if threading.get_ident() != self._thread:
            source = source.copy()  # a thread that the rank has started does not wait in the flush
        puts = self._own[origin] if self._carrying is None else self._carrying[0]
        puts.start(peer)
        first = self._links.leave(origin, nbytes, self.now)
        self._timeline.at(first, partial(self._enter, puts, peer, nbytes, source, target))

    def _enter(self, puts: _Puts, peer: int, nbytes: float, source: Bytes, target: Bytes) -> None:
        last = self._links.enter(peer, nbytes, self.now)
        self._timeline.at(last, partial(self._arrive, puts, peer, source, target))

    def _arrive(self, puts: _Puts, peer: int, source: Bytes, target: Bytes) -> None:
        target[:] = source
        self._wake(peer)
        puts.arrive(peer, self.now, self._network.latency_s)

    def deliver(self, origin: int, peers: Collection[int]) -> None:
        """Return when all Puts of `origin` to `peers` are there, and it knows that. One-sided."""
        if self._carrying is not None:
            self._carrying[1].update(peers)
            return
        if self.size > 1 and threading.get_ident() != self._thread:
            return
        copying_s, self._copying_s[origin] = self._copying_s[origin], 0.0
        self._sleep(origin, copying_s)
        puts = self._own[origin]
        if puts.flush(peers):
            self._until_due(origin)
        else:
            self._sleep(origin, puts.left_s(peers, self.now), waits=True)

    def read(self, rank: int, peer: int, destination: Bytes, copy: Callable[[slice], object]) -> None:
        """Read memory of `peer` in one piece, when the request has come there."""
        self._check_turn()
        nbytes = self._network.charged(destination.nbytes)
        if not self._links.are_apart(rank, peer):
            copy(slice(None))
            self._sleep(rank, nbytes / MEMORY_BANDWIDTH)
            return

        def answer() -> None:
            """Read, once the request has come to `peer`, and send what was read. Local."""
            copy(slice(None))
            self._timeline.at(self._links.leave(peer, nbytes, self.now), enter)

        def enter() -> None:
            """Let what was read come in, and `rank` go on then. Local."""
            self._timeline.at(self._links.enter(rank, nbytes, self.now), partial(self._timeline.add, rank))

        self._timeline.at(self.now + self._network.latency_s, answer)
        self._until_due(rank)

    # -- transfer threads -------------------------------------------------------------------------------------

    def carrier(self, transport: Transport, deadline_s: float) -> Rounds | None:
        """Return a carrier where there are several hosts and `Network.buffers` says so."""
        has_any = self._network.buffers and len(set(self.hosts)) > 1
        return TimedRounds(transport, deadline_s, self) if has_any else None

    def at(self, time: float, event: Callable[[], object]) -> None:
        """Call `event` at `time`. Local."""
        self._timeline.at(time, event)

    @contextmanager
    def carrying(self, rank: int) -> Iterator[set[int]]:
        """Let the Puts in the block be those of the transfer thread of `rank`. Local.

        A flush in it does not wait. It adds its peers to the set that is yielded.
        """
        peers: set[int] = set()
        self._carrying = self._carried[rank], peers
        try:
            yield peers
        finally:
            self._carrying = None

    def when_there(self, rank: int, peers: Collection[int], event: Callable[[], object]) -> None:
        """Call `event` once the Puts of the transfer thread of `rank` to `peers` are known to be there. Local."""
        puts = self._carried[rank]

        def known(left_s: float) -> None:
            """Call `event` once all has arrived, which is in `left_s`. Local."""
            self._timeline.at(self.now + max(0.0, left_s), event)

        puts.known = known
        if not puts.flush(peers):
            known(puts.left_s(peers, self.now))

    @contextmanager
    def undisturbed(self, rank: int) -> Iterator[None]:
        """Let messages that come for `rank` wake none of its waits in the block, only `moved`. Local."""
        self._is_undisturbed[rank] = True
        try:
            yield
        finally:
            self._is_undisturbed[rank] = False

    def moved(self, rank: int) -> None:
        """Wake a wait of `rank`: some of what its transfer thread carries has arrived. Local."""
        if self._is_polling[rank]:
            self._timeline.add(rank)


def _lengths(kind: str, things: Sequence[Any]) -> list[list[int]]:
    """By rank, how many bytes a collective call sends: to each rank, or one number where all ranks get the same."""
    size = len(things)
    if kind == "alltoall":
        return [[parts[peer].nbytes if peer in parts else 0 for peer in range(size)] for parts in things]
    if kind == "allreduce":  # each rank combines a block for all, and sends the result to all
        return [[2 * array.nbytes // size] * size for array in things]
    if kind == "allgather":
        return [[len(data)] for data in things]
    if kind == "broadcast":
        return [[0 if array is None else array.nbytes] for array in things]
    return [[0]] * size
