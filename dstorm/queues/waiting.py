"""Waiting for peers, with a deadline: who is awaited, since when they were silent, and how long it took."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from dstorm import interruption
from dstorm.errors import DeadlinePassed
from dstorm.transport import Transport
from dstorm.wait import Wait

_YIELD_POLLS = 2_000
"""Polls of a wait that only yield the core; those after them sleep."""
_NAP_S = 2e-4
"""Short: after a barrier the ranks start as far apart as they slept."""


def yield_core(polls: int) -> None:
    """Let other processes of this host run between two polls of a wait, longer after so many polls. Local."""
    if polls < _YIELD_POLLS:
        os.sched_yield()
    else:
        time.sleep(_NAP_S)


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

    def __init__(self, transport: Transport, deadline_s: float, notice: Callable[[], None]) -> None:
        self._transport, self._view = transport, transport.view
        self.notice = notice
        """To be called between two polls: raises where there is nothing to wait for any more."""
        self._deadline_s = deadline_s
        self.total_s = 0.0
        """Time on the clock, in which several peers may have been awaited."""

    def check_alive(self, edges: Iterable[Awaited]) -> None:
        """PeerLost: the peer of one of `edges` has failed. Local."""
        self._view.check_alive((edge.peer for edge in edges), "it died while this rank waited for it")

    def poll(self, edge: Awaited, polls: int) -> None:
        """Wait for what `edge` is about to hold, after so many polls. PeerLost: nothing more comes. Local."""
        if polls:
            self.check_alive([edge])
        self._transport.pause(polls)
        self.notice()

    @interruption.wait
    def until_none(
        self, what: str, missing: Callable[[], Sequence[Awaited]], timeout_s: float | None = None
    ) -> bool:  # fmt: skip
        """Poll until no edge to a rank that has not failed is lacking; whether any was. DeadlinePassed: `timeout_s` is
        over, or an awaited rank has given no sign of life for the deadline of the session."""
        edges = missing()
        if not edges:
            return False
        edges = self._view.to_living(edges)
        transport = self._transport
        start = now = transport.clock()
        wait = Wait(transport.rank, transport.size, what, start, self._deadline_s)
        polls = 0
        try:
            while edges:
                if timeout_s is not None and now - start > timeout_s:
                    raise self._passed(what, edges, now)
                if wait.is_due(now):
                    wait.ranks = [edge.peer for edge in edges]
                    wait.heard = {edge.peer: edge.heard_at for edge in edges}
                    if transport.attend(wait) and timeout_s is None:
                        raise self._passed(what, edges, now)
                before = now
                transport.pause(polls)
                self.notice()
                polls += 1
                now = transport.clock()
                for edge in edges:
                    edge.waited_s += now - before
                edges = self._view.to_living(missing())
        finally:
            self.total_s += now - start
            transport.end_wait()
        return True

    def _passed(self, what: str, edges: Sequence[Awaited], now: float) -> DeadlinePassed:
        self._transport.end_wait(in_vain=True)
        heard_at = {edge.peer: max(edge.heard_at, self._transport.heard_at(edge.peer)) for edge in edges}
        silent_s = {peer: now - heard for peer, heard in heard_at.items()}
        return DeadlinePassed(what, {edge.peer: edge.step for edge in edges}, silent_s)
