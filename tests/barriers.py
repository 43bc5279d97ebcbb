"""Barriers of simulated ranks, of which a test says when they look at each other."""

import threading

from dstorm import Group, SimulatedTransport
from dstorm.membership.barriers import barrier, gathering
from dstorm.membership.barriers.barrier import Barrier
from dstorm.view import FaultTolerantView, View
from dstorm.waits import interruption


def run(live, size=2, seed=0, deadline_s=1.0, kind=Barrier, tolerant=False, **options):
    """live(rank, barrier, transport) on all ranks; results by rank."""
    group = Group(size, seed)
    nbytes = barrier.nbytes if kind is Barrier else gathering.nbytes

    def start(rank):
        transport = SimulatedTransport(group, rank)
        transport.view = FaultTolerantView(size) if tolerant else View(size)
        options.update({"check_s": 0.02} if tolerant else {})
        mine = kind(transport, transport.window(nbytes(size)), deadline_s, **options)
        mine.leaves_puts = True  # where it may
        return live(rank, mine, transport)

    return group.run(start)


def until(transport, when, act=int):
    """Let the others go on until then; act() after each pause."""
    while transport.clock() < when:
        transport.pause(30)
        act()


def until_there(transport, some):
    """Let the others go on until `some` holds something."""
    while not some:
        transport.pause(1)


def before_looks(mine, act):
    """Call act(number) before each look of `mine` at the others, numbered from 1."""
    decision, looks = mine._decision, []

    def look(*arguments):
        looks.append(1)
        act(len(looks))
        return decision(*arguments)

    mine._decision = look


def interrupt():
    """What the handler of a signal leaves for the wait in which this thread is."""
    interruption.pending, interruption._thread = KeyboardInterrupt(), threading.get_ident()
