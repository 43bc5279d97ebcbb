"""Waits for peers, with a deadline. They name the missing ranks, and count the time waited."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass

from dstorm.errors import DeadlinePassed
from dstorm.transport import Transport
from dstorm.view import Member
from dstorm.waits import interruption
from dstorm.waits.stopwatch import Stopwatch
from dstorm.waits.wait import Wait

_YIELD_POLLS = 2_000
"""Number of polls of a wait that only yield the core. Later polls sleep."""
_NAP_S = 2e-4
"""The sleep. It is short, as after a barrier ranks may start as far apart as they slept."""
LONGEST_POLL_S = 0.25
"""The longest time between two polls of a wait, also on a busy machine. It counts where this process was stopped."""

_HEARTBEATS_AFTER = 0.1
"""The share of the deadline after which a wait for what this rank sends gives heartbeats."""


def yield_core(polls: int) -> None:
    """Let other processes of this host run between two polls of a wait, for longer after many polls. Local."""
    if polls < _YIELD_POLLS:
        os.sched_yield()
    else:
        time.sleep(_NAP_S)


@dataclass(eq=False)
class Awaited:
    """A peer, as a wait sees it. The edges of queues add what they know of it."""

    peer: int
    _: KW_ONLY
    heard_at: float
    """When the peer reached `step`, by this rank's clock."""
    step: int = 0
    """The newest step that the peer is known to have reached."""
    waited_s: float = 0.0
    """Seconds spent waiting for the peer."""
    done: bool = False
    """Whether the peer has closed its end."""
    member: Member | None = None
    """The member that is meant, as long as its rank has not come back here. None: any."""

    def renew(self, now: float, member: Member | None) -> None:
        """Begin anew with `member`, as one of the two ranks has come back."""
        self.heard_at, self.step, self.waited_s, self.done, self.member = now, 0, 0.0, False, member


class Waiting:
    """The waits of both ends of the queues."""

    def __init__(self, transport: Transport, deadline_s: float, notice: Callable[[], None]) -> None:
        self._transport, self._view = transport, transport.view
        self.notice = notice
        """Called between two polls. It raises where there is nothing to wait for any more."""
        self.deadline_s = deadline_s
        """How long an awaited rank may give no heartbeat; that of the session at first."""
        self.total_s = 0.0
        """Seconds waited. It may be less than the sum over the edges, as a wait may be for several peers."""

    def stopwatch(self) -> Stopwatch:
        """A stopwatch that is to be read in the polls of a wait. Local."""
        return Stopwatch(self._transport.clock, self._transport.longest_poll_s)

    def check_alive(self, edges: Iterable[Awaited]) -> None:
        """PeerLost: the peer of one of `edges` has failed. Local."""
        self._view.check_alive((edge.peer for edge in edges), "it failed while this rank waited for it")

    def until_none(
        self, what: str, missing: Callable[[], Sequence[Awaited]], timeout_s: float | None = None,
        moved_at: Callable[[], float] | None = None,
    ) -> bool:  # fmt: skip
        """Poll until `missing()` has no edge whose peer is alive; return whether it had any edge at first. One-sided.

        `what`: the call that waits, for errors.

        `moved_at()`: where it waits for what this rank itself sends, when some of that arrived last. Then the deadline
        counts from there: its receivers may wait for this rank, and have no heartbeat to give. In a long wait each time
        is a heartbeat of this rank. A queue that another thread closes waits, too.
        DeadlinePassed: `timeout_s` is over, or an awaited rank has given no heartbeat for the deadline of the session.
        Refused: this rank has come back, and those for which it waits wait for it in a barrier.
        """
        edges = missing()
        if not edges:
            return False
        edges = self._view.to_living(edges)
        transport = self._transport
        start = now = transport.clock()
        longest_poll_s = transport.longest_poll_s
        wait = Wait(transport.rank, transport.size, what, start, self.deadline_s, longest_poll_s=longest_poll_s)
        polls, past = 0, None
        until = start + (self.deadline_s if timeout_s is None else timeout_s)
        before_s = [(edge, edge.waited_s) for edge in edges] if transport.trace is not None else []
        try:
            while edges:
                is_due = wait.is_due(now)
                if timeout_s is not None and wait.seconds > timeout_s:
                    raise self._passed(wait, edges)
                if is_due:
                    if self._is_over(wait, edges, moved_at) and timeout_s is None:
                        raise self._passed(wait, edges)
                    if transport.returns is not None and moved_at is None:
                        past = transport.returns.check_past(what, wait.ranks, past)
                before = now
                transport.pause(polls, until)
                if moved_at is None:
                    self.notice()
                polls += 1
                now = transport.clock()
                for edge in edges:
                    edge.waited_s += now - before
                edges = self._view.to_living(missing())
                interruption.raise_in_wait()
        finally:
            self.total_s += now - start
            transport.end_wait()
            if transport.trace is not None:
                transport.trace.waited(what, start, now, [(one.peer, one.waited_s - was) for one, was in before_s])
        return True

    def _is_over(self, wait: Wait, edges: Sequence[Awaited], moved_at: Callable[[], float] | None) -> bool:
        """Return whether the deadline of `wait`, which is for the peers of `edges`, has passed. One-sided."""
        moved = max(wait.since, moved_at()) if moved_at is not None else 0.0
        is_news = moved > max(wait.heard.values(), default=wait.since)
        if is_news and wait.seconds > self.deadline_s * _HEARTBEATS_AFTER:
            self._transport.heartbeat()
        for edge in edges:
            edge.heard_at = max(edge.heard_at, moved)
        wait.ranks = [edge.peer for edge in edges]
        wait.heard = {edge.peer: edge.heard_at for edge in edges}
        is_over = self._transport.poll_wait(wait)
        return is_over if moved_at is None else wait.seconds_since(moved) > self.deadline_s

    def _passed(self, wait: Wait, edges: Sequence[Awaited]) -> DeadlinePassed:
        self._transport.end_wait(in_vain=True)
        heard_at = {edge.peer: max(edge.heard_at, self._transport.heard_at(edge.peer)) for edge in edges}
        silent_s = {peer: wait.seconds_since(heard) for peer, heard in heard_at.items()}
        return DeadlinePassed(wait.what, {edge.peer: edge.step for edge in edges}, silent_s)
