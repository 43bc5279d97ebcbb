"""A group of simulated ranks, which take turns in one thread, and the Puts between them.

One rank runs at a time, so a seed gives the same interleaving every time. The turn may change at every Put, flush,
sync, piece of a copy and pause. A Put is cut into pieces. They arrive at any moment up to its flush, in any order, and
are read from the caller's memory only then. That is all that the MPI standard allows, and no less. Time is virtual.

Each rank is a greenlet, with a stack and context variables of its own. A change of turn costs less than the system
takes to wake a thread. Its work concerns the rank that gives up the turn and the ranks that have Puts under way: it
does not grow with the number of ranks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any, TypeVar

from dstorm.transport import Bytes, Transport
from dstorm.transports.simulated import garbage
from dstorm.transports.simulated.collective import Collective
from dstorm.transports.simulated.schedule import Schedule
from dstorm.transports.simulated.timeline import Timeline
from dstorm.transports.transfer import Rounds

Result = TypeVar("Result")

TICK_S = 1e-6
"""Virtual time between two turns."""
LONGEST_PAUSE_S = 0.01
"""Virtual time between two polls of a wait that has lasted long."""
_SWITCH_ODDS = 0.25
"""Probability that the turn changes where it may."""


class _Stopped(BaseException):
    """The run is over, by an error of another rank or an interrupt: this rank unwinds."""


class _Killed(BaseException):
    """This rank has failed: it unwinds, and nothing that it does on the way has any effect."""


class Group:
    """The shared state of the ranks: the turn, the clock and the Puts under way.

    `failures`: the ranks that fail, and after how many of their turns. Any pieces of the Puts that a failed rank has
    under way may still arrive, or none. `again`: the turns after which ranks fail that were started again, one number
    for each new start; 0: never.
    """

    def __init__(
        self, size: int, seed: int = 0, failures: Mapping[int, int] | None = None,
        again: Mapping[int, Sequence[int]] | None = None,
    ) -> None:  # fmt: skip
        self.size = size
        self.hosts = ("simulated",) * size
        self.failed: set[int] = set()
        self._turns_left = dict(failures or {})
        self._again = {rank: list(turns) for rank, turns in (again or {}).items()}
        self.incarnations = [0] * size
        """How often each rank was started again."""
        self.random = Random(seed)
        self.heard_at = [0.0] * size
        """When each rank gave its last heartbeat."""
        self.pending: list[list[tuple[int, Bytes, Bytes]]] = [[] for _ in range(size)]
        """Pieces of Puts that have not arrived, by origin: (peer, source, target)."""
        self._sending: set[int] = set()
        """The origins of pending pieces."""
        self._schedule: Schedule | Timeline = Schedule(size, self.random)
        self._collective = Collective(size)
        self._waiting: list[int] = []
        """The ranks that have entered the collective call, and do nothing until all have."""
        self._ended = 0
        """How many ranks have returned from their function."""
        self._greenlets: list[Any] = []
        self._caller: Any = None
        """The greenlet that runs the others."""
        self._thread = 0
        self._is_stopping = False

    @property
    def now(self) -> float:
        """The virtual time in seconds. Local."""
        return self._schedule.now

    # -- turns ------------------------------------------------------------------------------------------------

    def run(self, function: Callable[[int], Result]) -> list[Result]:
        """Run function(rank) on every rank; return the results by rank.

        The first error of a rank is raised again, with its causes. At the end of their chain stands an error that names
        the rank. ImportError: greenlet is not installed.
        """
        results: list[Any] = [None] * self.size

        def live(rank: int) -> int | None:
            """Run the function as `rank`, and return the rank that runs next, or None."""
            while True:
                try:
                    results[rank] = function(rank)
                    self._ended += 1
                    break
                except _Killed:
                    if not self._starts_again(rank):
                        break
            return self._schedule.next()

        running = self._schedule.next() or 0
        self._thread = threading.get_ident()
        try:
            with garbage.fewer_collections():
                if self.size == 1:
                    copy_context().run(live, running)
                else:
                    self._start(live)
                    following: int | None = running
                    while following is not None:
                        running = following
                        following = self._greenlets[running].switch()
            if self._waiting:
                running = min(self._waiting)
                raise self._never_made()
        except BaseException as error:
            self._stop()
            if not isinstance(error, KeyboardInterrupt):
                _root(error).__cause__ = RuntimeError(f"simulated rank {running} of {self.size} failed")
            raise
        finally:
            self._greenlets.clear()  # frees at once what they hold
        return results

    def compute(self, rank: int, seconds: float) -> None:
        """Advance the clock of `rank` by `seconds`, while others run."""
        self.switch(rank, seconds)

    def poll(self, rank: int, polls: int, until: float) -> None:
        """Let others run between two polls of a wait of `rank`, for longer after more `polls`."""
        self.switch(rank, min(TICK_S * 2.0 ** min(polls, 30), LONGEST_PAUSE_S))

    def carrier(self, transport: Transport, deadline_s: float) -> Rounds | None:
        """Return None: all ranks are on one host, so nothing is sent while a rank computes. Local."""
        return None

    def done(self, rank: int) -> None:
        """Note that the function of `rank` has returned; what follows is the end of its session. Local."""

    def switch(self, rank: int, pause_s: float = 0.0) -> None:
        """Let other ranks run. Return at the next turn of this rank, at least `pause_s` of virtual time later."""
        if rank in self.failed:
            raise _Killed
        self._check_turn()
        self._schedule.now += TICK_S
        self._deliver_some()
        if self.size == 1:
            self._schedule.now += pause_s
        else:
            self._schedule.add(rank, pause_s)
            self._wait_for_turn(rank)

    def maybe_switch(self, rank: int) -> None:
        """Change the turn at random; never in a thread that the rank has started."""
        if self.size > 1 and self.random.random() < _SWITCH_ODDS and threading.get_ident() == self._thread:
            self.switch(rank)

    def gather(
        self, rank: int, call: str, thing: Any, meanwhile: Callable[[], object] | None = None, kind: str = ""
    ) -> Collective:  # fmt: skip
        """Enter a collective call; return it when all ranks have entered. Collective.

        `call`: the name of the call; `thing`: this rank's argument. `meanwhile`: called between the turns of the wait;
        None: this rank has no turn until all have entered. `kind`: what the call moves, which takes no time here.
        MismatchedCalls: a rank made another call.
        """
        self._check_turn()
        collective = self._collective if self.size > 1 else Collective(1)
        collective.add(rank, call, thing)
        if self.size > 1:
            if meanwhile is None:
                self._waiting.append(rank)
            if collective.entered == self.size - len(self.failed):
                self._end_collective()
            if meanwhile is None:
                self._wait_for_turn(rank)
            else:
                self._poll_until_over(rank, collective, meanwhile)
            collective.check(rank, call)
        return collective

    def lacks_ranks(self, rank: int) -> bool:
        """Return whether `rank` waits in a collective call that others have not entered. Local."""
        collective = self._collective
        return collective.calls[rank] is not None and collective.entered < self.size - len(self.failed)

    def _end_collective(self) -> None:
        for rank in self._waiting:
            self._schedule.add(rank)
        self._waiting.clear()
        self._collective.is_over = True
        self._collective = Collective(self.size)

    def _poll_until_over(self, rank: int, collective: Collective, meanwhile: Callable[[], object]) -> None:
        polls = 0
        while not collective.is_over:
            if collective.entered + self._ended + len(self.failed) == self.size:
                raise self._never_made()
            meanwhile()
            self.switch(rank, min(TICK_S * 2.0 ** min(polls, 30), LONGEST_PAUSE_S))
            polls += 1

    def _never_made(self) -> RuntimeError:
        waiting = [rank for rank, call in enumerate(self._collective.calls) if call is not None]
        return RuntimeError(f"ranks {waiting} wait in a collective call that the others, now finished, never made")

    def _start(self, live: Callable[[int], int | None]) -> None:
        """Create the greenlets, each with a copy of the caller's context variables. ImportError."""
        try:
            from greenlet import getcurrent, greenlet
        except ImportError:
            raise ImportError("several simulated ranks need the library greenlet: pip install greenlet") from None
        self._caller = getcurrent()
        self._greenlets = [greenlet(partial(live, rank)) for rank in range(self.size)]
        for one in self._greenlets:
            one.gr_context = copy_context()

    def _stop(self) -> None:
        """Unwind all ranks that have not ended, one after the other."""
        self._is_stopping = True
        for one in self._greenlets:
            try:
                if not one.dead:
                    one.throw(_Stopped)
            except BaseException:  # it has unwound, and the first error is raised already
                continue

    def _check_turn(self) -> None:
        """RuntimeError: the caller is a thread that the rank has started, which cannot wait for other ranks."""
        if self._is_stopping:
            raise _Stopped
        if self.size > 1 and threading.get_ident() != self._thread:
            raise RuntimeError("a thread that a simulated rank has started cannot wait for other ranks")

    def _wait_for_turn(self, rank: int) -> None:
        following = self._schedule.next()
        if following != rank:
            self._caller.switch(following)
        if rank in self._turns_left:
            self._turns_left[rank] -= 1
            if self._turns_left[rank] <= 0:
                self._fail(rank)

    def _starts_again(self, rank: int) -> bool:
        """Return whether `rank` has failed, and is started again now."""
        if self._is_stopping or rank not in self.failed or not self._again.get(rank):
            return False
        turns = self._again[rank].pop(0)
        self._turns_left.pop(rank, None)
        if turns:
            self._turns_left[rank] = turns
        self.incarnations[rank] += 1
        self.failed.discard(rank)
        return True

    def _fail(self, rank: int) -> None:
        if rank not in self.failed:
            self.failed.add(rank)
            while self.pending[rank] and self.random.random() < 0.5:
                self._deliver_one(self.pending[rank])
            self.pending[rank].clear()
        raise _Killed

    # -- Puts -------------------------------------------------------------------------------------------------

    def send(self, origin: int, peer: int, source: Bytes, target: Bytes) -> None:
        """Start a Put, in pieces. One-sided."""
        if origin in self.failed:
            raise _Killed
        cuts = sorted(self.random.randint(0, source.nbytes) for _ in range(self.random.randint(0, 2)))
        edges = [0, *cuts, source.nbytes]
        self.pending[origin] += [(peer, source[a:b], target[a:b]) for a, b in pairwise(edges)]
        self._sending.add(origin)

    def deliver(self, origin: int, peers: Collection[int]) -> None:
        """Complete all Puts of `origin` to `peers`. One-sided."""
        pieces = self.pending[origin]
        self.pending[origin] = [piece for piece in pieces if piece[0] not in peers]
        arriving = [piece for piece in pieces if piece[0] in peers]
        while arriving:
            self._deliver_one(arriving)

    def look(self, rank: int) -> None:
        """`rank` orders its loads with the Puts of its peers: others may run."""
        self.maybe_switch(rank)

    def read(self, rank: int, peer: int, destination: Bytes, copy: Callable[[slice], object]) -> None:
        """Fill `destination` by `copy` with memory of `peer`: in two pieces, between which others may run. One-sided.

        `copy`: is given the rows of `destination` that it reads.
        """
        half = self.random.randint(0, len(destination))
        for piece in (slice(half), slice(half, None)):
            self.maybe_switch(rank)
            copy(piece)

    def _deliver_some(self) -> None:
        for origin in sorted(self._sending):
            pieces = self.pending[origin]
            while pieces and self.random.random() < 0.5:
                self._deliver_one(pieces)
            if not pieces:
                self._sending.remove(origin)

    def _deliver_one(self, pieces: list[tuple[int, Bytes, Bytes]]) -> None:
        _, source, target = pieces.pop(self.random.randrange(len(pieces)))
        target[:] = source


def _root(error: BaseException) -> BaseException:
    """The first error in the traceback of `error`."""
    chain = [error]
    while True:
        last = chain[-1]
        earlier = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if earlier is None or earlier in chain:
            return last
        chain.append(earlier)
