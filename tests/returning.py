"""Simulated ranks that fail and are started again, or come later."""

from dstorm import Group, MismatchedCalls, SimulatedTransport
from dstorm.errors import Refused
from dstorm.membership.resilient import SurvivingTransport
from malt.session import session
from malt.session.world.creations import Newcomer, offer
from malt.session.world.endings import TolerantEnding
from malt.session.world.world import World

ARENA = 1 << 23


class Job:
    """Simulated ranks that are started again. `live(transport)` is called on each.

    `absent`: those that are not there at first, until they "fail".
    """

    def __init__(self, size, seed, failures, again, absent=()):
        self.absent = absent
        self.group = Group(size, seed, failures, again)
        self.arenas, self.ended, self.left, self.ready = {}, set(), set(), []
        self.away = set()
        """Ranks that count as failed still, as they are started again later."""

    def transport(self, rank):
        """The transport of `rank`, in its present incarnation."""
        group = self.group
        inner = SimulatedTransport(group, rank)
        arena = self.arenas.get(rank) or inner.window(ARENA)
        self.arenas[rank] = arena
        failed = lambda: [*inner.find_failed(), *self.away]  # noqa: E731
        made = SurvivingTransport(
            inner, arena, failed, 5.0, readmit=lambda rank, process: None, absent=self.absent
        )  # fmt: skip
        if group.incarnations[rank]:
            made.clear()
            made.returns.ask(group.incarnations[rank], (), lambda: group.failed | self.ended | self.away)
        return made

    def run(self, live):
        """The results of live(transport) by rank; "out" where it was refused, None where it has failed."""

        def start(rank):
            transport = self.transport(rank)
            while rank in self.absent and not self.group.incarnations[rank]:
                transport._place.pause(14)
            world = World(transport, 5.0, ending=TolerantEnding())
            transport.returns.offer = lambda: offer(world)
            opens = lambda: world.is_outside or transport.returns._common["opens"]  # noqa: E731
            note_ready = lambda: self.ready.append((rank, opens()))  # noqa: E731
            world.newcomer = Newcomer(transport, note_ready) if world.is_outside else None
            session.replace_world(world)
            try:
                result = live(transport)
                world.close()
            except Refused as why:
                result = f"out: {why}"
            except MismatchedCalls:  # it has ended before the others: they do not wait for it
                transport.close()
                self.left.add(rank)
            self.ended.add(rank)
            self.group.failed.add(rank)  # its process ends
            return result

        return self.group.run(start)
