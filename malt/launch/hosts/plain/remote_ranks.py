"""The ranks of a job of plain processes on other hosts, as its launcher sees them: by the agent of each host
(malt/launch/hosts/agent/ranks.py).

Where a host is not heard of any more, its ranks may be those that go on. So nothing is ended then but the launcher,
once its own ranks have left, and it says where the others print and how they are ended. What was given up so stays so,
also where such a host is heard of again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from dstorm.waits.stopwatch import Stopwatch
from dstorm.words import named
from malt.launch.command import RUNNER
from malt.launch.hosts import findings
from malt.launch.hosts.agent.ranks import EXITED
from malt.launch.hosts.connection import ENDED, Connection, Silent
from malt.launch.hosts.plain.starter import ENDING
from malt.launch.hosts.remote import RemoteHosts
from malt.launch.streams.display import say
from malt.runner import reporting, roster
from malt.runner.events import Event, Kind, event
from malt.runner.program import PIPES

SILENT_S, SILENT_ALONE_S = 5.0, 30.0
"""A host that was not heard of for so long is cut off, or down, for the end of a job whose ranks here have left; and of
one that never had ranks here. SILENT_S after the end of a host's ranks no report of them comes any more."""
START_S = 60.0
"""How long ssh may take until the agent has started its ranks."""
_UNHEARD_S = 2.0
"""How long after the end of a host's ranks their first report may come, before they have met the others."""
_ENDS_S, _POLL_S = 5.0, 0.05
"""How long an agent may take to end."""
_PULSES = 2
"""After so many pulses without a piece of what ranks have printed no more is expected at the end."""
_REST_S, _REST_OF_FAILED_S = 600.0, 10.0
"""How long what ranks have printed may take to come at the end: where the job has ended well, and else, as ranks there
may still print."""


