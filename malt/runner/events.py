"""Events reported of the ranks of a job, as lines of JSON. Each rank has a file of them in the job's folder.

A rank adds its own. From another host it sends the lines to the launcher (malt/launch/reports/control.py), or an
agent there does (malt/launch/hosts/agent/watch.py). The launcher adds them, and what it learns of the rank
itself. The events of one rank are in order. Those of different ranks have times of one clock, that of the launcher's
host.

The runner loads this module by its path, and the agents are sent it: it imports nothing of malt.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import json
import os
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

_FILE = "events-"
"""What the names of the files begin with. The rank follows."""
FULL = "full"
"""The file in that folder that a rank makes which cannot write that it has failed. An empty one can be made on a full
disk, too."""
ASK, SHOWN = "ask-{}", "shown-{}"
"""The pipe by which a rank is asked what it shows, and the file that answers (malt/watch/answers.py)."""
_NOBODY = -1
"""The rank of an event of which the rank is not known."""


class Kind(enum.Enum):
    """The kinds of events."""

    STARTED = "started"
    """Its process, on the launcher's host: number and start time."""
    STATUS = "status"
    """It has failed, with that status, and the job ends."""
    FINISHED = "finished"
    """Its program has ended well."""
    CLOSED = "closed"
    """On another host: so has its interpreter."""
    TRACEBACK = "traceback"
    """Of the first exception that has ended it, or one of its threads."""
    WAS_AT = "was at"
    """Where its program was when the launcher's signal came."""
    STOPPED = "stopped"
    """Its program has ended after that signal. Its process waits to be killed: its exit would make mpiexec end all."""
    INSIDE = "inside"
    """It has loaded MPI; or has ended inside MPI, in the way that the text names."""
    QUIT = "quit"
    """It ends by os._exit, or becomes another program."""
    CAME = "came"
    """It has come to a session: the name of that, and the bytes of shared memory that it has free."""
    READY = "ready"
    """A session has begun for it; for one that was started again: the others have admitted it."""
    LEFT = "left"
    """It has failed, with a status, or departed before the others, with 0. They go on."""
    LOST = "lost"
    """The others have marked it failed: the incarnation that is meant."""
    ELSEWHERE = "elsewhere"
    """It has connected to the launcher from another host."""
    ENDED = "ended"
    """So it had, and its process has ended. On the launcher's host: it has failed, with that status, as its starter has
    seen."""
    EXITED = "exited"
    """On another host: its process has failed, as the agent there has seen: its incarnation and a status."""
    AGAIN = "again"
    """It was started again: its incarnation. This comes first."""


SENT = frozenset({
    Kind.STATUS, Kind.FINISHED, Kind.CLOSED, Kind.TRACEBACK, Kind.READY, Kind.LEFT, Kind.LOST, Kind.AGAIN,
})  # fmt: skip
"""What comes from other hosts."""
_INVALIDATES = {
    Kind.AGAIN: frozenset(Kind) - {Kind.ELSEWHERE, Kind.STATUS, Kind.CAME, Kind.LOST, Kind.EXITED},
    Kind.FINISHED: {Kind.INSIDE},
    Kind.QUIT: {Kind.INSIDE},
}
"""The events of a rank that count no more after one of it."""


class Event(NamedTuple):
    """Something that is reported of a rank."""

    kind: Kind
    rank: int
    text: str = ""
    at: int = 0
    """When: nanoseconds of time.monotonic_ns."""

    def line(self) -> bytes:
        """This event as a line. It begins with a newline, too: the line before may be cut off, as by a full disk."""
        return b"\n" + json.dumps([self.at, self.kind.value, self.rank, self.text]).encode() + b"\n"


def event(kind: Kind, rank: int, text: str = "") -> Event:
    """An event that happens now. Local."""
    return Event(kind, rank, text.encode(errors="backslashreplace").decode(), time.monotonic_ns())


