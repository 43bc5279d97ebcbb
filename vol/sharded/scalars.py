"""Numbers that the ranks of a sharded vector find for their parts: all ranks get all of them, or raise the same error.

A number is sent as 8 bytes. An error is sent as its type and text: an odd number of bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from dstorm import ClosedError, PeerLost, Transport
from dstorm.queues.neighbours import of_other_hosts

NBYTES = 8
_TYPE_NBYTES = 16
_KINDS: dict[str, type[Exception]] = {kind.__name__: kind for kind in (ValueError, TypeError, ClosedError)}
"""Errors that stay what they are; any other one becomes a ValueError that names its type."""


class Scalars:
    """The exchange of scalars among `ranks`, which are ascending. A vector and its temporaries share one.

    `is_over`: whether the session has ended in this process, as in a child of a rank.
    """

    def __init__(self, transport: Transport, ranks: Sequence[int], is_over: Callable[[], bool]) -> None:
        self.transport, self._ranks, self._is_over = transport, ranks, is_over
        self._far = len(of_other_hosts(transport.hosts, transport.rank, ranks))
        self.bytes_sent = self.bytes_across = 0

    def count(self, nbytes: int) -> None:
        """Count `nbytes` that this rank sends to each of the others. Local."""
        self.bytes_sent += nbytes * (len(self._ranks) - 1)
        self.bytes_across += nbytes * self._far

    def of_all(self, what: str, find: Callable[[], Sequence[float]]) -> list[tuple[float, ...]]:
        """Return the results of find() on each of the ranks, in their order: the same on all ranks. Collective.

        `what`: the call, for errors. Where find() raises on some ranks, all ranks raise the error of the lowest of
        them: a TypeError, a ClosedError or a ValueError. ValueError, on all: it returns more numbers on one than on
        another. PeerLost, on all: one of the ranks has failed, and its part with it. ClosedError, on this rank: the
        session is over here.
        """
        error: Exception | None = None
        try:
            found = find()
            mine = struct.pack(f"@{len(found)}d", *found)
        except Exception as raised:  # of any type: the others must raise too
            error, kind = raised, type(raised).__name__
            text = str(raised) if kind in _KINDS else f"{kind}: {raised}"
            mine = kind.encode()[:_TYPE_NBYTES].ljust(_TYPE_NBYTES) + text.encode()
            mine += b" " * (len(mine) % 2 == 0)
        if self._is_over():
            raise ClosedError(f"{what}: the session is over in this process") from error
        with self.transport.calling(what):
            everyone = self.transport.allgather(mine)
        self.count(len(mine))
        for rank in self._ranks:
            if not everyone[rank]:
                raise PeerLost(rank, f"its part has failed with it, and {what} needs that")
        if reports := {rank: everyone[rank] for rank in self._ranks if len(everyone[rank]) % NBYTES}:
            raise self._reported(reports) from error
        counts = {len(everyone[rank]) // NBYTES for rank in self._ranks}
        if len(counts) > 1:
            raise ValueError(f"{what}: ranks exchange {min(counts)} and {max(counts)} numbers: their calls differ")
        return [struct.unpack(f"@{min(counts)}d", everyone[rank]) for rank in self._ranks]

    def _reported(self, reports: dict[int, bytes]) -> Exception:
        """The error of the lowest of the ranks that have reported one."""
        lowest, report = next(iter(reports.items()))
        kind = _KINDS.get(report[:_TYPE_NBYTES].decode().strip(), ValueError)
        is_everywhere = len(reports) == len(self._ranks) and len(set(reports.values())) == 1
        return kind(("" if is_everywhere else f"on rank {lowest}: ") + report[_TYPE_NBYTES:].decode().rstrip())
