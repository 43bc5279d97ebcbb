"""Ranks that come back (malt run --rejoin): what the others give them of a training, and where they go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import malt
from apps.harness.errors import BadInput, StaysOut
from apps.harness.marks import Mark

State = Mapping[str, Any]

_OURS: Final = ("harness_epoch", "harness_begun", "harness_examples", "harness_before_s", "harness_trained_s")
_EPOCH, _BEGUN, _EXAMPLES, _BEFORE_S, _TRAINED_S = _OURS


class Given:
    """The state of the training of another rank that a rejoining rank receives."""

    def __init__(self, state: State) -> None:
        self.epoch = int(state[_EPOCH])
        """The last epoch that this one has trained."""
        self.begun = int(state[_BEGUN])
        """The epochs that were trained before the job."""
        self.before = Mark(examples=int(state[_EXAMPLES]), seconds=float(state[_BEFORE_S]))
        """What all ranks had done by then."""
        self.trained_s = float(state[_TRAINED_S])
        """The seconds of training of that rank, in this run."""
        self.state = {name: value for name, value in state.items() if name not in _OURS}
        """The state of that rank, as `Trainer.state` returned it."""


def offered(epoch: int, begun: int, before: Mark, trained_s: float, state: State) -> State:
    """Return the state from which `Given` is made. Pure."""
    ours = (epoch, begun, before.examples, before.seconds, trained_s)
    return {**dict(zip(_OURS, ours, strict=True)), **state}


def refuse() -> None:
    """Refuse a rank that comes back, if this is one, and a job that may grow. Local.

    StaysOut: this rank has come back. BadInput: the job may grow (malt run --elastic).
    """
    world = malt.init()
    if not (world.is_outside or world.is_elastic):
        return
    why = "ranks of this training meet in each epoch, or hold parts of the model"
    if world.is_elastic:
        raise BadInput(f"{why}: start it without --elastic")
    raise StaysOut(f"{why}, so it continues without those that failed")


def exchanged(vectors: Sequence[Any], state: Callable[[], State]) -> Given | None:
    """Offer state() to ranks that come back. Return what this rank was given, if it has. Local.

    `vectors` carry the model. StaysOut: the others have ended their training.
    """
    if not vectors:
        return None
    given = vectors[0].accompany(state)
    if not malt.rejoined():
        return None
    if given is None:
        raise StaysOut("the others have ended their training")
    return Given(given)
