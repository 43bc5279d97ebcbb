"""Who goes on where ranks of several hosts lose each other: at most one side, always. Pure: no MPI, no clock.

That a rank has lost another one says nothing about that one: it is a suspicion. Each rank publishes which ranks it
`keeps`, its vote, and passes on the votes of others. A vote only ever loses ranks. Ranks S go on without the rest of
the members M once each rank of S has voted for exactly S, and S is a quorum of M: more than half of M, or half of M
with its lowest rank, or all but ranks that are known to have ended. S are then the members.

At most one side goes on. Say that S and T were installed, each by such steps from the same members at the start. Two
quorums of the same members have a rank in common. It has voted for both, and its votes only lose ranks: one of the two
lies within the other. A quorum T of M that lies within S, itself less than M, is more than half of S: so what comes
after S has a rank in common with T, too. Step by step all installed sets lie within one another. (Ranks that have
ended go on nowhere, so they may be left out of S without their votes.)

A rank writes for the job only after a quorum of its members has confirmed that they keep it (`grant`), while it has
itself voted for nothing less than the members. Each step that leaves it out needs a vote of one of those that have
confirmed it, and these give none for GRANT_S.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from dstorm.membership.decision import mask, ranks

SETTLE_S = 0.5
"""How long a rank waits for more suspicions before it votes: one fault breaks many connections, not all at once."""
ECHO_S = 10.0
"""How long a rank may take to answer while the others agree. One that takes longer is suspected."""
ALONE_S = 3.0
"""How long ranks that are no quorum wait for news of the others before they leave."""
LONGEST_S = 60.0
"""How long an agreement may take. A rank that knows no result by then leaves."""
GRANT_S = 1.0
"""For how long a rank that has confirmed another one does not vote for a set without it."""
_MOST_BRANCHES = 4096


class State(NamedTuple):
    """What a rank publishes. All fields are masks of ranks."""

    members: int
    """The ranks that go on, as far as it knows. Its result of the last agreement."""
    ended: int
    """The ranks that are known to have ended: their hosts, the launcher or they themselves have said so."""
    keeps: tuple[int, ...]
    """By rank: the ranks that it keeps, as far as this rank knows."""

    def to_bytes(self) -> bytes:
        """The state as bytes, as many for each number of ranks."""
        width = -(-len(self.keeps) // 8)
        return b"".join(one.to_bytes(width, "little") for one in (self.members, self.ended, *self.keeps))


def from_bytes(data: bytes, size: int) -> State:
    """The state of one of `size` ranks that to_bytes() has given as `data`. ValueError: it has another length."""
    width = -(-size // 8)
    if len(data) != width * (size + 2):
        raise ValueError(f"a state of {len(data)} bytes, where {width * (size + 2)} are expected")
    members, ended, *keeps = (
        int.from_bytes(data[start : start + width], "little") for start in range(0, len(data), width)
    )
    return State(members, ended, tuple(keeps))


def is_quorum(some: int, members: int, ended: int = 0) -> bool:
    """Whether the ranks `some` may go on without the rest of `members`. `ended`: those known to have ended. Masks."""
    twice, number = 2 * (some & members).bit_count(), members.bit_count()
    return twice > number or (twice == number and bool(some & members & -members)) or not members & ~some & ~ended


class Quorum:
    """What `rank`, one of `size` ranks, knows of the agreement. `now`: seconds of one clock, in all calls."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        everyone = (1 << size) - 1
        self.state = State(everyone, 0, (everyone,) * size)
        """What this rank publishes. Each change replaces it."""
        self.why = ""
        """Why this rank must leave; "" while it need not."""
        self._own = 1 << rank
        self._suspected = 0
        """The ranks that it has lost, for good, as a mask. It votes without them once it has confirmed none of them."""
        self._choice = everyone
        self._chosen_at = self._begun_at = 0.0
        self._seen: dict[int, tuple[State, float]] = {}
        self._granted: dict[int, float] = {}

    @property
    def members(self) -> int:
        """The ranks that go on, as a mask."""
        return self.state.members

    @property
    def vote(self) -> int:
        """The ranks that this rank keeps, as a mask."""
        return self.state.keeps[self.rank]

    @property
    def is_undecided(self) -> bool:
        """Whether members have lost each other, and it is not decided yet who goes on."""
        present = self.members & ~self.state.ended
        suspected = present & self._suspected
        return bool(self.why or suspected) or any(present & ~self.state.keeps[rank] for rank in ranks(present))

    @property
    def may_ask(self) -> bool:
        """Whether this rank has voted for nothing less than the members: only then may it be confirmed."""
        return not self.why and not self._suspected & self.members and self.vote == self.members == self._choice

    def suspect(self, some: Iterable[int]) -> None:
        """Note that this rank has lost the ranks `some`. That is for good."""
        self._suspected |= mask(some) & ~self._own

    def note_ended(self, some: Iterable[int]) -> None:
        """Note that the ranks `some` are known to have ended."""
        self.state = self.state._replace(ended=self.state.ended | mask(some) & ~self._own)

    def note(self, peer: int, state: State, now: float) -> None:
        """Note the state that `peer` has published, or that this rank has seen it again."""
        self._seen[peer] = state, now
        keeps = tuple(one & other for one, other in zip(self.state.keeps, state.keeps, strict=True))
        keeps = (*keeps[: self.rank], self.vote, *keeps[self.rank + 1 :])
        members = self.members
        if state.members & self._own:
            members &= state.members  # they lie within one another
        elif state.members:
            self._leave(f"ranks {sorted(ranks(state.members))} have lost it, and go on without it")
        self.state = State(members, self.state.ended | state.ended & ~self._own, keeps)

    def decide(self, now: float) -> None:
        """Vote and install what can be installed by now. To be called now and then, and after each change."""
        if (suspected := self._suspected & self.vote) and not self._has_confirmed(suspected, now):
            self._vote(self.vote & ~suspected)
        choice = choose(self.state)
        if choice == self.members:
            self._choice = choice
            return
        if self._choice == self.members:
            self._begun_at = now
        if choice != self._choice:
            self._choice, self._chosen_at = choice, now
        if now - self._begun_at > LONGEST_S:
            self._leave(f"nobody knows after {LONGEST_S:g} s which ranks go on")
        elif not is_quorum(choice, self.members, self.state.ended) or not choice & ~self._suspected:
            if now - self._chosen_at > ALONE_S:  # nobody can tell this rank any more
                self._leave(_too_few(self.members & self._suspected, self.members & ~self._suspected))
        elif choice & self._own:
            self._agree(choice, now)
            if all(self.state.keeps[rank] == choice for rank in ranks(choice)):
                self.state = self.state._replace(members=choice)

    def grant(self, peer: int, now: float) -> int:
        """Confirm `peer`, unless this rank has lost it or voted without it; return whom it keeps, as a mask."""
        keeps = self.vote & ~self._suspected
        if keeps >> peer & 1:
            self._granted[peer] = now + GRANT_S
        return keeps

    def is_confirmed(self, votes: Mapping[int, int]) -> bool:
        """Whether `votes`, the votes of other ranks, confirm this rank. They must be asked for while `may_ask`."""
        confirming = self._own | mask(rank for rank, vote in votes.items() if vote & self._own)
        return self.may_ask and is_quorum(confirming, self.members, self.state.ended)

    def _agree(self, choice: int, now: float) -> None:
        """Vote for `choice`, once its ranks choose the same, and no rank is left out that was just confirmed."""
        left_out = self.members & ~choice & ~self.state.ended
        if self.vote == choice or self._has_confirmed(left_out, now):
            return
        if not left_out:  # only ranks that have ended
            self._vote(choice)
            return
        since = self._chosen_at
        late = [rank for rank in ranks(choice & ~self._own) if self._seen.get(rank, (None, -1.0))[1] < since]
        if late and now - since > ECHO_S:
            self.suspect(late)
        elif now - since > SETTLE_S and not late and self._is_common(choice):
            self._vote(choice)

    def _has_confirmed(self, some: int, now: float) -> bool:
        """Whether it has confirmed one of the ranks `some` a moment ago, and may not vote without it yet."""
        some &= ~self.state.ended
        return any(now < until and some >> rank & 1 for rank, until in self._granted.items())

    def _is_common(self, choice: int) -> bool:
        return all(choose(self._seen[rank][0]) == choice for rank in ranks(choice & ~self._own))

    def _vote(self, vote: int) -> None:
        keeps = list(self.state.keeps)
        keeps[self.rank] = vote
        self.state = self.state._replace(keeps=tuple(keeps))

    def _leave(self, why: str) -> None:
        self.why = self.why or why


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
        return max(without, largest(some & ~suspected[worst]), key=lambda found: _key(found, state.members))

    return largest(present)


def _key(some: int, members: int) -> tuple[int, bool, list[int]]:
    return some.bit_count(), bool(some & members & -members), [-rank for rank in sorted(ranks(some))]


def _too_few(suspected: int, side: int) -> str:
    return (
        f"it has lost ranks {sorted(ranks(suspected))}, which may be going on: ranks {sorted(ranks(side))} are not "
        "more than half, nor half with the lowest rank"
    )
