"""The ranks that begin a session whose ranks may fail: plain processes, as the launcher numbers them."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from malt.runner import reporting, roster
from malt.runner.program import JOB_DIR
from malt.runner.roster import Roster

SESSION: Final = "session-{}"
"""The name of a session, by its number from 1 on."""


NO_MPI: Final = "no MPI"
"""As `Transport.library`."""


class Party(NamedTuple):
    """The ranks of a session, as one of them sees them before they have met."""

    rank: int
    size: int
    rejoins: bool = False
    """Whether failed ranks are started again, and come back."""
    incarnation: int = 0
    """How often this one was."""
    roster: Roster | None = None
    """Which ranks train when, where these may change in number. None: they do not."""

    @property
    def first(self) -> int:
        """The number of ranks that the job began with."""
        return self.size if self.roster is None else self.roster.first


def party() -> Party:
    """All ranks of this job of plain processes (malt/launch/hosts/plain/starter.py). Local."""
    return Party(
        int(reporting.rank()), int(os.environ[reporting.SIZE]), os.environ.get(reporting.REJOIN) == "1",
        reporting.incarnation(), roster.read(os.environ[JOB_DIR]),
    )  # fmt: skip
