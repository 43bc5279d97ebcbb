"""The rendezvous of a session whose ranks may fail before it begins: they agree on its members through files.

The files are in the folder of the job:

events-<rank>      among others: the rank has come (malt/runner/events.py)
<session>-members  the ranks that begin the session, their incarnations, and the bytes of each

The last is written once and as a whole, by the first rank that sees that each other rank has come or has failed. It is
made as a hard link to a file of that rank, which fails if there is one already. So all live ranks agree, whichever
rank fails, at whatever moment.

Where a session has been before, nobody waits for a rank that was started again and was admitted to none: it begins the
next one if it comes before that is decided, and comes to it later otherwise. Such ranks alone begin none.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from dstorm.errors import DeadlinePassed, Refused
from dstorm.waits.stopwatch import Stopwatch
from malt.runner import reporting
from malt.runner.events import Kind, Stream, append, event

_POLL_S = 0.002


class Members(NamedTuple):
    """The ranks that begin a session."""

    lives: dict[int, int]
    """Their incarnations, by rank, ascending."""
    nbytes: int
    """The bytes of shared memory of each: what is free on the rank with the least."""


class Rendezvous:
    """The rendezvous of one rank with the other ranks of its session.

    `folder`: the folder of the job. `session`: a name that no other session has. `incarnation`: that of this rank.
    `is_first`: whether no session has been before.
    """

    def __init__(
        self, folder: Path, session: str, rank: int, size: int, incarnation: int = 0, is_first: bool = True
    ) -> None:  # fmt: skip
        self._folder, self._session, self._rank, self._size = folder, session, rank, size
        self._incarnation, self._is_first = incarnation, is_first

    def come(self, nbytes: int, find_failed: Callable[[], Collection[int]], deadline_s: float) -> Members:
        """Publish that this rank has come, and return the members of the session. Collective.

        It returns once every rank has come or is among those of find_failed(). `nbytes`: the bytes of shared memory
        that this rank has free. DeadlinePassed: after `deadline_s` seconds ranks are missing and have not failed.
        Refused: this rank was started again, and no other is left of the session before.
        """
        append(self._folder, event(Kind.CAME, self._rank, f"{self._session} {nbytes} {self._incarnation}"))
        waited, reports = Stopwatch(), Stream(self._folder)
        while (members := self.members()) is None:
            came, failed = self._came(reports.read().texts(Kind.CAME)), set(find_failed())
            outside = set() if self._is_first else reports.ranks(Kind.AGAIN) - reports.ranks(Kind.READY)
            awaited = set(range(self._size)) - {self._rank} - failed - outside
            begins = self._rank < self._size and self._rank not in outside
            if not awaited and self._incarnation and not (begins and self._is_first):
                raise Refused(self._rank, "the other ranks have ended")
            missing = awaited - came.keys()
            if begins and not missing:
                self._decide(came)
            elif waited.seconds() > deadline_s:
                raise DeadlinePassed("malt.init", dict.fromkeys(missing, 0), dict.fromkeys(missing, deadline_s))
            else:
                time.sleep(_POLL_S)
        return members

    def _came(self, texts: Mapping[int, str]) -> dict[int, tuple[int, int]]:
        """The ranks that have come to this session, of those that have come to any: bytes and incarnation of each."""
        words = {rank: text.split() for rank, text in texts.items() if rank < self._size}
        return {rank: (int(one[1]), int(one[2])) for rank, one in words.items() if one[0] == self._session}

    def _decide(self, came: Mapping[int, tuple[int, int]]) -> None:
        """Make `came` the members, unless another rank has decided before."""
        mine = self._path(f"members-by-{self._rank}")
        lives, nbytes = [(rank, came[rank][1]) for rank in sorted(came)], min(nbytes for nbytes, _ in came.values())
        reporting.write(mine, json.dumps([lives, nbytes]))
        with contextlib.suppress(FileExistsError):
            os.link(mine, self._path("members"))

    def members(self) -> Members | None:
        """The members, if they are decided."""
        try:
            lives, nbytes = json.loads(self._path("members").read_text())
        except FileNotFoundError:
            return None
        return Members(dict(lives), nbytes)

    def _path(self, name: str) -> Path:
        return self._folder / f"{self._session}-{name}"
