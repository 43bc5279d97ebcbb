"""Ranks that come back (malt run --rejoin): what the others give them of a training, and where they go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import malt
from apps.harness.errors import BadInput, StaysOut

State = Mapping[str, Any]


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


def exchanged(vectors: Sequence[Any], state: Callable[[], State]) -> State | None:
    """Offer state() to ranks that come back. Return what this rank was given, if it has. Local.

    `vectors` carry the model. StaysOut: the others have ended their training.
    """
    if not vectors:
        return None
    given: State | None = vectors[0].accompany(state)
    if not malt.rejoined():
        return None
    if given is None:
        raise StaysOut("the others have ended their training")
    return given
