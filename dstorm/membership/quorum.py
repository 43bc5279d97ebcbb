"""Decides which side goes on when ranks of several hosts lose each other: at most one, always. Pure: no MPI, no clock.

That a rank has lost another one says nothing about that one: it is a suspicion. Each rank publishes which ranks it
`keeps`, its vote, and passes on the votes of others. A vote only ever loses ranks. Ranks S go on without the rest of
the members M once each rank of S has voted for exactly S, and S is a quorum of M: more than half of M, or half of M
with its lowest rank, or all but ranks that are known to have ended. S are then the members.

At most one side goes on. Say that S and T were installed, each by such steps from the same members at the start. Two
quorums of the same members have a rank in common. It has voted for both, and its votes only lose ranks: one of the two
lies within the other. A quorum T of M that lies within S, itself less than M, is more than half of S: so what comes
after S has a rank in common with T, too. Step by step all installed sets lie within one another. (Ranks that have
ended go on nowhere, so they may be left out of S without their votes.)

A rank that was started again becomes a member by a new epoch, in which votes begin anew. The lowest member proposes
it, once for these members. A rank accepts that while it has voted for nothing less than the members. One that sees that
all members have accepted enters the next epoch, whose members are M and the newcomer; and so does one that keeps a rank
which has entered it. It votes no more in the epoch before. The first set that is installed in the new epoch must be a
quorum of M, too, until all of M have entered it.

So at most one side goes on. Say that S was installed by votes of the old epoch, and a rank c of S enters the new one.
It keeps a rank that had entered before, which is in S, as c has voted for S; and so on, back to a rank of S that
entered first. That one had voted for nothing less than M, and votes no more: S was not installed. Hence S and a first
set T of the new epoch have no rank in common, and are not both quorums of M. S may propose a newcomer, too: a second
epoch with the same number. It begins with fewer ranks than the first one, by which the two are told apart. In the first
one nothing can be installed any more, as said, nor can all of its members accept another newcomer.

"All but ranks that have ended" counts the newest incarnation of each rank of which a rank here has heard. One is only
admitted after all could hear of its start. So who knows that the ranks are over that have admitted it knows of it.

A rank writes for the job only after a quorum of its members has confirmed that they keep it (`grant`), while it has
itself voted for nothing less than the members. Each step that leaves it out needs a vote of one of those that have
confirmed it, and these give none for GRANT_S.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from dstorm.membership.decision import mask, ranks
from dstorm.membership.votes import NONE, State, choose, first, is_quorum

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

IsLinked = Callable[[int], bool | None]
"""Tells what connections this rank has to and from a newcomer, as `Quorum.decide` says."""


class Quorum:
    """The agreement as `rank`, one of `size` ranks, knows it. `now`: seconds of one clock, in all calls.

    `incarnation`: of this rank. One that was started again is no member until others admit it. `absent`: the ranks that
    are none at the start, and may come later, the same for all: their incarnation 0 counts as ended.
    """

    def __init__(self, rank: int, size: int, incarnation: int = 0, absent: Collection[int] = ()) -> None:
        self.rank, self._incarnation = rank, incarnation
        self.state = first(size, mask(set(range(size)).difference(absent)))
        """What this rank publishes. Each change replaces it."""
        if incarnation:
            none = self.state.started
            started = (*none[:rank], incarnation, *none[rank + 1 :])
            self.state = State(0, (0,) * size, started, started, started, epoch=-1)
        self.note_over(dict.fromkeys(absent, 0))
        self.why = ""
        """Why this rank must leave; "" while it need not."""
        self._own = 1 << rank
        self._suspected = 0
        """The ranks that it has lost, for good, as a mask. It votes without them once it has confirmed none of them."""
        self._choice = self.state.members
        self._chosen_at = self._begun_at = 0.0
        self._proposed_at: float | None = None
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
        """True if members have lost each other, and it is not decided yet who goes on."""
        present = self.members & ~self.state.ended
        suspected = present & self._suspected
        return bool(self.why or suspected) or any(present & ~self.state.keeps[rank] for rank in ranks(present))

    @property
    def may_ask(self) -> bool:
        """True if this rank has voted for nothing less than the members: only then may it be confirmed."""
        return (
            not self.why and not self.is_outside and not self._suspected & self.members
            and self.vote == self.members == self._choice
        )  # fmt: skip

    @property
    def is_outside(self) -> bool:
        """True if this rank was started again, and is no member yet."""
        return self.state.epoch < 0

    def suspect(self, some: Iterable[int]) -> None:
        """Note that this rank has lost the ranks `some`. That is for good, for their incarnations of this epoch."""
        self._suspected |= mask(some) & ~self._own

    def note_over(self, some: Mapping[int, int]) -> None:
        """Note that these incarnations of ranks, and all before, are known to have ended."""
        over = list(self.state.over)
        for rank, incarnation in some.items():
            if rank != self.rank:
                over[rank] = max(over[rank], incarnation + 1)
        self.state = self.state._replace(over=tuple(over))

    def note_started(self, some: Mapping[int, int]) -> None:
        """Note that these incarnations of ranks were started."""
        started = list(self.state.started)
        for rank, incarnation in some.items():
            started[rank] = max(started[rank], incarnation)
        self.state = self.state._replace(started=tuple(started))

    def note(self, peer: int, state: State, now: float) -> None:
        """Note the state that `peer` has published, or that this rank has seen it again."""
        self._seen[peer] = state, now
        own = self.state
        over = [max(pair) for pair in zip(own.over, state.over, strict=True)]
        over[self.rank] = own.over[self.rank]
        started = tuple(max(pair) for pair in zip(own.started, state.started, strict=True))
        self.state = own = own._replace(over=tuple(over), started=started)
        is_meant = state.incarnations[self.rank] == self._incarnation
        if state.incarnations[self.rank] > self._incarnation:
            self._leave("another process has taken its place")
        elif state.epoch < 0 or (self.is_outside and not is_meant):
            return
        elif self.is_outside or (is_meant and self._follows(peer, state)):
            self._enter(state)
        own = self.state
        is_left_out = not is_meant if state.epoch > own.epoch else is_meant and not state.members & self._own
        if self._is_behind(state) or (state.epoch >= own.epoch and is_left_out):
            self._leave(_out(state.members))
        elif state.is_of(own) and is_meant:
            keeps = tuple(one & other for one, other in zip(own.keeps, state.keeps, strict=True))
            keeps = (*keeps[: self.rank], self.vote, *keeps[self.rank + 1 :])
            members = own.members & state.members  # they lie within one another
            newcomer = own.newcomer if members == own.members else NONE
            prior = own.prior if state.prior else 0
            self.state = own._replace(members=members, keeps=keeps, newcomer=newcomer, prior=prior)
        elif state.epoch == own.epoch - 1 and own.prior & self._own and not state.keeps[peer] & self._own:
            self.suspect([peer])  # it has lost this rank, and so does not follow it

    def _follows(self, peer: int, state: State) -> bool:
        """Return whether this rank, which is meant by `state` of `peer`, enters its epoch."""
        own = self.state
        if not state.base & self._own:
            return False
        is_next = state.epoch == own.epoch + 1 and bool(self.vote >> peer & 1)
        # Of two epochs with one number that with more members was left behind. A newcomer may be in both.
        return is_next or (state.epoch == own.epoch and state.base.bit_count() < own.base.bit_count())

    def _is_behind(self, state: State) -> bool:
        """Return whether no rank can follow this one into its epoch, by `state`: others were installed before."""
        own = self.state
        if state.epoch == own.epoch:
            return state.base.bit_count() < own.base.bit_count()
        before = state.epoch == own.epoch - 1 and bool(own.prior) and not state.members & ~own.prior
        return before and state.members != own.prior

    def propose(self, newcomer: int, incarnation: int) -> bool:
        """Propose that `newcomer`, as this incarnation, becomes a member; return whether all members know that it is.

        To be called again and again by one rank, the lowest member.
        """
        self.note_started({newcomer: incarnation})
        self.note_over({newcomer: incarnation - 1})
        state = self.state
        if state.over[newcomer] > incarnation:
            return False
        if state.members >> newcomer & 1 and state.incarnations[newcomer] == incarnation:
            return not state.prior
        is_lowest = state.members & -state.members == self._own
        if is_lowest and state.newcomer == NONE and self.may_ask and not state.members >> newcomer & 1:
            self.state = state._replace(newcomer=(newcomer, incarnation))
        return False

    def _accept(self, is_linked: IsLinked, now: float) -> None:
        """Accept what the lowest member proposes, once this rank is linked with the newcomer.

        One that has ended, or has not called this rank for long, holds up no other: it will be left out again.
        """
        own = self.state
        lowest = (own.members & -own.members).bit_length() - 1
        seen = self._seen.get(lowest, (own, 0.0))[0]
        is_asked = seen.newcomer != NONE and seen.is_of(own) and seen.members == own.members
        if own.newcomer != NONE or not self.may_ask or not is_asked:
            self._proposed_at = None
            return
        rank, incarnation = seen.newcomer
        linked = is_linked(rank)
        if self._proposed_at is None or linked is None:
            self._proposed_at = now
        if linked or own.over[rank] > incarnation or now - self._proposed_at > ECHO_S:
            self.state = own._replace(newcomer=seen.newcomer)

    def _enter_if_accepted(self) -> None:
        """Enter the epoch of a newcomer that all members have accepted."""
        own = self.state
        if own.newcomer == NONE or self.vote != own.members:
            return
        for rank in ranks(own.members & ~self._own):
            seen = self._seen.get(rank, (None, 0.0))[0]
            if seen is None or not seen.is_of(own) or (seen.members, seen.newcomer) != (own.members, own.newcomer):
                return
        rank, incarnation = own.newcomer
        incarnations = (*own.incarnations[:rank], incarnation, *own.incarnations[rank + 1 :])
        self._begin(own.members | 1 << rank, own.members, own.epoch + 1, incarnations)

    def _enter(self, state: State) -> None:
        """Enter the epoch of `state`."""
        self._begin(state.base, state.prior, state.epoch, state.incarnations)

    def _begin(self, base: int, prior: int, epoch: int, incarnations: tuple[int, ...]) -> None:
        """Begin an epoch: nobody is known to have lost anybody, but what this rank has itself."""
        for rank, before in enumerate(self.state.incarnations):
            if incarnations[rank] != before:
                self._suspected &= ~(1 << rank)
                self._seen.pop(rank, None)
                self._granted.pop(rank, None)
        self.state = self.state._replace(
            members=base, keeps=(base,) * len(self.state.keeps), incarnations=incarnations, epoch=epoch, base=base,
            prior=prior, newcomer=NONE,
        )  # fmt: skip
        self._choice = base

    def _end_prior(self) -> None:
        """Forget the epoch before once nobody votes in it any more."""
        own = self.state
        late = [
            rank for rank in ranks(own.prior & ~own.ended & ~self._own)
            if rank not in self._seen or not self._seen[rank][0].is_of(own)
        ]  # fmt: skip
        if own.prior and not late:
            self.state = own._replace(prior=0)

    def _may_go_on(self, some: int) -> bool:
        """Return whether the ranks `some` may go on without the rest of the members."""
        own = self.state
        if is_quorum(some, own.members) and (not own.prior or is_quorum(some, own.prior)):
            return True
        return all(
            own.over[rank] > max(own.incarnations[rank], own.started[rank])
            for rank in range(len(own.keeps))
            if not some >> rank & 1 and (own.members >> rank & 1 or own.started[rank] > own.incarnations[rank])
        )

    def decide(self, now: float, is_linked: IsLinked = lambda rank: True) -> None:
        """Vote and install what can be installed by now. To be called now and then, and after each change.

        `is_linked(rank)`: whether this rank uses connections to and from a newcomer; None: it will, and has them.
        """
        if self.is_outside:
            return
        self._end_prior()
        self._accept(is_linked, now)
        self._enter_if_accepted()
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
            self._leave(f"nobody knows after {LONGEST_S:g} s which ranks continue")
        elif not self._may_go_on(choice) or not choice & ~self._suspected:
            if now - self._chosen_at > ALONE_S:  # nobody can tell this rank any more
                self._leave(_too_few(self.members & self._suspected, self.members & ~self._suspected))
        elif choice & self._own:
            self._agree(choice, now)
            if all(self.state.keeps[rank] == choice for rank in ranks(choice)):
                self.state = self.state._replace(members=choice, prior=0, newcomer=NONE)

    def grant(self, peer: int, now: float) -> int:
        """Confirm `peer`, unless this rank has lost it or voted without it; return whom it keeps, as a mask."""
        keeps = self.vote & ~self._suspected
        if keeps >> peer & 1:
            self._granted[peer] = now + GRANT_S
        return keeps

    def is_confirmed(self, votes: Mapping[int, int]) -> bool:
        """Return whether `votes`, those of other ranks, confirm this rank. They must be asked for while `may_ask`."""
        confirming = self._own | mask(rank for rank, vote in votes.items() if vote & self._own)
        return self.may_ask and self._may_go_on(confirming)

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
        """Return whether it has confirmed one of the ranks `some` a moment ago, and may not vote without it yet."""
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


def _out(members: int) -> str:
    return f"ranks {sorted(ranks(members))} have lost it, and go on without it"


def _too_few(suspected: int, side: int) -> str:
    return (
        f"it has lost ranks {sorted(ranks(suspected))}, which may be going on: ranks {sorted(ranks(side))} are not "
        "more than half, nor half with the lowest rank"
    )
