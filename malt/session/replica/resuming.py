"""Resumes a Replica in a later job: the state that it keeps, and how it begins from that.

Under bsp what is in transit is part of the state, and a save changes nothing: a run has the same bits with saves as
without. Under asp, ssp and notify-ack nothing tells which messages are in transit, so all ranks take the mean first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from dstorm import ClosedError, Transport
from malt.session.replica.consensus import CommonModel
from malt.session.replica.context_manager import FinishOnExit
from malt.session.replica.options import Plan
from malt.session.replica.pacing import Fixed, Led, Pacing
from malt.session.replica.parameter_groups import ParameterGroups
from malt.session.world.agreement import agree
from malt.session.world.world import World
from vol import Vector

ENDED: Final = "finish, close or malt.finalize was called before: create another Replica to continue"
"""Of a call that needs a Replica which still exchanges."""


class Resumes(FinishOnExit):
    """The part of a Replica that goes on from what an earlier job has kept."""

    name: str
    _world: World
    _transport: Transport
    _plan: Plan
    _groups: ParameterGroups
    _model: CommonModel
    _pacing: Pacing
    _vector: Vector
    _epoch: int | None
    _count: int
    _due_at: float

    @abstractmethod
    def _paced(self, epoch: int | None) -> Pacing:
        """The interval that the arguments ask for. Local."""

    @abstractmethod
    def deliver(self) -> None:
        """Give new values to `set`. Local."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which this rank resumes in a later job of as many ranks: arrays, not copies; numbers.

        Collective. It is for a part by rank of a checkpoint: malt.Checkpoint.save(..., mine={"replica": replica}) calls
        it. It has this rank's parameters, the counts, what changes are counted from, the state of `outer`, and what
        `wire` and `top` have left for later. Under "bsp" the call changes nothing: if fragments are in transit it waits
        until they have arrived, and keeps them. In all other modes ranks take the mean, as by `agree`, so that nothing
        is in transit.

        ClosedError: the call follows finish, close or malt.finalize. Errors of `agree`.
        """
        if self._vector.closed:
            raise ClosedError(f"{self.name}.state_dict: {ENDED}")
        if not self.is_in_step:
            self.agree()
        self._groups.look_up()
        return self.kept()

    @property
    def is_in_step(self) -> bool:
        """True if ranks exchange together, as under "bsp". Local."""
        return self._plan.consistency.lockstep

    def kept(self) -> dict[str, Any]:
        """Return the state of a Replica whose ranks have taken the mean, or exchange together.

        Local; it may wait for peers. The arrays are those of the last lookup.
        """
        kept = {"count": self._count, "agreed_at": self._model.agreed_at, **self._groups.kept()}
        is_agreed = self.is_in_step and not self._pacing.is_open
        return {**kept, "every": self._pacing.every if is_agreed and type(self._pacing) is Fixed else None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` has returned on this rank in an earlier job of as many ranks. Collective.

        To be called before the first step. Under "bsp", with a number for `every`, the training then makes the bits
        that it would have made if it had not been stopped.

        ValueError, the same on all ranks: the state is of another Replica, or of another moment than that of another
        rank. ClosedError: the call follows finish, close or malt.finalize.
        """
        if self._vector.closed:
            raise ClosedError(f"{self.name}.load_state_dict: {ENDED}")

        def check() -> tuple[bool, dict[str, Any]]:
            """Return whether the state fits, and what must be the same on all ranks. Local. ValueError: it does not."""
            self._groups.look_up()
            self._groups.check(state)
            return True, {"name": self.name, "exchanges": int(state["turns"]) if self.is_in_step else None}

        agree(self._transport, f"{self.name}.load_state_dict", check)
        self._groups.resume(state)
        self._count = int(state["count"])
        agreed_at = state["agreed_at"]
        self._model.agreed_at = None if agreed_at is None else int(agreed_at)
        if not isinstance(self._pacing, Led):  # its leader says when
            every = state["every"]
            self._pacing = self._paced(self._epoch) if every is None else Fixed(int(every), self._plan.fragments)
            self._due_at = self._pacing.begin(self._count)
        self.deliver()

    def begin_anew(self) -> None:
        """Begin at the parameters that the lowest rank has now, as a new Replica does. Collective.

        It is for a state that is loaded on another number of ranks than it was made on.
        """
        with self._transport.calling(f"{self.name}.begin_anew"):
            self._groups.look_up()
            self._groups.start(comes_back=False)
        self.deliver()
