"""Messages to ranks whose memory this process maps, and to all others where nothing shorter is possible.

A scatter takes three flushes, which all its peers share: mark, payload, publish. In memory of this host a Put is a copy
and a flush a fence. Where receivers acknowledge, nobody reads the slot that is written, so it needs no mark.
"""

from __future__ import annotations

from collections.abc import Sequence

from dstorm.header import WHOLE, WRITING
from dstorm.queues.sending.edge import OutEdge
from dstorm.queues.sending.unsent import Join
from dstorm.transport import Window


class NearEdges:
    """The edges whose messages are in the memory of their peers when the scatter returns. Its constructor is Local.

    `marks`: whether receivers may read the slot that is written.
    """

    def __init__(self, window: Window, edges: Sequence[OutEdge], marks: bool) -> None:
        self.edges = {edge.peer: edge for edge in edges}
        self._marks = marks
        self._flush = window.prepared_flush(list(self.edges))

    def send(self, edges: Sequence[OutEdge], step: int, weight: float, share: float, join: Join) -> int:
        """Send the messages of `edges`, and the step to all others; return the bytes that are sent. One-sided.

        `join` is not used: no message waits.
        """
        if self._marks:
            for edge in edges:
                edge.headers[edge.slot](edge.ring.sent + 1, step, WRITING)
            self._flush()
        for edge in edges:
            edge.put_payload()
        self._flush()
        sent = 0
        for edge in edges:
            _, _, _, nbytes, encoding = edge.message
            edge.ring.sent += 1
            edge.bytes_sent += nbytes
            sent += nbytes
            edge.headers[edge.slot](edge.ring.sent, step, WHOLE, encoding, nbytes, weight, share)
        if len(edges) < len(self.edges):
            for edge in self.edges.values():
                if edge not in edges:
                    edge.say(step, WHOLE)
        self._flush()
        return sent
