"""Brings ranks to one model: those that agree on a mean and go on, or all, when all finish.

`finish` and `agree` are one collective call: a rank may wait in `finish` while others agree. It then takes part in
their means with zeros of weight 0, of shapes that they tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from malt.session.replica.parameter_groups import ParameterGroups
from malt.session.replica.parameters import Unchanged
from malt.session.world.agreement import difference
from malt.session.world.means import mean
from malt.session.world.world import World
from vol.update import Array


class CommonModel:
    """The model to which ranks come that hold a Replica: the mean of theirs. The constructor is Local.

    `name`, `check_finite`: of the Replica.
    """

    def __init__(
        self, world: World, name: str, groups: ParameterGroups, unchanged: Unchanged, check_finite: bool
    ) -> None:  # fmt: skip
        self._world, self._name, self._groups, self._unchanged = world, name, groups, unchanged
        self._parameters, self._check_finite = groups.parameters, check_finite
        self.agreed_at: int | None = None
        """The count at which all ranks had one model last. None: they have not agreed on one since the start."""

    def take(self, ends: bool, count: int) -> bool:
        """Replace the parameters by the mean, at `count`; return whether all ranks finish. Collective.

        As Replica.finish if this rank `ends`, else as Replica.agree. Where others agree, a rank that ends has what it
        had.
        """
        with self._groups.dropping(not ends):
            is_over, reports = partners(self._world, "Replica", ends, partial(self._report, ends, count))
        if is_over:
            self._unchanged.compare(list(reports.values()))
            self._average(self._floats, count > 0)
        elif ends:  # of another Replica, perhaps
            kinds = next(iter(reports.values()))["_kinds"]
            self._average([np.zeros(shape, dtype) for shape, dtype in kinds], None)
        else:
            self._agree(count, {rank: one["_count"] for rank, one in reports.items()})
        return is_over

    # -- private ----------------------------------------------------------------------------------------------

    @property
    def _floats(self) -> list[Array]:
        """The arrays that are exchanged."""
        return [self._parameters.arrays[place] for place in self._parameters.floats]

    def _report(self, ends: bool, count: int) -> Mapping[str, Any]:
        """This rank's report to the others."""
        if ends:  # vectors are closed
            self._parameters.look_up()
        else:
            self._groups.look_up()
        mine = {
            "name": self._name, "_stepped": count > 0, **self._unchanged.report(),
            "_count": float(count), "_agreed": self.agreed_at is not None,
        }  # fmt: skip
        if ends:
            return mine
        kinds = [[list(array.shape), array.dtype.str] for array in self._floats]
        return {**mine, "exchanges": self._groups.turns_to_compare, "_kinds": kinds}

    def _agree(self, count: int, counts: Mapping[int, float]) -> None:
        """Replace the parameters by the mean, and begin anew with it. Collective. `counts`: of the ranks that agree.

        All ranks have entered the call, and what they had sent has come. None sends before all have dropped that: the
        mean is made by all ranks together.
        """
        self._groups.drop(counts)
        try:
            self._average(self._floats, count > 0)
        finally:  # where a rank is missing the call may be repeated
            self._groups.start_again()
            if self._unchanged.is_watching:
                self._unchanged.go_on()
        self.agreed_at = count

    def _average(self, arrays: Sequence[Array], counts: bool | None) -> None:
        """Replace `arrays` by their means. Collective. `counts`: as for `mean`."""
        mean(self._world.transport, arrays, counts=counts, check_finite=self._check_finite, else_all=True)


def call_of(what: str) -> str:
    """The name of the collective call in which ranks finish or agree: one and the same, so that they may differ."""
    return f"{what}.finish or agree"


def partners(
    world: World, what: str, ends: bool, check: Callable[[], Mapping[str, Any]]
) -> tuple[bool, dict[int, Mapping[str, Any]]]:  # fmt: skip
    """Return whether the ranks finish, and the descriptions, by rank, of those that a mean is of. Collective.

    These are the ranks that agree; where none does, all, which finish. A rank that finishes while others agree is left
    out: it takes part in their collective calls, and calls this function again. `what`: the object. `ends`: whether
    this rank finishes. check() checks and describes what it has, as for malt.session.world.agreement.agree.

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
    """Return a hint for `rank` if it alone agrees and no rank has agreed before. "": it may mean to. Pure.

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
        "it continues with its own model: call agree() on all ranks"
    )
