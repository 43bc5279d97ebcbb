"""Pushes: rows on their way to their owners, in receive queues with flow control, and what has come from others.

A message holds the rows of one range, or row numbers and rows. The encoding of its header says which: the first row of
the range, or LISTED. Rows are counted from the owner's first one on.

A sender waits until a slot is free (`FLOW`). Meanwhile it adds what others have pushed to it, to all its sharded
vectors (`Transport.duties`): so ranks that push to each other never wait in a circle. An owner adds what has come in
its next call of malt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dstorm import Layout, Message, OutgoingMessage, PeerLost, Queues, Transport
from dstorm.transport import Bytes
from vol.sharded.layout import Numbers, ShardLayout
from vol.update import Array

LISTED: Final = -1
DEPTH: Final = 4
MESSAGE_NBYTES: Final = 1 << 16
MOST_NBYTES: Final = 1 << 20
"""The longest payload of a small and of a large vector, where a row is not longer."""
_FEW: Final = 8
"""Messages of fewer ranks are longer, and need fewer headers. Those from all others take as much memory together."""
_SHARE: Final = 20
"""The queues of a rank take so much less memory than its part, where the part is large."""
_NUMBER_NBYTES: Final = 8

Add = Callable[[slice | Numbers, Array], object]
"""A function that adds values to rows of this rank."""


def queue_layout(layout: ShardLayout) -> Layout:
    """The layout of the queues of a sharded vector, with its parts behind them. Pure."""
    rows, row = max(map(layout.count, layout.ranks)), layout.row_nbytes + _NUMBER_NBYTES
    share = max(map(layout.nbytes, layout.ranks)) // (_SHARE * DEPTH * len(layout.ranks))
    small = MESSAGE_NBYTES * max(_FEW // len(layout.ranks), 1)
    longest = min(rows * row, max(small, min(share, MOST_NBYTES)))

    def others(rank: int) -> list[int]:
        return [one for one in layout.ranks if one != rank]

    return Layout(others, others, DEPTH, max(row, longest), layout.nbytes)


def ranges(peer: int, start: int, values: Array, capacity: int) -> Iterator[OutgoingMessage]:
    """Messages of at most `capacity` bytes for the rows of `peer` from `start` on. Pure. They hold views."""
    rows = max(capacity // values[:1].nbytes, 1)
    for first in range(0, len(values), rows):
        body = _bytes(values[first : first + rows])
        yield OutgoingMessage(peer, body, None, body.nbytes, start + first)


def listed(peer: int, numbers: Numbers, values: Array, capacity: int) -> Iterator[OutgoingMessage]:
    """Messages of at most `capacity` bytes for rows of `peer` by their numbers. Pure. They hold views."""
    rows = max(capacity // (values[:1].nbytes + _NUMBER_NBYTES), 1)
    for first in range(0, len(values), rows):
        body, tail = _bytes(numbers[first : first + rows]), _bytes(values[first : first + rows])
        yield OutgoingMessage(peer, body, tail, body.nbytes + tail.nbytes, LISTED)


def _bytes(array: NDArray[np.generic]) -> Bytes:
    return array.reshape(-1).view(np.uint8)


def read(message: Message, layout: ShardLayout, rank: int) -> tuple[slice | Numbers, Array] | None:
    """The rows of `rank` and the values that a message holds, views; None where it is invalid. Pure."""
    payload = message.payload
    width = layout.row_nbytes + (_NUMBER_NBYTES if message.encoding == LISTED else 0)
    length, rest = divmod(payload.nbytes, width)
    rows: slice | Numbers
    if message.encoding == LISTED:
        rows = payload[: length * _NUMBER_NBYTES].view(np.int64)
        payload = payload[length * _NUMBER_NBYTES : length * width]
    else:
        rows = slice(message.encoding, message.encoding + length)
        payload = payload[: length * width]
    values = payload.view(layout.dtype).reshape(length, *layout.row_shape)
    return None if rest or not layout.owns(rank, rows) else (rows, values)


class PushQueues:
    """The pushes of one rank: what it sends, and what has come. `add`: adds what has come. `name`: for errors."""

    def __init__(self, transport: Transport, layout: ShardLayout, queues: Queues, add: Add, name: str) -> None:
        self._layout, self._rank, self._name = layout, transport.rank, name
        self._queues, self._add = queues, add
        self._capacity = queue_layout(layout).capacity
        self._sent = 0

    def send(self, pieces: Sequence[tuple[int, slice | Numbers, Array]]) -> None:
        """Return once the values are in the queues of their owners. One-sided.

        `pieces`: by owner, another rank, its rows and their values. It waits for free slots, and goes round the owners
        meanwhile. DeadlinePassed: an owner has taken nothing. PeerLost: an owner has failed, or has closed the vector.
        """
        ways = [self._messages(*piece) for piece in pieces]
        while ways:
            sending = [(way, message) for way in ways if (message := next(way, None)) is not None]
            ways, messages = [way for way, _ in sending], [message for _, message in sending]
            if messages:
                self._sent += 1
                nbytes, _ = self._queues.send_each(messages, self._sent, what=f"{self._name}.push")
                if nbytes < sum(message.nbytes for message in messages):
                    edges = [self._queues.outbox.edges[message.peer] for message in messages]
                    raise PeerLost(min(edge.peer for edge in edges if edge.done), f"it has closed {self._name}")

    def _messages(self, owner: int, rows: slice | Numbers, values: Array) -> Iterator[OutgoingMessage]:
        if isinstance(rows, slice):
            return ranges(owner, rows.start, values, self._capacity)
        return listed(owner, rows, values, self._capacity)

    def absorb(self) -> None:
        """Add what has come, each value once, and acknowledge it. One-sided."""
        messages = self._queues.receive(tuple, newest=False)
        added: list[Message] = []
        for message in messages:
            if (found := read(message, self._layout, self._rank)) is None:
                self._queues.inbox.refuse(message)
            else:
                self._add(*found)
                added.append(message)
        if messages:
            self._queues.acknowledge(added)