def parsed(line: str | bytes) -> Event | None:
    """The event of a line, or None if there is none in it. Pure."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        at, kind, rank, text = json.loads(line)
        if isinstance(at, int) and isinstance(rank, int) and isinstance(text, str):
            return Event(Kind(kind), rank, text, at)
    return None


def number(text: str) -> int:
    """Return the number that the text of an event is; 0 where it is none. Pure."""
    return int(text) if text.isdecimal() else 0


def append(folder: str | os.PathLike[str], one: Event) -> None:
    """Add an event to the file of its rank in `folder`, by one write: others may write there, too. OSError. Local."""
    if one.kind is Kind.AGAIN:
        for name in (ASK, SHOWN):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name.format(one.rank)))
    file = os.open(os.path.join(folder, f"{_FILE}{one.rank}"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        line = one.line()
        if os.write(file, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(file)


class History:
    """The events of a job, as far as they count: the last of each kind and rank. Pure.

    Of LOST, which other ranks report, each when it hears of it, it is that of the last incarnation.
    """

    def __init__(self) -> None:
        self._events: dict[Kind, dict[int, Event]] = {kind: {} for kind in Kind}

    def take(self, events: Iterable[Event]) -> None:
        """Add events. Those of one rank are in order."""
        for one in events:
            for kind in _INVALIDATES.get(one.kind, ()):
                self._events[kind].pop(one.rank, None)
            before = self._events[one.kind].get(one.rank)
            if one.kind is not Kind.LOST or before is None or number(before.text) <= number(one.text):
                self._events[one.kind][one.rank] = one

    def get(self, kind: Kind, rank: int) -> Event | None:
        """Return the event of a kind and rank, or None without one."""
        return self._events[kind].get(rank)

    def of(self, kind: Kind) -> list[Event]:
        """Return the events of a kind, the first first."""
        return sorted(self._events[kind].values(), key=lambda one: (one.at, one.rank))

    def ranks(self, kind: Kind) -> set[int]:
        """Return the ranks of which there is an event of this kind."""
        return set(self._events[kind])

    def texts(self, kind: Kind) -> dict[int, str]:
        """Return the texts of the events of a kind by rank, the first first."""
        return {one.rank: one.text for one in self.of(kind)}


class Stream(History):
    """The events in the folder of a job. It keeps those that it has read where a cleaner of /tmp removes the files."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__()
        self.folder = folder
        self._read: dict[str, bytes] = {}
        self._unwritten: deque[Event] = deque()
        """Those that were added and have not been read so far, as the folder does not take them."""

    def add(self, one: Event) -> None:
        """Add an event to the folder, for all who read there; on a full disk to this stream alone. Local.

        Any thread may call it.
        """
        try:
            append(self.folder, one)
        except OSError:
            self._unwritten.append(one)

    def read(self) -> Stream:
        """Read what has come, and return this one. Local."""
        self.fresh()
        return self

    def fresh(self) -> list[Event]:
        """Read the events that have come since the last call, and return them. Local."""
        found: list[Event] = []
        with contextlib.suppress(OSError):
            names = os.listdir(self.folder)
            lines = [line for name in names if name.startswith(_FILE) for line in self._lines(name)]
            found = [one for line in lines if (one := parsed(line)) is not None]
            if FULL in names and not self.ranks(Kind.STATUS):
                found.append(event(Kind.STATUS, _NOBODY))
        if self._unwritten:
            found += [self._unwritten.popleft() for _ in range(len(self._unwritten))]
            found.sort(key=lambda one: one.at)
        self.take(found)
        return found

    def _lines(self, name: str) -> list[bytes]:
        """The whole lines of a file that have not been read: all, where it was removed and made anew."""
        with contextlib.suppress(OSError), open(os.path.join(self.folder, name), "rb") as file:
            whole, _, _ = file.read().rpartition(b"\n")
            before, self._read[name] = self._read.get(name, b""), whole
            return whole.removeprefix(before).splitlines()
        return []