class RanksOfHost:
    """The `ranks` of a job of `size` that the agent starts to which there is a `connection`. `add`: takes its events.

    Times are those in which this process ran: `poll` is called in a loop.
    """

    def __init__(
        self, connection: Connection, ranks: Sequence[int], size: int, program: Sequence[str],
        environ: Mapping[str, str], folder: Path, add: Callable[[Event], object],
    ) -> None:  # fmt: skip
        self._add = add
        self.connection, self.host, self.ranks, self._folder = connection, connection.host, tuple(ranks), folder
        found = roster.read(folder)
        self._first = {rank for rank in ranks if found is None or rank < found.first}
        """Those with which the job begins."""
        self.agent: int | None = None
        """The number of the agent's process, once it has started the ranks."""
        self.is_swept = False
        """Whether another agent was asked to end what is left there."""
        self.is_done = threading.Event()
        self._age, self._done = Stopwatch(), Stopwatch()
        """Since the agent was told to start them, and since `is_done`."""
        self._why = ""
        """Why the ranks there cannot start, as the agent has said."""
        self.is_printing = False
        """Whether a piece that ranks there have printed is being printed here."""
        self.pulses = 0
        """How often it was heard of since the last piece, when it had no more."""
        self._outputs: dict[tuple[int, int], int] = {}
        connection.take = self._take
        connection.ask("start", {
            "ranks": list(ranks), "size": size, "words": [sys.executable, RUNNER, *program], "folder": str(folder),
            "cwd": os.getcwd(), "environment": dict(environ), "roster": roster.written(folder),
            "key": (folder / reporting.KEY).read_text(encoding="utf-8"),
        })  # fmt: skip

    def poll(self) -> None:
        """Let time pass."""
        for one in (self._age, self._done, self.connection.silence):
            one.seconds()

    def is_left_alone(self) -> bool:
        """Return whether its agent has ended before its ranks, as far as is known, and nobody was asked to end them."""
        return not (self.agent is None or self.connection.is_open or self.is_done.is_set() or self.is_swept)

    def sweep_by(self, connection: Connection, is_ours: bool) -> None:
        """Have the agent of another `connection` end what is left there, where the one before was killed.

        `is_ours`: whether that has made the folder of the job there.
        """
        self.is_swept = True
        self.connection = connection
        connection.take = self._take
        connection.ask("sweep", [str(self._folder), self.agent, is_ours])

    def silent_s(self) -> float:
        """For how long it was not heard of; 0 before it has started ranks, and while what they print cannot be."""
        return 0.0 if self.agent is None or self.is_printing else self.connection.silence.seconds()

    def failure(self, heard: Collection[int]) -> str:
        """Return why the ranks there cannot meet the others, or "". `heard`: the ranks that have reported anything."""
        names = named(self.ranks)
        if self._why:
            return f"host {self.host}: {names} cannot start there: {self._why}"
        if self.agent is None and not self.connection.is_open:
            return findings.of_shell(self.host, *self.connection.ended(), sys.executable)
        if self.agent is None and self._age.seconds() > START_S:
            return f"host {self.host}: nothing has come from it for {START_S:.0f} s, {names} cannot start there"
        unheard = sorted(self._first - set(heard))
        if unheard and self.is_done.is_set() and self._done.seconds() > _UNHEARD_S:
            return f"host {self.host}: {named(unheard)} ended there without a report, and could not start or connect"
        return ""

    def is_unheard(self, members: Collection[int]) -> bool:
        """Return whether its ranks have ended, and some of `members` have not reported that in another way."""
        return self.has_been_done() and bool({*self.ranks} & {*members})

    def has_been_done(self) -> bool:
        """Return whether its ranks ended so long ago that what they have reported has come."""
        return self.is_done.is_set() and self._done.seconds() > SILENT_S

    def _take(self, what: str, value: Any) -> bool:
        if what == "printed":
            self.pulses = 0
            self._print(*value)
        elif what == "alive":
            self.pulses += 1
        elif what == "started":
            self.agent = value
        elif what == "said":
            say(f"{value}\n")
        elif what == EXITED:
            rank, incarnation, status = value
            self._add(event(Kind.EXITED, rank, f"{incarnation} {status}"))
        elif what == "failed":
            self._why = str(value)
        elif what == "done":
            self._done.restart()
            self.is_done.set()
        elif what in ("clean", ENDED):  # nothing of this job comes after it
            while self._outputs:
                os.close(self._outputs.popitem()[1])
        return what != "clean"

    def _print(self, rank: int, number: int, piece: str) -> None:
        """Write what a rank has printed to its pipe in the folder of the job, as ranks of this host do themselves."""
        data = piece.encode("latin-1")
        self.is_printing = True
        with contextlib.suppress(OSError):  # the job has ended, and nobody reads
            if (rank, number) not in self._outputs:
                pipe = os.open(self._folder / f"{PIPES[number]}-{rank}", os.O_WRONLY | os.O_NONBLOCK)
                os.set_blocking(pipe, True)
                self._outputs[rank, number] = pipe
            while data:
                data = data[os.write(self._outputs[rank, number], data) :]
        self.connection.silence.restart()
        self.is_printing = False


