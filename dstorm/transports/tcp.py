"""The fault-tolerant transport over several hosts: shared memory inside a host, TCP links between hosts."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence

from dstorm.membership.resilient import SurvivingTransport
from dstorm.transports.links.arbiter import Arbiter, nbytes
from dstorm.transports.links.links import Links
from dstorm.transports.mapped import SpanningWindow
from dstorm.transports.shm import SharedMemory
from dstorm.transports.solo import LoneTransport
from dstorm.transports.transfer import TransferThread
from dstorm.view import Change, Member

_STOP_S = 1.0
"""How long to wait for the end of the transfer thread. It may be in a flush to a rank that is stopped."""


def host_name() -> str:
    """A name of this host that no other host has. Local.

    It ends in the boot id, as hosts may have the same name. Containers share the boot id of their host.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{os.uname().nodename}/{file.read().strip()}"
    except OSError:
        return os.uname().nodename


class LinkedTransport(SurvivingTransport):
    """The transport of ranks on several hosts, which goes on when some of them fail. Its constructor is Local.

    Puts to ranks of this host go to `memory`, all others over `links`. `arbiter`: that of `links`. `find_failed()`: the
    ranks of this host that have failed. `end(ranks)`: ends the processes of those of `ranks` that are on this host.
    `evict(rank)`, `readmit(rank, process)`: as in `SurvivingTransport`, for ranks of this host. With `evict` a rank of
    another host is asked to end. `absent`: as there.
    """

    def __init__(
        self, place: LoneTransport, memory: SharedMemory, links: Links, arbiter: Arbiter,
        find_failed: Callable[[], Sequence[int]], end: Callable[[Iterable[int]], None], deadline_s: float,
        leave: Callable[[str], object], evict: Callable[[int], bool] | None,
        readmit: Callable[[int, Sequence[int]], object] | None = None, absent: Collection[int] = (),
    ) -> None:  # fmt: skip
        self._links, self._arbiter = links, arbiter

        def evict_anywhere(rank: int) -> bool:
            """Evict a rank of any host. One-sided."""
            if evict is not None and rank in place.local_ranks:
                return evict(rank)
            links.evict(rank)
            return True

        def readmit_here(rank: int, process: Sequence[int]) -> None:
            """Admit a rank again if it is on this host. Local."""
            if readmit is not None and rank in place.local_ranks:
                readmit(rank, process)

        super().__init__(
            place, SpanningWindow(memory, links), lambda: [*find_failed(), *arbiter.failed()], deadline_s, leave,
            memory.discard, evict_anywhere if evict is not None else None,
            readmit_here if readmit is not None else None, absent,
        )  # fmt: skip
        if self.returns is not None:
            self.returns.propose = arbiter.propose
            self.returns.is_member = lambda: not arbiter.is_outside
        links.takes_part = self._takes_part
        self.carrier: TransferThread = TransferThread(self, deadline_s)
        arbiter.share(self._slice(nbytes(self.size)), place.local_peers)

        def part(change: Change) -> None:
            """Take nothing more from the ranks that have failed, and end those of this host. Local."""
            end([one.rank for one in filter(self._is_last, change.failed)])
            links.part({member.rank: member.incarnation for member in change.failed})

        self.view.subscribe(part)

    def _is_last(self, member: Member) -> bool:
        """Return whether no other process has taken its rank meanwhile. Local."""
        return self.view.incarnation(member.rank) == member.incarnation

    def _takes_part(self, rank: int, incarnation: int) -> bool:
        """Return whether that incarnation of `rank` takes part, as this rank sees it. Local."""
        takes_part = self.view.has(rank, incarnation)
        return takes_part and not self._barrier.is_outside

    def poll_failures(self, quietly: bool = False) -> None:
        """Find failed ranks, and give a heartbeat, once it is decided who goes on. One-sided."""
        self._links.settle()
        super().poll_failures(quietly)

    def was_cut_off(self, rank: int) -> bool:
        """Return whether the others go on without a rank (`Arbiter.was_cut_off`). Local."""
        return self._arbiter.was_cut_off(rank)

    def set_deadline(self, deadline_s: float) -> None:
        """Set how long a barrier waits for a rank that gives no heartbeat. Local."""
        super().set_deadline(deadline_s)
        self.carrier.waiting.deadline_s = deadline_s

    def depart(self) -> None:
        """Say that this rank ends in order, so that nobody takes it for cut off (`Links.close`). One-sided."""
        self.close()

    def close(self) -> None:
        """Close the connections (`Links.close`). Local."""
        self.carrier.stop(_STOP_S)
        self._links.close()
