"""The compiled calls of one vector: a send and a merge that are one call each, where all is as in the common case.

They are used where the program has imported numba and this process maps the memory of all its peers
(dstorm/queues/calls/kernels.py). Each call is given the state of the edges, which stays in sender.py and receiver.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dstorm.queues.queues import Queues
from dstorm.queues.waits import head_start

_ANY_STEPS = 2**63
"""How many steps a peer may be behind once the wait for it is over."""

Phases = tuple[tuple[int, ...], ...]
Merged = tuple[tuple[int, ...], tuple[int, ...], int]
"""The senders and the steps of messages; how many steps the oldest is behind this rank's."""
_BLOCK = 8192
"""Elements that are merged at once."""
_LINE_NBYTES = 64


class Kernels(NamedTuple):
    """The compiled kernels for arrays of one dtype, and the module that says what they take and return."""

    scatter: Callable[[int, int, float, float], bool]
    gather: Callable[[int, int, int, bool], int]
    module: Any


def kernels(kind: str) -> Kernels | None:
    """The kernels for arrays of dtype `kind`, "f" or "d"; None where they are not used. Local.

    They are used where the program has imported numba, so that nobody else waits for it. The first process on a machine
    compiles them, which takes seconds; later ones load them from numba's cache.
    """
    return load(kind) if "numba" in sys.modules else None


@cache
def load(kind: str) -> Kernels | None:
    """The kernels, compiled now or loaded from numba's cache; None where numba cannot. Local."""
    try:
        from dstorm.queues.calls import kernels

        made = Kernels(*kernels.compile_for(kind), kernels)
        return made if kernels.writes_headers(made.scatter) else None
    except Exception:  # another numba, no folder for its cache, NUMBA_DISABLE_JIT: Python does it all then
        return None


def calls(
    queues: Queues, array: NDArray[Any], outs: Phases, ins: Phases, check_finite: bool = False
) -> CompiledCalls | None:  # fmt: skip
    """The calls that send and merge `array`, flat; None where there are none. Local.

    `outs`, `ins`: the neighbours by phase. There are none where a step has other neighbours than the next one.
    `check_finite`: messages that are not finite are left to the code in Python. In lockstep all are.
    """
    if outs != (tuple(queues.outbox.edges),) or ins != (tuple(queues.inbox.edges),):
        return None
    mode, ranks = queues.consistency, {queues.transport.rank, *outs[0], *ins[0]}
    is_plain = array.dtype.char in "fd" and array.dtype.isnative and array.flags.aligned and array.size > 0
    if not is_plain or (mode.acknowledges and not mode.lockstep) or not ranks <= queues.window.addresses.keys():
        return None
    if check_finite and mode.lockstep:
        return None
    made = kernels(array.dtype.char) if len(ranks) > 1 else None
    return CompiledCalls(queues, made, array, check_finite) if made is not None else None


