"""The end of a session with its program: all ranks together, or each for itself in a session that is fault tolerant."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from dstorm import DeadlinePassed, MismatchedCalls
from malt.runner import exit_hooks
from malt.session.world.agreement import exchange, succeed

if TYPE_CHECKING:
    from malt.session.world.world import World

_OUTLIVED_S = 1.0
"""How long a rank that has ended waits for the others before it checks again whether they still train."""

Close = Callable[[float | None], None]
"""A function that closes the session as World.close does. Its argument: how long it waits, in seconds."""


class Ending:
    """The end of a session that all ranks close together. A rank that ends alone ends the job."""

    goes_on = False
    """Whether the others go on where a rank fails, or ends early."""

    def close(self, world: World, close: Close) -> None:
        """Close the session at the exit of the interpreter. Collective.

        DeadlinePassed, MismatchedCalls: the other ranks do not close it.
        """
        close(None)

    def meet(self, world: World, call: str) -> None:
        """Return once all ranks are here; no rank can have failed with its part of a vector. Collective."""
        world.transport.barrier(call)

    def free(self, world: World) -> None:
        """Free all vectors, after the last barrier. Collective. Memory stays where a rank keeps a view of it."""
        if world.vectors:
            world.free(exchange(world.transport, world.free_places()).values())

    def without_the_others(self, world: World, error: MismatchedCalls) -> None:
        """End the job: the other ranks are in another call, and this rank has ended. Local."""
        exit_hooks.end_job(f"malt: {error}")

    def after_departure(self) -> None:
        """End this process without MPI_Finalize, which would wait for the ranks that go on. Local."""
        exit_hooks.end_without_mpi()


class PlainEnding(Ending):
    """The end of a session of plain processes that all ranks close together, as nobody goes on where one fails."""

    def free(self, world: World) -> None:
        """Free all vectors. Local: other ranks may have ended. Memory stays where this rank keeps a view of it."""
        world.free([world.free_places()])

    def after_departure(self) -> None:
        """Do nothing: such a rank ends without MPI in any case. Local."""


class TolerantEnding(PlainEnding):
    """The end of a session whose ranks may end one by one. `note_over()`: notes that it is over for all."""

    goes_on = True

    def __init__(self, note_over: Callable[[], object] = bool) -> None:
        self._note_over = note_over

    def close(self, world: World, close: Close) -> None:
        """Close the session, or leave it if the other ranks still train. Collective.

        A rank that leaves has ended early: its rows are dealt to the others.

        DeadlinePassed: other ranks neither close the session, nor train, nor have finished training.
        """
        if world.crew is not None and world.crew.is_retired:
            for vector in world.vectors:
                vector.leave()
            return self._leave_early(world)
        transport = world.transport
        heard: dict[int, float] = {}
        waited_s = 0.0
        while True:
            try:
                return close(_OUTLIVED_S)
            except DeadlinePassed as error:
                training = [rank for rank in error.missing if not transport.has_closed(rank)]
                if any(transport.heard_at(rank) > heard.get(rank, math.inf) for rank in training):
                    return self._leave_early(world)
                waited_s += _OUTLIVED_S
                if training and waited_s >= world.deadline_s:
                    raise
                heard = {rank: transport.heard_at(rank) for rank in training}

    def free(self, world: World) -> None:
        """Note that the session is over, and free it. Local."""
        self._note_over()
        super().free(world)

    def meet(self, world: World, call: str) -> None:
        """Return once all ranks are here. Collective. PeerLost, on all: one has failed with its part of a vector."""

        def check() -> None:
            for vector in world.sharded:
                vector.check_owners(call)

        succeed(world.transport, check, call)

    def without_the_others(self, world: World, error: MismatchedCalls) -> None:
        """Leave: the other ranks still train, and this rank has ended early. Local."""
        self._leave_early(world)

    @staticmethod
    def _leave_early(world: World) -> None:
        world.transport.close()  # so that the others know that it ends, and has not lost them
        exit_hooks.leave_early()
