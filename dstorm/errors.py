"""The errors that calls raise beside ValueError and TypeError, which mean a wrong argument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class _Copied(Exception):
    """The base of errors that are made of other arguments than their message: copy and pickle make them of that."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args), vars(self)


def _again(kind: type[Exception], args: tuple[Any, ...]) -> Exception:
    """Return an error of these `args`, without a call of its constructor."""
    made = kind.__new__(kind)
    made.args = args
    return made


class ClosedError(RuntimeError):
    """The vector or the session was used after it was closed."""


class PeerLost(_Copied, RuntimeError):
    """A rank that this call needs has failed or departed; `rank` is its number."""

    def __init__(self, rank: int, what: str) -> None:
        super().__init__(f"rank {rank} is lost: {what}")
        self.rank = rank


class DeadlinePassed(_Copied, TimeoutError):
    """A wait ended at its deadline; it is not known why the missing ranks did not arrive.

    `missing` maps each rank that was waited for to the last step that it is known to have reached.
    """

    def __init__(self, what: str, missing: Mapping[int, int], silent_s: Mapping[int, float]) -> None:
        named = ", ".join(
            f"rank {rank} (last step {step}, heard of {silent_s[rank]:.1f} s ago)" for rank, step in missing.items()
        )
        super().__init__(f"{what}: the deadline passed waiting for {named}")
        self.missing = dict(missing)


class TransferFailed(_Copied, RuntimeError):
    """An error has ended the transfer thread of `rank`: what that rank scatters to other hosts leaves no more."""

    def __init__(self, rank: int, error: BaseException) -> None:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        super().__init__(
            f"rank {rank}: the transfer thread has ended, and what was scattered to other hosts leaves no more: {said}"
        )


class WithoutMpi(_Copied, ValueError):
    """A call needs MPI's own collectives, which these ranks do not use."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} needs ranks that use MPI's own collectives, and of which none may fail alone")


class MismatchedCalls(_Copied, RuntimeError):
    """Two ranks made different collective calls. All ranks must make the same ones in the same order."""

    def __init__(self, rank: int, call: str, other: int, other_call: str) -> None:
        super().__init__(
            f"rank {rank} is in {call} while rank {other} is in {other_call}: all ranks must make the same collective "
            "calls, in the same order"
        )


class Refused(SystemExit):
    """This rank cannot come back, and its process ends: why, in a line."""

    def __init__(self, rank: int, why: str) -> None:
        super().__init__(f"malt: rank {rank} stays out: {why}")


class OverlappingCalls(RuntimeError):
    """Two threads of this rank made calls at the same time that must follow one another. Nothing was done."""
