"""The ranks of one process: threads that pass a baton, in an order that a seed decides.

Only the holder of the baton runs, so a seed replays the same interleaving every time. The baton may change hands at
every Put, flush, sync, piece of a copy and pause. A Put is cut into pieces that arrive at any moment up to its
flush, in any order, and is read from the caller's memory only then: all that the MPI standard allows, and no less.
Time is virtual.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dstorm import reduction
from dstorm.errors import MismatchedCalls
from dstorm.membership.calls import Calls
from dstorm.transport import Bytes, Put
from dstorm.transports import shm_space
from dstorm.wait import Wait

Result = TypeVar("Result")

_TICK_S = 1e-6
"""Virtual time between two turns."""

_LONGEST_PAUSE_S = 0.01
_SWITCH_ODDS = 0.25
"""How likely the baton changes hands where it may."""


class _Stopped(BaseException):
    """Another rank failed, or the caller was interrupted: this one unwinds."""


class _Killed(BaseException):
    """This rank is dead: its thread unwinds, and nothing that it does on the way has any effect."""


class Group:
    """What the ranks share: the baton, the clock and the Puts under way.

    `deaths`: ranks that die, and after how many of their turns. Of the Puts that a rank has under way then, any pieces
    may still arrive, or none.
    """

    def __init__(self, size: int, seed: int = 0, deaths: Mapping[int, int] | None = None) -> None:
        self.size = size
        self.dead: set[int] = set()
        self._turns_left = dict(deaths or {})
        self.now = 0.0
        self.random = Random(seed)
        self.heard_at = [0.0] * size
        """When each rank gave its last sign of life."""
        self.pending: list[list[tuple[int, Bytes, Bytes]]] = [[] for _ in range(size)]
        """Pieces of Puts that have not arrived, by origin: (peer, from, to)."""
        self._turns = [threading.Semaphore(0) for _ in range(size)]
        self._wake_at: dict[int, float] = dict.fromkeys(range(size), 0.0)
        """When each rank that is neither finished nor in a collective wants to go on."""
        self._collective: dict[int, Any] = {}
        self._gathered: list[Any] = []
        self._failure: tuple[int, BaseException] | None = None

    # -- turns ------------------------------------------------------------------------------------------------

    def run(self, function: Callable[[int], Result]) -> list[Result]:
        """function(rank) on every rank, as threads; the results by rank.

        The first failure of a rank is raised, as it was raised there: what caused it comes with it, and at the far end
        of that chain an error that names the rank.
        """
        results: list[Any] = [None] * self.size

        def live(rank: int) -> None:
            self._turns[rank].acquire()
            try:
                if self._failure is None:
                    results[rank] = function(rank)
            except (_Stopped, _Killed):
                pass
            except BaseException as error:
                self._failure = self._failure or (rank, error)
            self._leave(rank)

        threads = [
            threading.Thread(target=live, args=(rank,), name=f"simulated rank {rank}", daemon=True)
            for rank in range(self.size)
        ]
        try:
            for thread in threads:
                thread.start()
            self._pass_on()
            for thread in threads:
                thread.join()
        except BaseException as interrupt:  # Ctrl-C comes to the caller's thread; each rank ends at its next turn
            self._failure = (0, interrupt)
            raise
        if self._failure is not None:
            rank, error = self._failure
            _root(error).__cause__ = RuntimeError(f"simulated rank {rank} of {self.size} failed")
            raise error
        return results

    def switch(self, rank: int, pause_s: float = 0.0) -> None:
        """Let others run; return when it is this rank's turn again, `pause_s` of virtual time later at the earliest."""
        if rank in self.dead:
            raise _Killed
        self.now += _TICK_S
        self._deliver_some()
        self._wake_at[rank] = self.now + pause_s
        if self.size == 1:
            if self._failure is not None:
                raise _Stopped
            self.now += pause_s
            return
        self._wait_for_turn(rank)

    def maybe_switch(self, rank: int) -> None:
        """A place where the baton may change hands."""
        if self.size > 1 and self.random.random() < _SWITCH_ODDS:
            self.switch(rank)

    def gather(self, rank: int, thing: Any) -> list[Any]:
        """What every rank gave, by rank: they all return only after the last has come."""
        self._collective[rank] = thing
        del self._wake_at[rank]
        if len(self._collective) == self.size - len(self.dead):
            self._gathered = [self._collective.get(peer) for peer in range(self.size)]
            self._wake_at = dict.fromkeys(sorted(self._collective), self.now)
            self._collective.clear()
        gathered = self._gathered
        if self.size > 1:
            self._wait_for_turn(rank)
            gathered = self._gathered
        return gathered

    def _wait_for_turn(self, rank: int) -> None:
        self._pass_on()
        self._turns[rank].acquire()
        if self._failure is not None:
            raise _Stopped
        if rank in self._turns_left:
            self._turns_left[rank] -= 1
            if self._turns_left[rank] <= 0:
                self._die(rank)

    def _die(self, rank: int) -> None:
        if rank not in self.dead:
            self.dead.add(rank)
            while self.pending[rank] and self.random.random() < 0.5:
                self._deliver_one(self.pending[rank])
            self.pending[rank].clear()
        raise _Killed

    def _leave(self, rank: int) -> None:
        self._wake_at.pop(rank, None)
        self._collective.pop(rank, None)
        if self._failure is not None:  # wake them all, one after the other: each unwinds and leaves
            self._wake_at.update(dict.fromkeys(self._collective, self.now))
            self._collective.clear()
        elif not self._wake_at and self._collective:
            waiting = sorted(self._collective)
            error = RuntimeError(f"ranks {waiting} wait in a collective call that the others, now finished, never made")
            self._failure = (waiting[0], error)
            self._wake_at.update(dict.fromkeys(waiting, self.now))
            self._collective.clear()
        if self._wake_at:
            self._pass_on()

    def _pass_on(self) -> None:
        """Hand the baton to a rank that may run; the clock jumps to where one may."""
        if not self._wake_at:
            error = RuntimeError(f"all ranks wait: {sorted(self._collective)} in a collective call")
            self._failure = (0, error)
            self._wake_at.update(dict.fromkeys(self._collective, self.now))
            self._collective.clear()
        self.now = max(self.now, min(self._wake_at.values()))
        ready = [rank for rank, wake_at in self._wake_at.items() if wake_at <= self.now]
        self._turns[self.random.choice(ready)].release()

    # -- Puts -------------------------------------------------------------------------------------------------

    def send(self, origin: int, peer: int, source: Bytes, target: Bytes) -> None:
        """Start a Put, in pieces."""
        if origin in self.dead:
            raise _Killed
        cuts = sorted(self.random.randint(0, source.nbytes) for _ in range(self.random.randint(0, 2)))
        edges = [0, *cuts, source.nbytes]
        self.pending[origin] += [(peer, source[a:b], target[a:b]) for a, b in pairwise(edges)]

    def deliver(self, origin: int, peers: Sequence[int]) -> None:
        """Let every Put of `origin` towards `peers` arrive."""
        pieces = self.pending[origin]
        self.pending[origin] = [piece for piece in pieces if piece[0] not in peers]
        arriving = [piece for piece in pieces if piece[0] in peers]
        while arriving:
            self._deliver_one(arriving)

    def _deliver_some(self) -> None:
        for pieces in self.pending:
            while pieces and self.random.random() < 0.5:
                self._deliver_one(pieces)

    def _deliver_one(self, pieces: list[tuple[int, Bytes, Bytes]]) -> None:
        _, source, target = pieces.pop(self.random.randrange(len(pieces)))
        target[:] = source


