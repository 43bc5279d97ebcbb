"""The ranks that a mean is of: those that agree on one and go on, or all, where all finish."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from malt.world.agreement import difference
from malt.world.world import World


def call_of(what: str) -> str:
    """The name of the collective call in which ranks finish or agree: one and the same, so that they may differ."""
    return f"{what}.finish or agree"


def partners(
    world: World, what: str, ends: bool, check: Callable[[], Mapping[str, Any]]
) -> tuple[bool, dict[int, Mapping[str, Any]]]:  # fmt: skip
    """Whether the ranks finish, and the descriptions, by rank, of those that a mean is of. Collective.

    These are the ranks that agree; where none does, all, which finish. A rank that finishes while others agree is left
    out: it takes part in their collective calls, and calls this function again. `what`: the object. `ends`: whether
    this rank finishes. check() checks and describes what it has, as for malt.world.agreement.agree.

    ValueError, the same on the ranks that the mean is of: descriptions differ. On all ranks: check() raised on one.
    """
    call = f"{what}.finish" if ends else f"{what}.agree"
    world.transport.barrier(call)
    _, reports = world.notes.agree(world.transport, call, lambda: (True, {"_ends": ends, "_own": check()}))
    agreeing = {rank: one["_own"] for rank, one in reports.items() if not one["_ends"]}
    found = agreeing or {rank: one["_own"] for rank, one in reports.items()}
    if world.rank in found and (problem := difference(found)):
        raise ValueError(f"{call}: {problem}")
    if len(agreeing) == 1:
        [alone] = agreeing
        if line := _told_alone(alone, {rank: one["_own"] for rank, one in reports.items()}):
            world.report(line)
    return not agreeing, found


def _told_alone(rank: int, reports: Mapping[int, Mapping[str, Any]]) -> str:
    """What to say of `rank`, the only one that agrees, where no rank has agreed before. "": it may mean to. Pure.

    A rank that trains for longer than the others agrees alone, too. So it is told only where it has counted no more.
    """
    everyone = reports.values()
    if any(one.get("_agreed", True) for one in everyone) or len({one["name"] for one in everyone}) > 1:
        return ""
    others = [one["_count"] for other, one in reports.items() if other != rank]
    if not 0 < reports[rank]["_count"] <= min(others, default=0):
        return ""
    return (
        f"malt: {reports[rank]['name']}: rank {rank} called agree() and no other rank did: they wait in finish(). So "
        "it goes on with its own model: call agree() on all ranks"
    )
