"""What all ranks have made of vectors and Replicas, as ranks that come back must make them, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from vol import Vector

if TYPE_CHECKING:
    from malt.world.world import OpenVector, World


class Creations:
    """What was agreed on, in the order in which it was made: the same on all ranks. The constructor is Local."""

    def __init__(self) -> None:
        self.vectors: list[dict[str, Any]] = []
        """Of each vector and blocks, with the place of its memory."""
        self.replicas: list[dict[str, Any]] = []
        """Of each Replica, and of what makes one later, with what it has begun with since."""


class Newcomer(Protocol):
    """How a rank that has come back gets what the others have."""

    announced: list[Vector]
    """The vectors that it has announced, and not begun yet."""
    is_gathering: bool
    """Whether more are to be announced before they begin."""
    is_led: bool
    """Whether one under lockstep has begun, in which the others hold until all are opened."""

    def match(self, world: World, call: str, described: dict[str, Any]) -> dict[str, Any] | None:
        """What the others have made by the same call. None: they have not made it yet, and all make it."""

    def has_replica(self, world: World) -> bool:
        """Whether the others have made the Replica that this rank is about to make. One-sided: it may be admitted."""

    def match_replica(self, world: World, call: str, described: dict[str, Any]) -> bool:
        """Return whether the others have made the same Replica by the same call."""

    def has_more(self, world: World) -> bool:
        """Return whether the others have vectors that it has not made yet."""

    def replace(self, world: World, made: OpenVector, entry: dict[str, Any]) -> None:
        """Keep the vector `made` where the others keep theirs."""
