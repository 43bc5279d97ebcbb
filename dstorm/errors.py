"""The errors of use and of peers; ValueError and TypeError say that an argument is wrong."""

from __future__ import annotations

from collections.abc import Mapping


class ClosedError(RuntimeError):
    """You closed it: the vector, or the session, was used after its close."""


class PeerLost(RuntimeError):
    """They died: a rank that this call needs is gone."""

    def __init__(self, rank: int, what: str) -> None:
        super().__init__(f"rank {rank} is lost: {what}")
        self.rank = rank


class DeadlinePassed(TimeoutError):
    """Nobody knows who is to blame: a wait ended at its deadline.

    `missing` maps each rank that was waited for to the last step it was seen to reach.
    """

    def __init__(self, what: str, missing: Mapping[int, int], silent_s: Mapping[int, float]) -> None:
        named = ", ".join(
            f"rank {rank} (last step {step}, heard of {silent_s[rank]:.1f} s ago)" for rank, step in missing.items()
        )
        super().__init__(f"{what}: the deadline passed waiting for {named}")
        self.missing = dict(missing)


class MismatchedCalls(RuntimeError):
    """Two ranks made different collective calls, where all must make the same ones in the same order."""

    def __init__(self, rank: int, call: str, other: int, other_call: str) -> None:
        super().__init__(
            f"rank {rank} is in {call} while rank {other} is in {other_call}: all ranks must make the same collective "
            "calls, in the same order"
        )


class OverlappingCalls(RuntimeError):
    """Two threads of this rank made calls at the same time that must follow one another; nothing was done."""
