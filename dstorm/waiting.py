"""Waiting for peers, with a deadline: who is awaited, since when they were silent, and how long it took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dstorm.errors import DeadlinePassed
from dstorm.transport import Transport


class Awaited(Protocol):
    """An edge whose peer can be waited for."""

    peer: int
    step: int
    """The peer's newest step that is known."""
    heard_at: float
    """When it last made one."""
    waited_s: float


class Waiting:
    """All waits of one segment."""

    def __init__(
        self, transport: Transport, deadline_s: float, notice: Callable[[], None] = lambda: None
    ) -> None:  # fmt: skip
        self._transport = transport
        self._notice = notice
        self._deadline_s = deadline_s
        self.total_s = 0.0
        """Time on the clock, in which several peers may have been awaited."""

    def until_none(self, what: str, lacking: Callable[[], Sequence[Awaited]], timeout_s: float | None) -> None:
        """Poll until no edge is lacking. DeadlinePassed: `timeout_s` is over, or an awaited rank has made no step
        for the deadline of the session."""
        edges = lacking()
        if not edges:
            return
        start = now = self._transport.clock()
        polls = 0
        try:
            while edges:
                self._check(what, edges, start, now, timeout_s)
                before = now
                self._transport.pause(polls)
                self._notice()
                polls += 1
                now = self._transport.clock()
                for edge in edges:
                    edge.waited_s += now - before
                edges = lacking()
        finally:
            self.total_s += now - start

    def _check(self, what: str, edges: Sequence[Awaited], start: float, now: float, timeout_s: float | None) -> None:
        if timeout_s is not None:
            is_over = now - start > timeout_s
        else:
            is_over = max(now - max(edge.heard_at, start) for edge in edges) > self._deadline_s
        if is_over:
            silent_s = {edge.peer: now - edge.heard_at for edge in edges}
            raise DeadlinePassed(what, {edge.peer: edge.step for edge in edges}, silent_s)
