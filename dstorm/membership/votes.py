"""The state that ranks publish of the agreement on who goes on, and the choice that follows. Pure: no MPI, no clock.

dstorm/membership/quorum.py says how they come to it.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from dstorm.membership.decision import mask, ranks

_MOST_BRANCHES = 4096
"""The most sets of ranks that `choose` looks at."""
NONE: Final = (-1, 0)


class State(NamedTuple):
    """The state that a rank publishes. Sets of ranks are masks."""

    members: int
    """The ranks that go on, as far as it knows. Its result of the last agreement."""
    keeps: tuple[int, ...]
    """By rank: the ranks that it keeps, as far as this rank knows."""
    over: tuple[int, ...]
    """By rank: how many of its incarnations are known to have ended: their hosts, the launcher or they have said so."""
    started: tuple[int, ...]
    """By rank: the newest incarnation of which this rank has heard that it was started."""
    incarnations: tuple[int, ...]
    """By rank: the incarnation that is meant by it in this epoch."""
    epoch: int = 0
    """How many ranks have become members after the start; -1: this rank is no member yet."""
    base: int = 0
    """The members with which the epoch has begun."""
    prior: int = 0
    """Those of the epoch before, until all of them have entered this one; 0: they have."""
    newcomer: tuple[int, int] = NONE
    """The rank that it accepts as the next member, and its incarnation; NONE: it accepts none."""

    @property
    def ended(self) -> int:
        """The ranks whose incarnations of this epoch have ended, as a mask."""
        return mask(
            rank for rank, (over, one) in enumerate(zip(self.over, self.incarnations, strict=True)) if over > one
        )

    def to_bytes(self) -> bytes:
        """The state as bytes, as many for each number of ranks."""
        size = len(self.keeps)
        width = -(-size // 8)
        masks = (self.members, self.base, self.prior, *self.keeps)
        numbers = (self.epoch, *self.newcomer, *self.over, *self.started, *self.incarnations)
        return b"".join(one.to_bytes(width, "little") for one in masks) + struct.pack(f"<{len(numbers)}i", *numbers)

    def is_of(self, other: State) -> bool:
        """Return whether both are of one epoch."""
        return (self.epoch, self.base) == (other.epoch, other.base)


def nbytes(size: int) -> int:
    """The bytes of a state of one of `size` ranks."""
    return -(-size // 8) * (size + 3) + 4 * (3 * size + 3)


def first(size: int, members: int | None = None) -> State:
    """The state of all `size` ranks at the start. `members`: by default all."""
    everyone = (1 << size) - 1 if members is None else members
    return State(everyone, (everyone,) * size, (0,) * size, (0,) * size, (0,) * size, base=everyone)


def from_bytes(data: bytes, size: int) -> State:
    """The state of one of `size` ranks that to_bytes() has given as `data`. ValueError: it has another length."""
    if len(data) != nbytes(size):
        raise ValueError(f"a state of {len(data)} bytes, where {nbytes(size)} are expected")
    width = -(-size // 8)
    end = width * (size + 3)
    members, base, prior, *keeps = (
        int.from_bytes(data[start : start + width], "little") for start in range(0, end, width)
    )
    epoch, rank, incarnation, *rest = struct.unpack_from(f"<{3 * size + 3}i", data, end)
    over, started, incarnations = (tuple(rest[part * size : (part + 1) * size]) for part in range(3))
    return State(members, tuple(keeps), over, started, incarnations, epoch, base, prior, (rank, incarnation))


def is_quorum(some: int, members: int) -> bool:
    """Return whether the ranks `some` are more than half of `members`, or half of them with the lowest. Masks."""
    twice, number = 2 * (some & members).bit_count(), members.bit_count()
    return twice > number or (twice == number and bool(some & members & -members))


@lru_cache(maxsize=64)
def choose(state: State) -> int:
    """The ranks that should go on: members that have not ended and keep one another, as many as possible.

    Of sets of equal size it is that with the lowest member, then that of lower ranks: the same on all ranks that know
    the same votes.
    """
    present = state.members & ~state.ended
    suspected = {rank: present & ~state.keeps[rank] & ~(1 << rank) for rank in ranks(present)}
    for rank in tuple(suspected):
        for other in ranks(suspected[rank]):
            suspected[other] |= 1 << rank
    branches = [0]

    def largest(some: int) -> int:
        """The ranks that should go on, of the ranks `some`."""
        branches[0] += 1
        degrees = {rank: (suspected[rank] & some).bit_count() for rank in ranks(some)}
        worst = max(degrees, key=lambda rank: (degrees[rank], rank), default=-1)
        if worst < 0 or not degrees[worst]:
            return some
        without = largest(some & ~(1 << worst))
        if degrees[worst] == 1 or branches[0] > _MOST_BRANCHES:  # pairs: the lower rank of each
            return without
        return max(without, largest(some & ~suspected[worst]), key=lambda found: key(found, state.members))

    return largest(present)


def key(some: int, members: int) -> tuple[int, bool, list[int]]:
    """Return a key that is larger for the better one of two sets."""
    return some.bit_count(), bool(some & members & -members), [-rank for rank in sorted(ranks(some))]