def _root(error: BaseException) -> BaseException:
    """The error that a traceback of `error` begins with."""
    chain = [error]
    while True:
        last = chain[-1]
        earlier = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if earlier is None or earlier in chain:
            return last
        chain.append(earlier)


class SimulatedWindow:
    """One rank's part of a window among the ranks of this process."""

    def __init__(self, group: Group, rank: int, nbytes: int) -> None:
        self._group = group
        self._rank = rank
        shm_space.check_host(f"the window of rank {rank}", nbytes)
        self.memory: Bytes = np.zeros(max(nbytes, 1), np.uint8)
        self._parts: list[Bytes] = group.gather(rank, self.memory)

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        target = self._parts[peer][offset : offset + source.nbytes]
        if target.nbytes != source.nbytes:
            raise ValueError(f"a Put of {source.nbytes} bytes at {offset} leaves rank {peer}'s window")
        self._group.send(self._rank, peer, source.reshape(-1), target)
        self._group.maybe_switch(self._rank)

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        return partial(self.put, source, peer, offset)

    def flush(self, peers: Sequence[int]) -> None:
        self._group.maybe_switch(self._rank)
        self._group.deliver(self._rank, peers)
        self._group.maybe_switch(self._rank)

    def prepared_flush(self, peers: Sequence[int]) -> Put:
        return partial(self.flush, tuple(peers))

    def sync(self) -> None:
        self._group.maybe_switch(self._rank)

    def copy(self, offset: int, destination: Bytes) -> None:
        half = self._group.random.randint(0, destination.nbytes)
        destination[:half] = self.memory[offset : offset + half]
        self._group.maybe_switch(self._rank)
        destination[half:] = self.memory[offset + half : offset + destination.nbytes]

    def free(self) -> None:
        if self._parts:
            self._parts = []
            self._group.gather(self._rank, None)


