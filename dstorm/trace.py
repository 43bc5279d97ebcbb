"""The interface `Trace`: where a rank writes down what its exchanges do, and when. Pure: no MPI, no clock.

A rank that is not traced has none. Times are seconds by the clock of its transport.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol


class EdgeTotals(NamedTuple):
    """The totals between this rank and a peer."""

    messages: int = 0
    """Sent to the peer."""
    nbytes: int = 0
    """Of them, in bytes."""
    merged: int = 0
    """Messages of the peer that were merged."""
    overwritten: int = 0
    """Messages of the peer that were overwritten."""
    nbytes_read: int = 0
    """Bytes read from the peer's memory."""


class Trace(Protocol):
    """The events of one rank. All methods are Local; any thread may call them."""

    def begun(self, now: float) -> None:
        """Note that this rank begins to train."""

    def name(self, text: str) -> int:
        """The number of a vector, of blocks or of a call, which `text` describes in one line."""

    def sent(self, name: int, step: int, start: float, end: float, messages: Sequence[tuple[int, int]]) -> None:
        """Note a scatter. `messages`: the receiver and the payload bytes of each message."""

    def merged(
        self, name: int, step: int, start: float, end: float, senders: Sequence[int], steps: Sequence[int],
        overwritten: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        """Note a gather at `step`. `senders`, `steps`: of each message that was merged.

        `overwritten`: senders, and how many messages of theirs were found to be overwritten.
        """

    def waited(self, what: str, start: float, end: float, peers: Iterable[tuple[int, float]]) -> None:
        """Note a wait in the call `what`. `peers`: the ranks waited for, and the seconds for each."""

    def yielded(self, start: float, end: float) -> None:
        """Note that this rank yielded its core to peers of its host that are behind."""

    def call(self, what: str) -> AbstractContextManager[None]:
        """Note a collective call, or a call of a sharded vector. Within another one it is not noted."""

    def settle(self, edges: Mapping[int, EdgeTotals]) -> None:
        """Note what came of the traffic with each peer, as far as no event has noted it."""
