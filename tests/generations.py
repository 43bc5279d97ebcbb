"""What ranks promise of their generations: members that fail at any Put, and come back, played turn by turn.

`check_generation(schedule)` plays one schedule of real barriers (dstorm/membership/barriers/barrier.py). A rank that
fails has delivered any of the Puts that were under way, as on a network.
"""

import contextlib
import random
import zlib

import numpy as np
from schedules import every_schedule

from dstorm import Group, SimulatedTransport
from dstorm.errors import Refused
from dstorm.membership.barriers.barrier import Barrier, nbytes
from dstorm.membership.decision import ranks
from dstorm.membership.returns import board
from dstorm.membership.returns.board import Board
from dstorm.membership.returns.returns import Returns
from dstorm.view import FaultTolerantView

QUIET_ROUNDS = 40


class Died(BaseException):
    """This process has ended."""


class Drawn:
    """A schedule that a seed draws: most Puts go well."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    def choose(self, options, is_fault=False):
        return 0 if is_fault and self._random.random() < 0.9 else self._random.randrange(options)


class Memory:
    """A window of one rank, whose Puts arrive with their flush."""

    def __init__(self, job, rank, parts):
        self.memory, self._job, self._rank, self._parts, self._pending = parts[rank], job, rank, parts, []

    def put(self, source, peer, offset):
        self._pending.append((self._parts[peer][offset : offset + source.nbytes], source.copy()))

    def flush(self, peers):
        pending, self._pending = self._pending, []
        some = self._job.fate(len(pending))
        for place, (target, source) in enumerate(pending):
            if some is None or some >> place & 1:
                self._job.meanwhile()
                self._job.changes += target.tobytes() != source.tobytes()
                target[:] = source
        if some is not None:
            self._job.die(self._rank)

    def sync(self): ...


class Process:
    """One incarnation of a rank, and its barriers."""

    def __init__(self, job, rank, incarnation):
        self.job, self.rank, self.incarnation = job, rank, incarnation
        self.known = dict.fromkeys({*range(job.size)} - {rank}, 0)
        """The incarnations of whose processes this one sees the end."""
        self.left = {}
        """The decisions at barriers that it has left."""
        transport = SimulatedTransport(Group(1, 0), 0)
        transport.rank, transport.size, transport.view = rank, job.size, FaultTolerantView(job.size)
        notes = Memory(job, rank, job.notes)
        readmit = lambda peer, process: self.known.update({peer: process[0]})  # noqa: E731
        self.returns = transport.returns = Returns(Board(notes, rank), transport.view, rank, None, readmit)
        self.barrier = Barrier(transport, Memory(job, rank, job.cells), 5.0, self.find_failed, self.leave)
        self.returns.offer = lambda: {"entered": self.barrier.next_number - 1}
        self.view = transport.view
        job.processes[rank] = self
        if incarnation:
            self.returns.ask(incarnation, (incarnation,) * 3, self.ended)
            self.returns._ask()

    def find_failed(self):
        return [peer for peer, one in self.known.items() if self.job.has_ended(peer, one)]

    def ended(self):
        return {peer for peer, one in enumerate(self.job.processes) if one is None}

    def leave(self, why):
        self.job.left_out.append((self.rank, why))
        self.job.die(self.rank)

    def turn(self, meets):
        """Look for failures, or enter a barrier and look who has."""
        barrier = self.barrier
        if barrier.is_outside and self.job.fate(0) is not None:
            self.job.die(self.rank)
        if barrier.is_outside:
            if (words := self.returns._admitting(self.incarnation)) is not None:
                assert self.returns._begin(words)["entered"] == barrier.next_number - 1
            elif not self.job.deaths:
                self.returns._ask()
            return
        if not meets:
            return barrier.check()
        if not barrier._is_inside:
            barrier._name = b"a test"
            barrier.membership.enter(zlib.crc32(barrier._name))
            barrier._is_inside = True
            barrier._publish()
        number = barrier.next_number - 1
        if (decision := barrier._decision(number, "a test")) is not None:
            barrier._is_inside, self.left[number] = False, decision
            words = barrier.membership.words
            for rank in ranks(decision):
                assert rank in self.view.failed or words[rank].entered >= number, "it counts as alive"


class Job:
    """`size` ranks. `deaths`: how many may fail at their Puts; `lives`: how many are started again.

    `overlaps`: whether others may have a turn between what a rank has read and its Puts.
    """

    def __init__(self, size, schedule, lives, overlaps):
        self.size, self.schedule, self.lives, self.deaths, self.overlaps = size, schedule, lives, 0, overlaps
        self.busy, self.changes = set(), 0
        self.cells = [np.zeros(nbytes(size), np.uint8) for _ in range(size)]
        self.notes = [np.zeros(board.nbytes(size), np.uint8) for _ in range(size)]
        self.incarnations, self.left_out = [0] * size, []
        self.processes = [None] * size
        for rank in range(size):
            Process(self, rank, 0)

    def fate(self, puts):
        """None: all Puts arrive; else the process ends, and these do, as a mask."""
        found = self.schedule.choose(1 + (1 << puts), is_fault=True) if self.deaths else 0
        self.deaths -= bool(found)
        return found - 1 if found else None

    def meanwhile(self):
        """Give another rank a turn, where the schedule says so."""
        idle = [rank for rank, one in enumerate(self.processes) if one is not None and rank not in self.busy]
        found = self.schedule.choose(1 + 2 * len(idle), is_fault=True) if self.overlaps else 0
        if found:
            self.turn(idle[(found - 1) // 2], meets=bool(found % 2))

    def die(self, rank):
        self.processes[rank] = None
        raise Died

    def has_ended(self, rank, incarnation):
        one = self.processes[rank]
        return one is None or one.incarnation > incarnation

    def start_again(self, rank):
        self.incarnations[rank] += 1
        self.lives -= 1
        self.busy.add(rank)
        with contextlib.suppress(Died):
            Process(self, rank, self.incarnations[rank])
        self.busy.discard(rank)

    def turn(self, rank, meets=False):
        if self.processes[rank] is None:
            return
        self.busy.add(rank)
        try:
            self.processes[rank].turn(meets)
        except (Died, Refused):
            self.processes[rank] = None
        self.busy.discard(rank)
        self.check()

    def members(self):
        return [one for one in self.processes if one is not None and not one.barrier.is_outside]

    def check(self):
        """Who goes on knows one generation of each number, and has left each barrier with one list."""
        decisions = {}
        for one in self.members():
            for number, decision in one.left.items():
                assert decisions.setdefault(number, decision) == decision, (number, decisions[number], decision)


def check_generation(schedule, size=3, turns=6, deaths=1, lives=1, first=2, overlaps=False):
    """Play one schedule: rank `first` has failed, and is started again. In the end all that live are members of one
    generation, and meet."""
    job = Job(size, schedule, lives, overlaps)
    job.processes[first] = None
    for rank in range(size):
        job.turn(rank)
    job.start_again(first)
    job.deaths = deaths
    for _ in range(turns):
        living = [rank for rank, one in enumerate(job.processes) if one is not None]
        dead = [rank for rank, one in enumerate(job.processes) if one is None] if job.lives else []
        if not living:
            return job
        choice = schedule.choose(2 * len(living) + len(dead))
        if choice >= 2 * len(living):
            job.start_again(dead[choice - 2 * len(living)])
        else:
            job.turn(living[choice // 2], meets=bool(choice % 2))
    settle(job)
    return job


def settle(job):
    """All is quiet: who lives comes in, and all enter the same barriers."""
    job.deaths, job.overlaps = 0, False
    was_member = bool(job.members())
    calm_down(job, more=0)
    calm_down(job, more=1)
    members = job.members()
    assert members or not was_member, "somebody goes on"
    alive = tuple(one.rank for one in members)
    assert not job.left_out, job.left_out
    for one in members:
        assert one.view.alive == alive and not one.barrier._is_inside, (one.rank, one.view.alive, alive)
        assert [one.view.incarnation(rank) for rank in alive] == [job.incarnations[rank] for rank in alive]
    if members:
        assert all(one is None or one in members for one in job.processes), "nobody is left outside"


def calm_down(job, more):
    """Give all ranks turns until two rounds change nothing. All enter as many barriers as any has, and `more`."""
    furthest, states = more + max((one.barrier.next_number - 1 for one in job.members()), default=0), []
    while len(states) < 3 or not states[-1] == states[-2] == states[-3]:
        assert len(states) < QUIET_ROUNDS, "they come to no end"
        for rank in range(job.size):
            job.turn(rank)
            one = job.processes[rank]
            if one in job.members() and (one.barrier._is_inside or one.barrier.next_number - 1 < furthest):
                job.turn(rank, meets=True)
        furthest = max((one.barrier.next_number - 1 for one in job.members()), default=0)
        states.append((job.changes, [one and (one.barrier.next_number, one.view.alive) for one in job.processes]))


def played(**options):
    """The number of all schedules."""
    count = 0
    for schedule in every_schedule():
        check_generation(schedule, **options)
        count += 1
    return count