class CompiledCalls:
    """The compiled calls of one vector: each is a whole send or merge, or changes nothing. The constructor is Local."""

    def __init__(self, queues: Queues, kernels: Kernels, array: NDArray[Any], check_finite: bool) -> None:
        self._queues, self._transport = queues, queues.transport
        self._scatter, self._gather, self._places = kernels
        self._nbytes, self._lockstep = array.nbytes, queues.consistency.lockstep
        self._block = np.empty(min(array.size, _BLOCK), array.dtype)
        self.before = _aligned(0 if self._lockstep else array.size, array.dtype)
        """The values of the array from before a merge, but in lockstep, until the merge is known to be whole."""
        staleness = queues.consistency.staleness
        self._ahead = head_start.STEPS if staleness is None else staleness
        layout, mode, rank = queues.layout, queues.consistency, self._transport.rank
        outs, ins, places = queues.outbox.edges, queues.inbox.edges, self._places
        in_flight = mode.unacknowledged(layout.depth) if mode.acknowledges else 0
        self._out = self._table([in_flight], [(rank, peer) for peer in outs])
        place = sum(peer < rank for peer in ins)
        block, before = _address(self._block), _address(self.before)
        words = [self._lockstep, array.itemsize, place, block, self._block.size, before, check_finite]
        self._in = self._table(words, [(peer, rank) for peer in ins])
        self.adopted(array)
        self._out_address, self._in_address = _address(self._out), _address(self._in)
        self._out_words, self._in_words = self._out.data, self._in.data
        size = places.SLOTS + layout.depth
        self._outs = [(at, edge, edge.ring) for at, edge in zip(count(places.OUT_EDGES, size), outs.values())]
        self._ins = [(at, edge, edge.ring) for at, edge in zip(count(places.IN_EDGES, size), ins.values())]
        """Where the edges are in a table."""
        self._count_step, self._clock = self._transport.count_step, self._transport.clock

    def _table(self, words: Sequence[int], edges: Sequence[tuple[int, int]]) -> NDArray[np.uint64]:
        """Return a table with these words and edges, each the rank of a sender and that of a receiver."""
        layout, at = self._queues.layout, self._queues.window.addresses
        table = [0, self._nbytes, layout.depth, len(edges), *words]
        for sender, receiver in edges:
            slots = [at[receiver] + slot for slot in layout.slots(sender, receiver)]
            table += [at[sender] + layout.acknowledgement(sender, receiver), 0, 0, 0, *slots]
        return np.array(table, np.uint64)

    def adopted(self, array: NDArray[Any]) -> CompiledCalls | None:
        """These calls, for `array`, of the same shape and dtype, from now on; None: they cannot. Local."""
        self._array = array
        self._out[self._places.ARRAY] = self._in[self._places.ARRAY] = _address(array)
        return self if array.flags.aligned else None

    def send(self, step: int, weight: float, mass: float) -> tuple[int, float] | None:
        """Send the array to all out-neighbours by one compiled call; return None where it does not apply. One-sided."""
        words, edges, nbytes = self._out_words, self._outs, self._nbytes
        for place, _, ring in edges:
            words[place + 1] = ring.sent
        share = mass / (len(edges) + 1)
        if not self._scatter(self._out_address, step, weight, share):
            return None
        for _, edge, ring in edges:
            ring.sent += 1
            edge.bytes_sent += nbytes
        self._queues.inbox.step = step
        self._count_step()
        return nbytes * len(edges), share

    def merge(self, sources: Callable[[], Iterable[int]], is_mean: bool) -> Merged | None:
        """Merge the newest message of each sender into the array: the mean or, in lockstep, the sum. One-sided.

        It waits as `Inbox.wait`. None: nothing was merged, and it must be merged by `Queues.receive`. DeadlinePassed.
        """
        words, edges, places = self._in_words, self._ins, self._places
        step = self._queues.inbox.step
        for ahead in (self._ahead, _ANY_STEPS):
            for place, _, ring in edges:
                words[place + 1] = ring.taken
            found = self._gather(self._in_address, step, ahead, is_mean)
            if found >= 0:
                break
            self._queues.inbox.wait(sources, None)
        if found >= places.OVERWRITTEN:
            edges[found - places.OVERWRITTEN][1].ring.torn_retries += 1
        return self._merged(step) if found == places.DONE else None

    def _merged(self, step: int) -> Merged:
        """Settle the messages that were merged."""
        words = self._in_words
        senders: tuple[int, ...] = ()
        steps: tuple[int, ...] = ()
        most, now, lockstep = 0, self._clock(), self._lockstep
        for place, edge, ring in self._ins:
            if number := words[place + 2]:
                its_step = words[place + 3]
                lag = step - its_step
                ring.take(number)
                edge.lag.note(lag)
                if its_step > edge.step:
                    edge.step, edge.heard_at = its_step, now
                if lockstep:
                    edge.acknowledged = number
                most = lag if not senders or lag > most else most
                senders += (edge.peer,)
                steps += (its_step,)
        if lockstep:
            self._queues.inbox.over = step
        return senders, steps, most


def _aligned(size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array whose address is that of a cache line."""
    memory = np.empty(size * dtype.itemsize + _LINE_NBYTES, np.uint8)
    return memory[-_address(memory) % _LINE_NBYTES :][: size * dtype.itemsize].view(dtype)


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
