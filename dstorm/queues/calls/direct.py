"""The direct calls of one vector: a scatter and a gather of a short message under bsp, in few calls of Python.

Between hosts an exchange of some bytes takes a round trip, and Python several times as long where each step of it is a
call. Here each scatter and gather does what sender.py, crossing.py, deferred.py and receiver.py do with the same edges,
in one function. It does all of its work or none: where anything is not as usual it returns None, and these modules do
the call. They alone wait for long, refuse, skip and copy.

It is for dense vectors of float32 and float64 that fit into a compact message, some of whose peers are on other hosts.
Where all are on this one there are compiled calls (dstorm/queues/calls/compiled.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dstorm import header
from dstorm.header import COMPACT_NBYTES, DONE, WHOLE, Header
from dstorm.queues.calls.compiled import Merged, Phases
from dstorm.queues.consistency import Consistency
from dstorm.queues.deferred import Deferred
from dstorm.queues.queues import Queues
from dstorm.queues.receiving.inedge import InEdge
from dstorm.queues.sending.edge import OutEdge
from dstorm.transport import Bytes, Window

_LOOKS: Final = 100
"""Looks of a gather for messages before the wait for them begins, and for acknowledgements: less than a millisecond.
A wait takes longer for each look."""


def carries(consistency: Consistency, hosts: Sequence[str], nbytes: int) -> bool:
    """Whether messages of up to `nbytes` have room for acknowledgements: the same on all ranks. Pure."""
    return consistency.lockstep and nbytes <= COMPACT_NBYTES and len(set(hosts)) > 1


def calls(queues: Queues, array: NDArray[Any], outs: Phases, ins: Phases) -> DirectCalls | None:
    """The calls that send and merge `array`, flat; None where there are none. Local.

    `outs`, `ins`: the neighbours by phase. There are none where a step has other neighbours than the next one.
    """
    deferred = queues.deferred
    is_static = outs == (tuple(queues.outbox.edges),) and ins == (tuple(queues.inbox.edges),)
    if deferred is None or not deferred.postpones or not is_static or not ins[0]:
        return None
    is_plain = array.dtype.char in "fd" and array.dtype.isnative and array.flags.aligned and array.size > 0
    if not is_plain or not queues.layout.carries or queues.window.keeps_order:
        return None
    return DirectCalls(queues, deferred, array)


class Writer:
    """Writes a compact message of `nbytes` and the acknowledgement that it carries into a slot of a peer: one Put.

    `offset`: of the slot's header. The constructor is Local.
    """

    __slots__ = ("_acknowledgement", "_buffer", "_message", "_nbytes", "_payload", "_put")

    def __init__(self, window: Window, peer: int, offset: int, nbytes: int) -> None:
        buffer = np.zeros(2 * header.NBYTES + nbytes, np.uint8)
        self._buffer, self._message = buffer.data, buffer[header.NBYTES :].data
        self._payload, self._nbytes = buffer[2 * header.NBYTES :].data, nbytes
        self._put = window.prepared(buffer, peer, offset - header.NBYTES)

    def write(self, body: Bytes, number: int, step: int, weight: float, share: float, taken: int, at: int) -> None:
        """Start to write a message, as a copy, and that `taken` was the newest one taken at step `at`. One-sided."""
        self._payload[:] = body.data
        header.write(self._buffer, 0, taken, at, WHOLE)
        header.write_compact(self._message, Header(number, step, WHOLE, 0, self._nbytes, weight, share))
        self._put()


class DirectCalls:
    """The direct calls of one vector: each is a whole send or merge, or changes nothing. The constructor is Local."""

    def __init__(self, queues: Queues, deferred: Deferred, array: NDArray[Any]) -> None:
        self._queues, self._transport, self._waiting = queues, queues.transport, queues.waiting
        self._deferred, self._outbox, self._nbytes = deferred, queues.outbox, array.nbytes
        self.before = np.empty(0, array.dtype)
        """As `CompiledCalls.before`: in lockstep nothing is kept."""
        self._depth, self._sync = queues.layout.depth, queues.window.sync
        self._count_step, self._clock = self._transport.count_step, self._transport.clock
        far, at = self._outbox.crossing, queues.inbox.edges
        self._outs = list(self._outbox.edges.values())
        self._far = [(edge, at.get(edge.peer), self._writers(edge)) for edge in far.edges.values()]
        self._far_peers = frozenset(far.edges)
        self._near = [edge for edge in self._outs if edge.peer not in far.edges]
        self._flush_near = queues.window.prepared_flush([edge.peer for edge in self._near])
        ins, rank = queues.inbox.edges, self._transport.rank
        self._place = sum(peer < rank for peer in ins)
        """The place of the array in the sum, which is in rank order."""
        views = [[one[: array.nbytes].view(array.dtype) for one in edge.payloads] for edge in ins.values()]
        places = [place + (place >= self._place) for place in range(len(ins))]
        self._ins = list(zip(places, ins.values(), views, strict=True))
        self._near_ins = [edge for peer, edge in ins.items() if peer not in deferred.peers]
        self._flush_near_ins = queues.window.prepared_flush([edge.peer for edge in self._near_ins])
        self._senders, self._terms = tuple(ins), [array] * (len(ins) + 1)
        self._total = np.empty_like(array)
        count = len(ins) + 1
        is_exact = math.frexp(count)[0] == 0.5  # 1 / count: the same bits, sooner
        self._divide = np.multiply if is_exact else np.divide
        self._divisor = np.array(1 / count if is_exact else count, array.dtype)
        self.adopted(array)

    def _writers(self, edge: OutEdge) -> list[Writer]:
        return [Writer(self._queues.window, edge.peer, slot, self._nbytes) for slot in edge.slots]

    def adopted(self, array: NDArray[Any]) -> DirectCalls | None:
        """These calls, for `array`, of the same shape and dtype, from now on; None: they cannot. Local."""
        self._array = self._terms[self._place] = array
        self._bytes = array.view(np.uint8)
        return self if array.flags.aligned else None

    def send(self, step: int, weight: float, mass: float) -> tuple[int, float] | None:
        """As `Queues.send_each`, of the array to all out-neighbours; None: it must be sent so. One-sided."""
        if not self._may_send() or not self._deferred.try_take():
            return None
        share = mass / (len(self._outs) + 1)
        try:
            self._deferred.settle()  # a message starts when all before it is complete
            body, at = self._bytes, self._queues.step
            for edge, back, writers in self._far:
                sent, taken = edge.ring.sent, 0 if back is None else back.acknowledged
                writers[sent % self._depth].write(body, sent + 1, step, weight, share, taken, at)
            self._deferred.carried(self._far_peers)
            if self._near:
                self._send_near(step, weight, share)
            for edge in self._outs:
                edge.ring.sent += 1
                edge.bytes_sent += self._nbytes
            self._deferred.started(self._far_peers)
            self._deferred.put_postponed()
        finally:
            self._deferred.give()
        self._queues.step = step
        self._count_step()
        return self._nbytes * len(self._outs), share

    def _may_send(self) -> bool:
        """Whether all peers have acknowledged enough, after some looks. One-sided."""
        for edge in self._outs:
            looks = 0
            while True:
                self._outbox.note_acknowledgement(edge)
                if edge.done:
                    return False
                if edge.ring.may_send(self._depth):
                    break
                if looks == _LOOKS:
                    return False
                looks += 1
                self._transport.progress()
        return True

    def _send_near(self, step: int, weight: float, share: float) -> None:
        """As `Outbox` sends to peers of this host: payloads, then headers. One-sided."""
        for edge in self._near:
            edge.put_lasting[edge.ring.next_slot]()
        self._flush_near()
        for edge in self._near:
            ring = edge.ring
            edge.headers[ring.next_slot](ring.sent + 1, step, WHOLE, 0, self._nbytes, weight, share)
        self._flush_near()

    def merge(self, is_mean: bool) -> Merged | InEdge | None:
        """Merge the message of this step of each sender into the array: the mean or the sum. One-sided.

        Where nothing was merged: the edge whose peer is behind, or None. `merge_later` goes on then.
        """
        step, nbytes, terms = self._queues.step, self._nbytes, self._terms
        for place, edge, views in self._ins:
            taken = edge.ring.taken
            slot = taken % self._depth
            seen = edge.headers[slot].read()
            if seen is None or seen[0] <= taken:
                return edge
            number, its_step, state, encoding, length = seen[:5]
            if number != taken + 1 or its_step != step or state != WHOLE or encoding or length != nbytes:
                return None
            terms[place] = views[slot]
        if self._near_ins:
            self._sync()  # the headers were read before the payloads
        try:
            self._add(is_mean)
        finally:  # numpy.seterr may have it raise
            self._take(step)
        return self._senders, (step,) * len(self._senders), 0

    def _add(self, is_mean: bool) -> None:
        """Replace the array by the mean or the sum of the terms, in their order; or not at all."""
        first, second, *others = self._terms
        total = self._total
        np.add(first, second, total)
        for term in others:
            np.add(total, term, total)
        if is_mean:
            self._divide(total, self._divisor, total)
        self._array[:] = total  # once it is whole: each of these may raise

    def _take(self, step: int) -> None:
        """Count the messages as merged, and acknowledge them. One-sided."""
        now = self._clock()
        for _, edge, _ in self._ins:
            edge.ring.take(edge.ring.taken + 1)
            edge.lag.note(0)
            if step > edge.step:
                edge.step, edge.heard_at = step, now
        self._sync()  # the messages have been read before their slots are given back
        for edge in self._near_ins:
            edge.acknowledge(edge.ring.taken, step, WHOLE)
            edge.acknowledged = edge.ring.taken
        if self._near_ins:
            self._flush_near_ins()
        self._deferred.acknowledge([edge for _, edge, _ in self._ins], step)
        self._queues.inbox.over = step

    def merge_later(
        self, behind: InEdge | None, sources: Callable[[], Iterable[int]], is_mean: bool
    ) -> Merged | None:  # fmt: skip
        """Merge after some more looks, or after the wait for a peer that is behind. One-sided.

        It waits as `Queues.receive`. None: nothing was merged, and it must be merged so. DeadlinePassed: as there.
        """
        if behind is None or not self._queues.step:
            return None
        merged = self._merged_briefly(behind, is_mean)
        if isinstance(merged, InEdge):
            self._queues.inbox.wait(sources, self._queues.step, None)
            merged = self.merge(is_mean)
        return merged if isinstance(merged, tuple) else None

    def _merged_briefly(self, behind: InEdge, is_mean: bool) -> Merged | InEdge | None:
        """As `merge`, after some more looks, while no peer has said that no message comes."""
        start = self._clock()
        self._deferred.before_wait()
        merged = self.merge(is_mean)
        looks = 0
        while isinstance(merged, InEdge) and looks < _LOOKS and not self._sends_none(merged):
            self._transport.progress()
            merged = self.merge(is_mean)
            looks += 1
        self._waiting.note("gather", behind, start)
        return merged

    def _sends_none(self, edge: InEdge) -> bool:
        """Whether the peer has published this step without a message, or closed. Local."""
        seen = edge.cells[-1].read()
        return seen is not None and (seen.step >= self._queues.step or seen.state == DONE)
