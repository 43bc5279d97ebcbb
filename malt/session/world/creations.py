"""The vectors and Replicas that all ranks have made, and the way in which a rank that has come back gets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dstorm.errors import Refused

if TYPE_CHECKING:
    from dstorm import Statistics
    from dstorm.membership.resilient import SurvivingTransport
    from malt.session.world.world import World
    from vol.shared import Shared


class Creations:
    """The vectors and Replicas, in the order in which they were made: the same on all ranks. The constructor is Local.
    """

    def __init__(self) -> None:
        self.vectors: list[dict[str, Any]] = []
        """Of each vector and blocks, with the place of its memory."""
        self.replicas: list[dict[str, Any]] = []
        """Of each Replica, and of what makes one later, with what it has begun with since."""


def offer(world: World) -> dict[str, Any] | str:
    """Return what all ranks have in common between two collective calls, or why no rank can come back. Local."""
    from dstorm.membership.resilient import SurvivingTransport
    from vol import Vector

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
    """A vector that the others have and this rank has not made yet. All methods are those of `vol.shared.Shared`."""

    closed = can_free = True
    is_sharded = False

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
        from dstorm import Statistics

        return Statistics()


class Newcomer:
    """A rank that has come back: the k-th vector that it makes is the k-th of the others, and so are Replicas.

    `report_ready()`: called once it has that: nothing is lost any more where it is the only one that is left.
    """

    def __init__(self, transport: SurvivingTransport, report_ready: Callable[[], object] = bool) -> None:
        self._transport = transport
        transport.returns.has_opened = report_ready
        self._made: list[dict[str, Any]] = []
        self._replicas: list[dict[str, Any]] = []

    def match(self, world: World, call: str, described: dict[str, Any]) -> dict[str, Any] | None:
        """Return the entry of what the others have made by the same call. None: they have not, and all make it now.

        One-sided: this rank may be admitted. Refused: the others have made something else.
        """
        self._come_in(world)
        if world.made == len(self._made):
            self._end_if_over(world)
            return None
        entry = self._made[world.made]
        if entry["call"] != call:
            raise Refused(world.rank, f"{call} is its call {world.made + 1} of those that create vectors; there the "
                                      f"others called {entry['call']}")  # fmt: skip
        self._check(world, call, described, entry["described"])
        if "nbytes" not in entry:
            raise Refused(world.rank, f"{call} gives each rank a part, which a rank that comes back cannot take over")
        return entry

    def has_replica(self, world: World) -> bool:
        """Return whether the others have made the Replica that this rank is about to make. One-sided, as `match`."""
        self._come_in(world)
        return world.replicas_made < len(self._replicas)

    def match_replica(self, world: World, call: str, described: dict[str, Any]) -> bool:
        """Return whether the others have made the same Replica by the same call. Refused: they have made another one.

        One-sided.
        """
        if not self.has_replica(world):
            return False
        theirs = self._replicas[world.replicas_made]
        self._check(world, call, described, theirs)
        world.creations.replicas.append(theirs)
        return True

    def replace(self, world: World, made: Shared, entry: dict[str, Any]) -> None:
        """Keep the vector `made` where the others keep theirs. Local."""
        places = [place for place, one in enumerate(world.vectors) if getattr(one, "entry", None) is entry]
        world.vectors[places[0]] = made

    def has_more(self, world: World) -> bool:
        """Return whether the others have vectors that it has not made yet. Local."""
        return any(isinstance(one, Awaited) for one in world.vectors)

    def _check(self, world: World, call: str, described: dict[str, Any], theirs: dict[str, Any]) -> None:
        for key, value in described.items():
            if theirs.get(key) != value:
                raise Refused(world.rank, f"{call}: {key} is {value}, and the others have {theirs.get(key)}")

    def _come_in(self, world: World) -> None:
        """Be admitted, once."""
        if not self._transport.returns.barrier.is_outside:
            return
        session = self._transport.returns.come_in()
        self._transport.take_over({int(start): end for start, end in session["taken"].items()})
        self._made, self._replicas = list(session["made"]), list(session["replicas"])
        world.vectors = [Awaited(self._transport, entry) for entry in self._made if entry["is_kept"]]
        world.notes.take_over(session)
        world.failures.gone = set(self._transport.view.failed)

    def _end_if_over(self, world: World) -> None:
        if world.replicas_made >= len(self._replicas):
            world.newcomer = None
