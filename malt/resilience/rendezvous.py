"""The rendezvous of a session whose ranks may fail before it begins: they agree on its members through files.

The files are in the folder of the job:

events-<rank>      among others: the rank has come (malt/runner/events.py)
<session>-members  the ranks that begin the session, and the bytes of each

The last is written once and as a whole, by the first rank that sees that each other rank has come or has failed. It is
made as a hard link to a file of that rank, which fails if there is one already. So all live ranks agree, whichever
rank fails, at whatever moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from dstorm.errors import DeadlinePassed
from dstorm.stopwatch import Stopwatch
from malt.runner import reporting
from malt.runner.events import Kind, Stream, append, event

_POLL_S = 0.002


class Members(NamedTuple):
    """The ranks that begin a session."""

    ranks: tuple[int, ...]
    nbytes: int
    """The bytes of shared memory of each: what is free on the rank with the least."""


class Rendezvous:
    """The rendezvous of one rank with the other ranks of its session.

    `folder`: the folder of the job. `session`: a name that no other session has.
    """

    def __init__(self, folder: Path, session: str, rank: int, size: int) -> None:
        self._folder, self._session, self._rank, self._size = folder, session, rank, size

    def come(self, nbytes: int, find_failed: Callable[[], Collection[int]], deadline_s: float) -> Members:
        """Publish that this rank has come, and return the members of the session. Collective.

        It returns once every rank has come or is among those of find_failed(). `nbytes`: the bytes of shared memory
        that this rank has free. DeadlinePassed: after `deadline_s` seconds ranks are missing and have not failed.
        """
        append(self._folder, event(Kind.CAME, self._rank, f"{self._session} {nbytes}"))
        waited, reports = Stopwatch(), Stream(self._folder)
        while (members := self.members()) is None:
            came = self._came(reports.read().texts(Kind.CAME))
            missing = set(range(self._size)) - came.keys() - set(find_failed())
            if not missing:
                self._decide(came)
            elif waited.seconds() > deadline_s:
                raise DeadlinePassed("malt.init", dict.fromkeys(missing, 0), dict.fromkeys(missing, deadline_s))
            else:
                time.sleep(_POLL_S)
        return members

    def _came(self, texts: Mapping[int, str]) -> dict[int, int]:
        """The ranks that have come to this session, of those that have come to any, and the bytes of each."""
        words = {rank: text.split() for rank, text in texts.items()}
        return {rank: int(nbytes) for rank, (session, nbytes) in words.items() if session == self._session}

    def _decide(self, came: Mapping[int, int]) -> None:
        """Make `came` the members, unless another rank has decided before."""
        mine = self._path(f"members-by-{self._rank}")
        reporting.write(mine, json.dumps([sorted(came), min(came.values())]))
        with contextlib.suppress(FileExistsError):
            os.link(mine, self._path("members"))

    def members(self) -> Members | None:
        """The members, if they are decided."""
        try:
            ranks, nbytes = json.loads(self._path("members").read_text())
        except FileNotFoundError:
            return None
        return Members(tuple(ranks), nbytes)

    def _path(self, name: str) -> Path:
        return self._folder / f"{self._session}-{name}"
