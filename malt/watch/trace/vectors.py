"""Vectors and blocks whose calls are written down. A session that is traced makes these in place of the others.

So who is not traced pays nothing for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dstorm import EdgeStatistics, Statistics
from dstorm.trace import EdgeTotals, Trace
from dstorm.transport import Transport
from dstorm.waits import interruption
from vol.blocks.blocks import Blocks
from vol.dense import DenseVector
from vol.merging.merge import AVG, GatherFunction, UserFunction
from vol.sharded.owned import OwnedVector
from vol.sharded.sparse.vector import SparseShardedVector
from vol.sharded.vector import ShardedVector
from vol.shared import Shared
from vol.sparse.vector import SparseVector
from vol.update import Gathered
from vol.vector import Vector


class Traced(Shared):
    """The base of what is traced."""

    _transport: Transport
    _trace: Trace
    _clock: Callable[[], float]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        assert self._transport.trace is not None
        self._trace, self._clock = self._transport.trace, self._transport.clock
        self._number = self._trace.name(repr(self).strip("<>").partition(", step")[0])

    def _at_close(self) -> Statistics:
        final = super()._at_close()
        self._trace.settle(self._unnoted(final.peers))
        return final

    def _unnoted(self, edges: Mapping[int, EdgeStatistics]) -> Mapping[int, EdgeTotals]:
        """Return what no event has noted, by peer; `edges`: the totals at the end."""
        return {}


class TracedVector(Traced, Vector):
    """A vector that notes its scatters and gathers, and what came of each message."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._noted = {edge.peer: (0, 0) for edge in self._queues.outbox.edges.values()}
        """The messages and the bytes that were noted, by receiver."""
        self._overwritten = {edge.peer: 0 for edge in self._queues.inbox.edges.values()}
        """The overwritten messages that were noted, by sender."""
        self._rings = [(edge.peer, edge.ring) for edge in self._queues.inbox.edges.values()]

    @interruption.whole
    def scatter(self, rows: Any = None, *, to: int | Iterable[int] | None = None, weight: float = 1.0) -> int:
        start = self._clock()
        nbytes = Vector.scatter(self, rows, to=to, weight=weight)
        self._trace.sent(self._number, self._step, start, self._clock(), self._messages_of())
        return nbytes

    @interruption.whole
    def gather(self, function: GatherFunction | UserFunction = AVG, *, timeout_s: float | None = None) -> Gathered:
        start = self._clock()
        gathered = Vector.gather(self, function, timeout_s=timeout_s)
        end, noted = self._clock(), self._overwritten
        overwritten: Sequence[tuple[int, int]] = ()
        for peer, ring in self._rings:
            if ring.overwritten != noted[peer]:
                overwritten = [*overwritten, (peer, ring.overwritten - noted[peer])]
                noted[peer] = ring.overwritten
        self._trace.merged(self._number, self._step, start, end, gathered.senders, gathered.steps, overwritten)
        return gathered

    def _messages_of(self) -> Sequence[tuple[int, int]]:
        """Receiver and bytes of each message of the last scatter.

        Of messages that leave by way of the outgoing buffer: those that have left since the scatter before.
        """
        messages = []
        for peer, edge in self._queues.outbox.edges.items():
            sent, before = self._noted[peer] if edge.ring.count >= self._noted[peer][0] else (0, 0)
            if edge.ring.count != sent:
                now, nbytes = self._queues.outbox.sent(peer)[:2]
                count = now - sent
                self._noted[peer] = now, nbytes
                messages += [(peer, (nbytes - before) // count)] * (count - 1)
                messages.append((peer, nbytes - before - (nbytes - before) // count * (count - 1)))
        return messages

    def _unnoted(self, edges: Mapping[int, EdgeStatistics]) -> Mapping[int, EdgeTotals]:
        unnoted = {}
        for peer, edge in edges.items():
            left = self._left_since(peer, edge) if self._queues.has_buffer else (0, 0)
            overwritten = edge.overwritten - self._overwritten.get(peer, edge.overwritten)
            unnoted[peer] = EdgeTotals(*left, overwritten=overwritten)
        return unnoted

    def _left_since(self, peer: int, edge: EdgeStatistics) -> tuple[int, int]:
        """The messages and bytes to a peer that no scatter has noted: what left after the last one."""
        messages, nbytes = self._noted.get(peer, (edge.sent - edge.superseded, edge.bytes_sent))
        return edge.sent - edge.superseded - messages, edge.bytes_sent - nbytes


class TracedDense(TracedVector, DenseVector):
    """A dense vector that is traced. A scatter to all is known by its bytes alone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._to_all = [(peer, self._bytes.nbytes) for peer in self._noted]
        self._nbytes_to_all = sum(nbytes for _, nbytes in self._to_all)
        self._scatters_to_all = 0
        """Those that `_noted` lacks."""

    @interruption.whole
    def scatter(self, rows: Any = None, *, to: int | Iterable[int] | None = None, weight: float = 1.0) -> int:
        start = self._clock()
        nbytes = Vector.scatter(self, rows, to=to, weight=weight)
        end = self._clock()
        if nbytes and nbytes == self._nbytes_to_all and not self._queues.has_buffer:
            self._scatters_to_all += 1
            messages: Sequence[tuple[int, int]] = self._to_all
        else:
            messages = self._messages_of()
        self._trace.sent(self._number, self._step, start, end, messages)
        return nbytes

    def _messages_of(self) -> Sequence[tuple[int, int]]:
        if count := self._scatters_to_all:
            self._scatters_to_all = 0
            for peer, (sent, before) in self._noted.items():
                self._noted[peer] = sent + count, before + count * self._bytes.nbytes
        return super()._messages_of()


class TracedSparse(TracedVector, SparseVector):
    """A sparse vector that is traced."""


class TracedBlocks(Traced, Blocks):
    """Blocks that note each pass, as a scatter of one message, and each arrival, as a gather of one."""

    def _pass_on(self, block: int) -> None:
        version = self._versions[block]
        receiver, start = self._routes[block].visitor(version), self._clock()
        super()._pass_on(block)
        if receiver != self._rank:
            sent = [(receiver, self._travelling[block].nbytes)]
            self._trace.sent(self._number, version, start, self._clock(), sent)

    def _take(self, block: int, version: int) -> None:
        giver, start = self._routes[block].giver(version), self._clock()
        super()._take(block, version)
        self._trace.merged(self._number, version, start, self._clock(), [giver], [version])


class TracedOwned(Traced, OwnedVector):
    """A sharded vector that notes its calls. The bytes that they move are noted when it is closed."""

    @contextlib.contextmanager
    def _begin(self, call: str, holds: bool = False) -> Iterator[None]:
        with self._trace.call(f"{self.name}.{call}"), super()._begin(call, holds):
            yield

    def _unnoted(self, edges: Mapping[int, EdgeStatistics]) -> Mapping[int, EdgeTotals]:
        return {
            peer: EdgeTotals(edge.sent, edge.bytes_sent, edge.gathered, edge.overwritten, edge.bytes_read)
            for peer, edge in edges.items()
        }  # fmt: skip


class TracedSharded(TracedOwned, ShardedVector):
    """A dense sharded vector that is traced."""


class TracedSparseSharded(TracedOwned, SparseShardedVector):
    """A sparse sharded vector that is traced."""


TRACED: dict[type[Shared], type[Any]] = {
    DenseVector: TracedDense,
    SparseVector: TracedSparse,
    Blocks: TracedBlocks,
    ShardedVector: TracedSharded,
    SparseShardedVector: TracedSparseSharded,
}
"""What is made in a session that is traced, by what is made in others."""
