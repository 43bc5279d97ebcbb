"""How all ranks make a vector or blocks: they agree on the arguments, free what all have closed, and allocate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from malt.session import session
from malt.world.world import OpenVector, World

Checked = TypeVar("Checked")
Made = TypeVar("Made", bound=OpenVector)


def create(
    call: str, kind: str, name: Any, check: Callable[[World], tuple[Checked, Mapping[str, Any]]],
    make: Callable[[World, str, Checked, tuple[int, ...]], Made],
) -> Made:  # fmt: skip
    """Return what make(world, title, checked, ranks) makes, and keep it in the world. Collective.

    `call`: the user's call, for errors. `title`: `name`, or `kind` and a number if it is None. `checked`: the first
    result of check(world) on this rank; the second describes the arguments, as `agree` has it. `ranks`: those that are
    alive, ascending, the same on all ranks.

    ValueError, MemoryError, the same on all ranks: as `agree`; make() raises MemoryError on all ranks or on none.
    Nothing is made.
    """
    world = session.world()
    title = f"{kind} {world.made + 1}" if name is None else name

    def checked() -> tuple[Checked, Mapping[str, Any]]:
        check_name(name)
        found, description = check(world)
        called = {"vectors made before": world.made, "name": title}
        return found, {**called, **description, "_closed": world.free_places()}

    with world.transport.calling(call):
        found, reports = world.notes.agree(world.transport, call, checked)
        world.free(one["_closed"] for one in reports.values())
        made = make(world, title, found, tuple(reports))
    world.vectors.append(made)
    world.made += 1
    return made


def check_name(name: Any) -> None:
    """Check that `name` is a string or None. TypeError: it is neither. Pure."""
    if not (name is None or isinstance(name, str)):
        raise TypeError(f"name must be a string, got {name!r}")
