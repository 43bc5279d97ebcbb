"""Simulated ranks on hosts as named, a link between hosts that takes virtual time, and what carries messages over it.

Each rank has a greenlet more, which stands for its transfer thread: it makes rounds whenever it is its turn.
"""

from __future__ import annotations

from greenlet import getcurrent

from dstorm import Group, SimulatedTransport
from dstorm.transports.simulated.transport import SimulatedWindow
from dstorm.transports.transfer import Rounds
from dstorm.view import View

ROUND_TRIP_S = 0.04


class CarriedGroup(Group):
    """`ranks` ranks, and the carrier of each."""

    def __init__(self, ranks: int, seed: int = 0) -> None:
        super().__init__(2 * ranks, seed)
        self.ranks = ranks
        self.left = ranks

    def _start(self, live):
        super()._start(live)
        self.size = self.ranks  # carriers are in no collective call

    @property
    def current(self) -> int:
        return self._greenlets.index(getcurrent())


class LinkWindow(SimulatedWindow):
    """A window whose flushes to other hosts take a round trip. Its caller is a rank or the carrier of one."""

    def __init__(self, group, rank, nbytes, hosts):
        super().__init__(group, rank, nbytes)
        self._hosts, self._home = hosts, rank

    @property
    def _rank(self):
        return self._group.current

    @_rank.setter
    def _rank(self, rank): ...

    def put(self, source, peer, offset):
        target = self._parts[peer][offset : offset + source.nbytes]
        self._start(peer, source.reshape(-1), target)
        self._group.maybe_switch(self._rank)

    def _start(self, peer, source, target):
        self._group.send(self._home, peer, source, target)

    def flush(self, peers):
        """Complete the Puts that the rank or its carrier has started, and no later ones."""
        pending = self._group.pending[self._home]
        started = {id(piece): piece for piece in pending if piece[0] in peers}
        self._group.maybe_switch(self._rank)
        if any(self._hosts[peer] != self._hosts[self._home] for peer in peers):
            self._group.switch(self._rank, ROUND_TRIP_S)
        arriving = [piece for piece in pending if id(piece) in started]
        pending[:] = [piece for piece in pending if id(piece) not in started]
        while arriving:
            self._group._deliver_one(arriving)
        self._group.maybe_switch(self._rank)


class LateWindow(LinkWindow):
    """A window whose Puts arrive when they are flushed, and no sooner: MPI does not promise more."""

    def _start(self, peer, source, target):
        super()._start(peer, source, target)
        self._group._sending.discard(self._home)


class LinkTransport(SimulatedTransport):
    """A rank of a CarriedGroup. `carried`: whether a carrier sends to other hosts."""

    kind = LinkWindow

    def __init__(self, group, rank, hosts, carried, view):
        super().__init__(group, rank)
        self.size, self.hosts, self.view = len(hosts), tuple(hosts), view(len(hosts))
        if carried:
            self.carrier = Rounds(self, 5.0)

    def progress(self):
        self._group.maybe_switch(self._group.current)

    def window(self, nbytes):
        return self.kind(self._group, self.rank, nbytes, self.hosts)


def run_carried(function, hosts="ab", seed=0, carried=True, kind=LinkWindow, view=View):
    """function(transport) on a rank for each letter of `hosts`; what it returned, by rank. `kind`: of their windows."""
    group = CarriedGroup(len(hosts), seed)
    transports = [LinkTransport(group, rank, hosts, carried, view) for rank in range(len(hosts))]
    for transport in transports:
        transport.kind = kind

    def live(place):
        if place < len(hosts):
            try:
                return function(transports[place])
            finally:
                group.left -= 1
        carrier = transports[place - len(hosts)].carrier
        while group.left:
            try:
                is_busy = carrier is not None and carrier.round()
            except Exception:  # as the transfer thread: `check` raises it
                break
            if not is_busy:
                group.switch(place, 1e-4)
        return None

    return group.run(live)[: len(hosts)]