class SimulatedTransport:
    """One rank's way to the others of its group, all in this process."""

    def __init__(self, group: Group, rank: int) -> None:
        self._group = group
        self.rank = rank
        self.size = group.size
        self.hosts = ("simulated",) * group.size
        self.rivals: frozenset[int] = frozenset()
        self.mortal = False
        self.while_waiting: list[Callable[[], object]] = []
        self.dead: frozenset[int] = frozenset()
        self.library = "in process"
        self._calls = Calls()

    def connect(self, peers: Sequence[int]) -> None:
        """Nothing: who is in one process is connected. Local."""

    def window(self, nbytes: int) -> SimulatedWindow:
        return SimulatedWindow(self._group, self.rank, nbytes)

    def gone(self) -> Sequence[int]:
        """The ranks that have died. Local."""
        return sorted(self._group.dead)

    def allgather(self, data: bytes) -> list[bytes]:
        return self._meet("allgather", data)

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        everyone = self._meet("allreduce", array.astype(reduction.accumulator(array.dtype)))
        parts = {rank: everyone[rank] for rank in reduction.counting(weights, range(self.size))}
        reduction.reduce_into(array, parts, op, weights)

    def broadcast(self, array: NDArray[np.generic], root: int | None = None) -> None:
        array[...] = self._meet("broadcast", array.copy())[root or 0]

    def barrier(self, what: str = "barrier", patience_s: float | None = None) -> None:
        self._meet(what, None)

    def _meet(self, what: str, thing: Any) -> list[Any]:
        """What every rank gave, by rank. MismatchedCalls: in another call than this."""
        what = self._calls.name(what)
        everyone = self._group.gather(self.rank, (what, thing))
        for rank, (call, _) in enumerate(everyone):
            if call != what:
                raise MismatchedCalls(self.rank, what, rank, call)
        return [theirs for _, theirs in everyone]

    def calling(self, what: str) -> AbstractContextManager[None]:
        return self._calls.calling(what)

    def set_deadline(self, deadline_s: float) -> None:
        pass

    def look(self, quietly: bool = False) -> None:
        pass

    def beat(self) -> None:
        self.heartbeat()

    def heartbeat(self) -> None:
        self._group.heard_at[self.rank] = self.clock()

    def heard_at(self, rank: int) -> float:
        return self._group.heard_at[rank]

    def attend(self, wait: Wait) -> bool:
        return wait.judge(self.clock(), self.heard_at, lambda rank: ()).is_over

    def end_wait(self, in_vain: bool = False) -> None:
        pass

    def opened(self) -> None:
        pass

    def closed(self) -> None:
        pass

    def has_closed(self, rank: int) -> bool:
        return True

    def was_evicted(self, rank: int) -> bool:
        return False

    def depart(self) -> None:
        pass

    def clock(self) -> float:
        return self._group.now

    def pause(self, polls: int) -> None:
        self._group.switch(self.rank, min(_TICK_S * 2.0 ** min(polls, 30), _LONGEST_PAUSE_S))

    def close(self) -> None:
        pass
