"""The ranks that begin a session whose ranks may fail: plain processes, as the launcher numbers them."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from malt.runner import reporting

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


def party() -> Party:
    """All ranks of this job of plain processes (malt/launch/hosts/plain/starter.py). Local."""
    return Party(
        int(reporting.rank()), int(os.environ[reporting.SIZE]), os.environ.get(reporting.REJOIN) == "1",
        reporting.incarnation(),
    )  # fmt: skip
