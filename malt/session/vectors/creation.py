"""Makes a vector or blocks on all ranks: they agree on the arguments, free what all have closed, and allocate."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dstorm.words import shown
from malt.session import session
from malt.session.world.world import World
from vol import Vector
from vol.shared import Shared

Checked = TypeVar("Checked")
Made = TypeVar("Made", bound=Shared)
_IN_PARTS = "sharded", "blocks"
"""The kinds of which each rank holds a part."""


def create(
    call: str, kind: str, name: Any, check: Callable[[World], tuple[Checked, Mapping[str, Any]]],
    make: Callable[[World, str, Checked, tuple[int, ...]], Made],
) -> Made:  # fmt: skip
    """Return what make(world, title, checked, ranks) makes, and keep it in the world. Collective.

    `call`: the user's call, for errors. `title`: `name`, or `kind` and a number if it is None. `checked`: the first
    result of check(world) on this rank; the second describes the arguments, as `agree` has it. `ranks`: those that are
    alive, ascending, the same on all ranks. On a rank that has come back it is Local, for what the others have.

    ValueError, MemoryError, the same on all ranks: as `agree`; make() raises MemoryError on all ranks or on none.
    Nothing is made. RuntimeError, on all: ranks come and go, and each would hold a part.
    """
    world = session.world()
    if kind in _IN_PARTS and world.is_elastic:
        raise RuntimeError(f"{call} gives each rank a part, and ranks of this job come and go: start it without "
                           "--elastic")  # fmt: skip
    title = f"{kind} {world.made + 1}" if name is None else name

    def checked() -> tuple[Checked, Mapping[str, Any]]:
        check_name(name)
        found, description = check(world)
        called = {"vectors made before": world.made, "name": title}
        return found, {**called, **description, "_closed": world.free_places()}

    with world.transport.calling(call):
        if world.newcomer is not None:
            found, description = checked()
            entry = world.newcomer.match(world, call, described(description))
            if entry is not None:
                made = _of_the_others(world, entry, lambda: make(world, title, found, world.alive))
                world.made += 1
                return made
        found, reports = world.notes.agree(world.transport, call, checked)
        world.free(one["_closed"] for one in reports.values())
        made = make(world, title, found, tuple(reports))
        note_creation(world, call, reports[world.rank], made)
        world.vectors.append(made)
        world.made += 1
    return made


def _of_the_others(world: World, entry: dict[str, Any], make: Callable[[], Made]) -> Made:
    """Return what make() makes, as that which the others have made before: `entry`. Local."""
    from dstorm.transports.solo import SoloWindow

    assert world.newcomer is not None
    arena, is_kept = world.transport.returns.arena, entry["is_kept"]
    nbytes: int = entry["nbytes"]
    arena.attach(arena.window_at(entry["place"], nbytes) if is_kept else SoloWindow(nbytes))
    made = make()
    world.creations.vectors.append(entry)
    if not (isinstance(made, Vector) and is_kept):
        made.leave()
        return made
    world.newcomer.replace(world, made, entry)
    _come_in(world, made, entry["born"])
    return made


def _come_in(world: World, vector: Vector, born: int) -> None:
    """Begin `vector` as a rank that has come back. One-sided. Refused: none that is left has its values."""
    newcomer, returns = world.newcomer, world.transport.returns
    assert newcomer is not None
    vector.come_in(born)
    if vector.given is None:
        vector.close()
    if not newcomer.has_more(world):
        returns.opened_all()
    elif not vector.closed and vector.returning is not None:
        vector.returning.await_holds()


def agree_on_replica(
    world: World, check: Callable[[], tuple[Checked, Mapping[str, Any]]], call: str = "malt.Replica"
) -> tuple[Checked, bool]:  # fmt: skip
    """Return check()[0], and whether this rank has come back to a Replica that the others have. Collective.

    `call`: the user's. It may be one that makes a Replica later: what it agrees on counts as a Replica, too.

    ValueError, the same on all ranks: as `agree`.
    """
    if world.newcomer is not None:
        checked, description = check()
        if world.newcomer.match_replica(world, call, described(description)):
            world.replicas_made += 1
            return checked, True
    checked, reports = world.notes.agree(world.transport, call, check)
    world.replicas_made += 1
    if world.transport.returns is not None:
        world.creations.replicas.append(described(reports[world.rank]))
    return checked, False


def note_creation(world: World, call: str, description: Mapping[str, Any], made: Shared) -> None:
    """Note what was made, for ranks that come back. Local."""
    if world.transport.returns is not None:
        record = made.returning.record if isinstance(made, Vector) and made.returning is not None else {}
        world.creations.vectors.append({"call": call, "described": described(description), **record})


def described(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return those entries of a description that must be the same on all ranks, as JSON has them. Pure."""
    same = {key: value for key, value in description.items() if not key.startswith("_")}
    plain: dict[str, Any] = json.loads(json.dumps(same))
    return plain


def check_name(name: Any) -> None:
    """Check that `name` is a string or None. TypeError: it is neither. Pure."""
    if not (name is None or isinstance(name, str)):
        raise TypeError(f"name must be a string, got {shown(name)}")
