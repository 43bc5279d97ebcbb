"""The steps of a sharded vector under ssp: how many pushes of each rank its owners have added."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

from dstorm import Layout, Queues, Transport
from dstorm.queues.consistency import Consistency
from dstorm.queues.sending.edge import OutEdge
from dstorm.queues.waits.waiting import Awaited


class Clock:
    """The clock of one rank. The constructor is Collective.

    A push is a step. A rank tells all others the newest of its steps that every owner has added, so who reads after
    that reads what was pushed in it. It does not tell a step that it has only sent: the owner may not have called
    malt since. `pushes`: the queues of the vector's pushes.
    """

    def __init__(
        self, transport: Transport, ranks: Sequence[int], pushes: Queues, consistency: Consistency, deadline_s: float
    ) -> None:  # fmt: skip
        self._transport, self._pushes, self._consistency = transport, pushes, consistency

        def others(rank: int) -> list[int]:
            return [one for one in ranks if one != rank]

        self._queues = Queues(transport, Layout(others, others, 1, 0), consistency, deadline_s)
        self._telling = threading.Lock()
        self._step = 0
        self._under_way: deque[tuple[int, dict[int, int]]] = deque()
        """Steps that some owner may not have added, with the number of the last message to each owner."""
        transport.duties.append(self.tell)

    def tick(self) -> None:
        """Count a push, all of which has been sent. One-sided."""
        self._step += 1
        edges = self._pushes.outbox.edges
        self._under_way.append((self._step, {peer: edge.ring.sent for peer, edge in edges.items()}))
        self.tell()

    def tell(self) -> None:
        """Tell the others which step has been added, where that is a newer one. One of the duties."""
        if self._telling.acquire(False):
            try:
                with self._pushes.reading, self._queues.call_lock.lock:  # another thread may close and free them
                    while not self._queues.closed and self._under_way and not self._behind(self._step):
                        step, _ = self._under_way.popleft()
                        self._queues.send_each([], step, what="push")
            finally:
                self._telling.release()

    def wait(self, what: str) -> None:
        """Return once the steps that the vector's mode demands have been added, this rank's own too. One-sided.

        `what`: for errors. DeadlinePassed.
        """
        self.tell()
        awaited = self._consistency.awaited_step(self._step)
        edges, clock = self._queues.inbox.edges.values(), self._transport.clock

        def missing() -> list[Awaited]:
            """The owners that are behind with this rank's pushes, and the ranks that have not come as far."""
            self._queues.window.sync()
            return [*self._behind(awaited), *(edge for edge in edges if not edge.is_seen_at(awaited, clock))]

        self._queues.waiting.until_none(what, missing)

    def stop(self, what: str) -> None:
        """Have nobody wait for this rank from here on, once all that it has pushed was added. One-sided."""
        if not self._queues.closed:
            if self._under_way:
                owing = partial(self._owing, self._under_way[-1][1])
                self._pushes.waiting.until_none(what, owing, None, lambda: self._heard_at(owing()))
            self.leave()

    def leave(self) -> None:
        """The same at once. One-sided. A second call does nothing."""
        if self.tell in self._transport.duties:
            self._transport.duties.remove(self.tell)
        self._queues.close()

    def free(self) -> None:
        """Free its memory. Collective."""
        self._queues.free()

    @property
    def waited_s(self) -> float:
        """The time for which this rank has waited for others. Local."""
        return self._queues.waiting.total_s

    def _behind(self, step: int) -> list[OutEdge]:
        """The owners that have not added the first step that is under way, where it is none after `step`."""
        if not self._under_way or self._under_way[0][0] > step:
            return []
        return self._owing(self._under_way[0][1])

    def _heard_at(self, edges: Sequence[OutEdge]) -> float:
        """Return the time at which the most silent of these peers was last heard of."""
        return min((self._transport.heard_at(edge.peer) for edge in edges), default=0.0)

    def _owing(self, sent: Mapping[int, int]) -> list[OutEdge]:
        """The owners that have not added all of the messages that were `sent`, by the number of the last one."""
        outbox = self._pushes.outbox
        self._pushes.window.sync()
        for edge in outbox.edges.values():
            outbox.note_acknowledgement(edge)
        return [edge for peer, edge in outbox.edges.items() if edge.ring.taken < sent[peer] and not edge.done]
