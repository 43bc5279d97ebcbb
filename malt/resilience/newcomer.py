"""A rank that has come back: what the others tell it, and how it gets what they have made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dstorm import Statistics
from dstorm.errors import Refused
from dstorm.membership.barriers.tolerant import TolerantBarrier
from dstorm.membership.resilient import SurvivingTransport
from malt.world.world import OpenVector, World
from vol import Vector


def offer(world: World) -> dict[str, Any] | str:
    """What all ranks of `world` know alike between two collective calls; or why no rank can come back. Local."""
    if any(not isinstance(one, (Vector, Awaited)) for one in world.vectors):
        return "the others have blocks or sharded vectors, of which each rank holds a part"
    newest = {entry.get("place"): number for number, entry in enumerate(world.creations.vectors)}
    kept = {newest[_place(one)] for one in world.vectors}
    made = [{**entry, "is_kept": number in kept} for number, entry in enumerate(world.creations.vectors)]
    assert isinstance(world.transport, SurvivingTransport)
    taken = {str(start): end for start, end in world.transport.taken.items()}
    return {"taken": taken, "made": made, "replicas": world.creations.replicas, **world.notes.state}


def _place(made: Any) -> int:
    """Return where the memory of a vector lies."""
    place: int = (made.entry if isinstance(made, Awaited) else made.returning.record)["place"]
    return place


class Awaited:
    """A vector that the others have and this rank has not made yet. All methods are those of `OpenVector`."""

    closed = can_free = True

    def __init__(self, transport: SurvivingTransport, entry: dict[str, Any]) -> None:
        self._transport, self.entry = transport, entry

    def leave(self) -> None:
        """Nothing. Local."""

    def disown(self, disowned: bool) -> None:
        """Nothing. Local."""

    def free(self) -> None:
        """Give the memory of the vector back. Local."""
        self._transport.give_back(self.entry["place"], self.entry["nbytes"])
        self.entry["is_kept"] = False

    def statistics(self) -> Statistics:
        """Zeros. Local."""
        return Statistics()


class Newcomer:
    """How this rank gets what the others have: the k-th vector that it makes is their k-th, and so are Replicas.

    `report_ready()`: called once it has that: nothing is lost any more where it is the only one that is left.
    """

    def __init__(
        self, transport: SurvivingTransport, barrier: TolerantBarrier, report_ready: Callable[[], object] = bool
    ) -> None:  # fmt: skip
        self._transport, self._barrier = transport, barrier
        self._transport.returns.has_opened = report_ready
        self.announced: list[Vector] = []
        self.is_gathering = self.is_led = False
        """These as in malt/world/creations.py."""
        self._made: list[dict[str, Any]] = []
        self._replicas: list[dict[str, Any]] = []

    def match(self, world: World, call: str, described: dict[str, Any]) -> dict[str, Any] | None:
        """As `Newcomer.match` of malt/world/world.py. Refused: the others have made something else."""
        self._come_in(world)
        if world.made == len(self._made):
            self._end_if_over(world)
            return None
        entry = self._made[world.made]
        if entry["call"] != call:
            raise Refused(world.rank, f"{call} is its call {world.made + 1} of those that make vectors, and the others "
                                      f"have called {entry['call']} there")  # fmt: skip
        self._check(world, call, described, entry["described"])
        if "nbytes" not in entry:
            raise Refused(world.rank, f"{call} gives each rank a part, which a rank that comes back cannot take over")
        return entry

    def has_replica(self, world: World) -> bool:
        """As `Newcomer.has_replica` of malt/world/creations.py."""
        self._come_in(world)
        return world.replicas_made < len(self._replicas)

    def match_replica(self, world: World, call: str, described: dict[str, Any]) -> bool:
        """As `Newcomer.match_replica` of malt/world/world.py. Refused: the others have made another one."""
        if not self.has_replica(world):
            return False
        theirs = self._replicas[world.replicas_made]
        self._check(world, call, described, theirs)
        world.creations.replicas.append(theirs)
        return True

    def replace(self, world: World, made: OpenVector, entry: dict[str, Any]) -> None:
        """As `Newcomer.replace` of malt/world/world.py."""
        places = [place for place, one in enumerate(world.vectors) if getattr(one, "entry", None) is entry]
        world.vectors[places[0]] = made

    def has_more(self, world: World) -> bool:
        """As `Newcomer.has_more` of malt/world/creations.py."""
        return any(isinstance(one, Awaited) for one in world.vectors)

    def _check(self, world: World, call: str, described: dict[str, Any], theirs: dict[str, Any]) -> None:
        for key, value in described.items():
            if theirs.get(key) != value:
                raise Refused(world.rank, f"{call}: {key} is {value}, and the others have {theirs.get(key)}")

    def _come_in(self, world: World) -> None:
        """Be admitted, once."""
        if not self._transport.returns.is_outside:
            return
        session = self._barrier.come_in()
        self._transport.take_over({int(start): end for start, end in session["taken"].items()})
        self._made, self._replicas = list(session["made"]), list(session["replicas"])
        world.vectors = [Awaited(self._transport, entry) for entry in self._made if entry["is_kept"]]
        world.notes.take_over(session)
        world.failures.gone = set(self._transport.view.failed)

    def _end_if_over(self, world: World) -> None:
        if world.replicas_made >= len(self._replicas):
            world.newcomer = None
