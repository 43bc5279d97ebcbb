"""The ranks that begin a session whose ranks may fail: plain processes, as the launcher numbers them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from dstorm.errors import DeadlinePassed
from malt.runner import reporting, roster
from malt.runner.program import JOB_DIR
from malt.runner.roster import Roster

SESSION: Final = "session-{}"
"""The name of a session, by its number from 1 on."""
PREFIX: Final = "malt-torchrun-"
"""That of the name of a folder that ranks have made where no launcher of malt has started their job."""


class ProcessGroup(NamedTuple):
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


def process_group() -> ProcessGroup:
    """All ranks of this job of plain processes (malt/launch/hosts/plain/starter.py). Local."""
    return ProcessGroup(
        int(reporting.rank()), int(os.environ[reporting.SIZE]), os.environ.get(reporting.REJOIN) == "1",
        reporting.incarnation(), roster.read(os.environ[JOB_DIR]),
    )  # fmt: skip


def is_of_torchrun() -> bool:
    """Return whether no launcher of malt has started this job of plain processes, but torchrun, or its kin. Local."""
    return is_made(os.environ.get(JOB_DIR, ""))


def is_made(folder: str | os.PathLike[str]) -> bool:
    """Return whether ranks of torchrun have made this folder of a job (malt/session/resilience/job_folder.py). Pure."""
    return os.path.basename(folder).startswith(PREFIX)


def missing(came: set[int], all_ranks: Sequence[int], deadline_s: float) -> DeadlinePassed:
    """The error that names the ranks that have not come, and those that have. Pure."""
    ranks = sorted(set(all_ranks) - came)
    named = f"rank {min(came)} has" if len(came) == 1 else f"ranks {', '.join(map(str, sorted(came)))} have"
    return DeadlinePassed(f"malt.init: {named} come", dict.fromkeys(ranks, 0), dict.fromkeys(ranks, deadline_s))
