"""How a session ends as its program does: all ranks together, or each for itself where the others may outlive it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dstorm import DeadlinePassed, MismatchedCalls
from malt.runner import exits

if TYPE_CHECKING:
    from malt.world.world import World

_OUTLIVED_S = 1.0
"""How far apart two looks at the steps of the others are, where a rank has come to its end and they may train on."""

Close = Callable[[float | None], None]
"""Closes the session: World.close, for so long."""


class Ending:
    """Of a session whose ranks end it together: one that ends alone ends the job."""

    waits_for_exit = False
    """Whether a malt.finalize() on the way of a sys.exit(0) leaves it to the interpreter's exit."""

    def close(self, world: World, close: Close) -> None:
        """Close the session at the interpreter's exit, while all others do. Collective. DeadlinePassed;
        MismatchedCalls: they do not."""
        close(None)

    def without_the_others(self, error: MismatchedCalls) -> None:
        """The others are in another call than this rank, which has come to its end. Local."""
        exits.end_job(f"malt: {error}")

    def after_departure(self) -> None:
        """This rank has departed while others go on: MPI must not be finalized. Local."""
        exits.end_without_mpi()


class TolerantEnding(Ending):
    """Of a session whose ranks may end one by one."""

    waits_for_exit = True

    def close(self, world: World, close: Close) -> None:
        """... of a program that the others may outlive: where they train on, this rank has ended early, and leaves, so
        that its rows are dealt to them. DeadlinePassed: they neither come nor train, nor have they finished."""
        transport = world.transport
        heard: dict[int, float] = {}
        start = transport.clock()
        while True:
            try:
                return close(_OUTLIVED_S)
            except DeadlinePassed as error:
                training = [rank for rank in error.missing if not transport.has_closed(rank)]
                if any(transport.heard_at(rank) > heard.get(rank, math.inf) for rank in training):
                    return exits.leave_early()
                if training and transport.clock() - start > world.deadline_s:
                    raise
                heard = {rank: transport.heard_at(rank) for rank in training}

    def without_the_others(self, error: MismatchedCalls) -> None:
        """They train on, and this rank has ended early. Local."""
        exits.leave_early()

    def after_departure(self) -> None:
        """Nothing: such a rank ends without MPI in any case. Local."""