class RemoteRanks:
    """The ranks of a job on other hosts. `by_host`: those on each, by its name. `remote`: these hosts."""

    def __init__(
        self, by_host: Mapping[str, Sequence[int]], size: int, program: Sequence[str], environ: Mapping[str, str],
        folder: Path, remote: RemoteHosts,
    ) -> None:  # fmt: skip
        self._hosts = [
            RanksOfHost(remote.connection(host), ranks, size, program, environ, folder, remote.add)
            for host, ranks in by_host.items()
        ]
        self._folder, self._remote = folder, remote
        has_own = sum(len(one.ranks) for one in self._hosts) < size
        self._silent_s = SILENT_S if has_own else SILENT_ALONE_S
        self.left: list[RanksOfHost] = []
        """Those that are given up, on which ranks may go on."""
        self._has_failed = self._is_ending = False
        self._roster = ""
        """The roster that the other hosts were given last, after their start."""
        self.last_words = ""
        """The line that ends the output where ranks may go on without this host, as `leave` was called; else ""."""

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._hosts)

    def unreached(self) -> set[int]:
        """The ranks of which no more is heard: their hosts are not, or they ended there a while ago."""
        lost = [one for one in self._hosts if self._is_silent(one) or one.has_been_done()]
        return {rank for one in lost for rank in one.ranks}

    def have_failed(self, heard: Collection[int]) -> bool:
        """Return whether ranks of a host cannot meet the others. Prints why, once.

        `heard`: as for `RanksOfHost.failure`.
        """
        for one in self._hosts:
            one.poll()
            if one.is_left_alone():
                one.sweep_by(*self._remote.connected_anew(one.host))
        if not self._has_failed and (why := next(filter(None, (one.failure(heard) for one in self._hosts)), "")):
            self._has_failed = True
            say(f"malt run: {why}\n")
        return self._has_failed

    def stop_starting(self) -> None:
        """Have no failed rank started again any more, once the job ends (ENDING)."""
        if self._hosts and not self._is_ending and (self._folder / ENDING).exists():
            self._is_ending = True
            for one in self._hosts:
                one.connection.ask(ENDING)

    def pass_on_roster(self) -> None:
        """Let the other hosts have the roster of the job, where it has changed."""
        if self._hosts and (line := roster.written(self._folder)) != self._roster:
            self._roster = line
            for one in self._hosts:
                one.connection.ask(roster.FILE, line)

    def is_cut_off(self, members: Collection[int]) -> bool:
        """Return whether this host has lost some others, and none of the ranks `members` runs on those it hears."""
        lost = [one for one in self._hosts if self._is_silent(one) or one.is_unheard(members)]
        heard = [one for one in self._hosts if one not in lost]
        return bool(lost) and all(one.is_done.is_set() or not {*one.ranks} & {*members} for one in heard)

    def leave(self, members: Collection[int]) -> None:
        """Start no rank of this host again, and give up the hosts where ranks may go on. `last_words` says which.

        `members`: as in `is_cut_off`.
        """
        with contextlib.suppress(OSError):  # a cleaner of /tmp has removed it
            (self._folder / ENDING).touch()
        self.left = [one for one in self._hosts if self._is_silent(one) and not one.is_done.is_set()]
        silent = ", ".join(one.host for one in self._hosts if self._is_silent(one))
        lost = [
            f"{named(one.ranks)} may continue on host {one.host}, and print to "
            f"{self._folder}/printed-* there; to end them: ssh {one.host} kill -HUP -- -{one.agent}"
            for one in self.left
        ] + [
            f"{named(sorted({*one.ranks} & {*members}))} ended on host {one.host}, and how is not known, as no report "
            "of it came"
            for one in self._hosts if one.is_unheard(members)
        ]  # fmt: skip
        self.last_words = f"malt run: this host has lost others: {'; '.join(lost) or silent}\n"

    def collect(self, status: int, is_hurried: Callable[[], bool]) -> None:
        """Wait until all that ranks have printed there has come, as long as it comes. Says what has not.

        `status`: that of the job. is_hurried(): whether the user waits no more.
        """
        waited, limit_s = Stopwatch(), _REST_OF_FAILED_S if status else _REST_S
        kept = [one for one in self._hosts if one.agent is not None and one not in self.left]
        for one in kept:
            one.pulses = 0
        for one in kept:
            while one.pulses <= _PULSES and not one.is_done.wait(_POLL_S):
                if self._is_silent(one) or is_hurried() or waited.seconds() > limit_s:
                    say(f"malt run: host {one.host}: the end of what {named(one.ranks)} printed is left out\n")
                    break

    def end(self) -> None:
        """End what is left of the job on the hosts that can be reached and are not given up."""
        reached = [one for one in self._hosts if one not in self.left and not self._is_silent(one)]
        for one in reached:
            is_left = False
            if one.agent is None and not one.connection.is_open:  # it was killed before it had started ranks
                one.connection, is_left = self._remote.connected_anew(one.host)
            one.connection.ask("clean", str(self._folder) if is_left else None)
        waited = Stopwatch()
        for one in self._hosts:
            try:
                one.connection.answer("clean", waited, _ENDS_S if one in reached else 0.0)
            except Silent:
                self._remote.give_up(one.host)
        self._hosts = []

    def _is_silent(self, one: RanksOfHost) -> bool:
        return one.silent_s() > self._silent_s
