"""Ranks that fail at any Put and come back: those that live are members of one generation, and leave barriers alike."""

from types import SimpleNamespace

import pytest
from generations import Drawn, check_generation, played
from mutation import plant

from dstorm.membership.barriers.barrier import Barrier
from dstorm.membership.decision import Generation, Membership, Word, mask
from dstorm.membership.returns.returns import Returns
from dstorm.view import FaultTolerantView

pytestmark = pytest.mark.serial
FIRST, SEEDS = 600, 60
"""Seed 636 is the first by which all mutants are found."""


def drawn(seed):
    """A schedule of five ranks, of which three fail, and three are started again."""
    return check_generation(Drawn(seed), size=5, turns=40, deaths=3, lives=3, first=seed % 5, overlaps=True)


@pytest.mark.parametrize(("first", "turns"), [
    (0, 2), (1, 2), (2, 2), pytest.param(2, 3, marks=pytest.mark.thorough),
])  # fmt: skip
def test_every_schedule_of_three_ranks(first, turns):
    """One that comes back, and one that fails at any Put; `turns` of any rank before all is quiet."""
    assert played(turns=turns, first=first) > 100


@pytest.mark.parametrize("seed", range(6))
def test_five_ranks(seed):
    generations = 0
    for one in range(FIRST + SEEDS * seed, FIRST + SEEDS * (seed + 1)):
        ranks = drawn(one)
        generations += max((rank.barrier.membership.own.generation.number for rank in ranks.members()), default=0)
    assert generations > SEEDS


def test_nobody_follows_a_rank_that_it_has_marked_failed():
    """Others may have marked it, and have made another generation of the same number."""
    view = FaultTolerantView(4, absent=[1])
    own = Membership(0, view)
    own.words[2] = Word(generation=Generation(1, 1, 1))
    assert own.admission() is own.words[2]
    view.change(failed=[2])
    own.mark_failed([2])
    assert own.admission() is None


def test_a_word_from_before_a_return_is_of_a_former_incarnation():
    view = FaultTolerantView(3, absent=[1])
    own = Membership(0, view)
    view.change(joined=[1])
    old, new = Word(entered=7), Word(generation=Generation(1, 1, 1))
    assert [own.is_former(rank, word) for rank in (1, 2) for word in (old, new)] == [True, False, False, False]


MUTANTS = {
    "leads_another_generation": (
        Membership, "leads",
        ("(word.generation, own.failed & ~word.failed) == (own.generation, 0)", "not own.failed & ~word.failed"),
    ),
    "leads_who_knows_less": (
        Membership, "leads", ("own.failed & ~word.failed) == (own.generation, 0)", "0) == (own.generation, 0)"),
    ),
    "leads_the_ranks_below_alone": (
        Membership, "leads",
        ("own.failed & ~word.failed) == ", "own.failed & ~word.failed & (1 << self.rank) - 1) == "),
    ),
    "takes_failures_of_another_generation": (
        Membership, "note", ("if word.generation == own.generation else 0", ""),
    ),
    "decides_with_who_has_failed": (
        Membership, "decision", ("self.others()", "range(self.view.size)"),
    ),
    "comes_without_the_decision": (
        Membership, "admit", (", decided=decided, lost=lost", ""),
    ),
    "ends_before_all_have_entered": (
        Barrier, "_decision", (" or missing:", ":"), ("if self.membership.missing(number):  #", "if False:  #"),
    ),
    "keeps_a_decision_to_itself": (
        Barrier, "_decision", ("self._publish()  #", "pass  #"),
    ),
    "keeps_what_was_found_before": (
        Barrier, "_mark_failed", ("since == self.membership.own.generation", "True"),
    ),
    "does_not_pass_it_on": (
        Barrier, "follow", ("    self._publish()", "    pass"),
    ),
    "waits_for_nobody": (
        Returns, "_admitting", ("words.keys() >= others - out - ended", "words"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_found(mutant, monkeypatch):
    owner, name, *exchanges = MUTANTS[mutant]
    plant(monkeypatch, owner, name, *exchanges)
    with pytest.raises((AssertionError, IndexError, KeyError)):
        for seed in range(FIRST, FIRST + 6 * SEEDS):
            drawn(seed)


def test_none_is_admitted_by_one_that_has_withdrawn_from_a_barrier_that_others_have_left():
    """Its newcomer would come to that barrier, whose decision says that it has failed."""
    own = Membership(0, FaultTolerantView(3, absent=[2]))
    assert own.enter(1) == 1
    own.note(1, own.own._replace(decided=1))
    assert own.leads()
    own.withdraw()
    assert not own.leads()
    own.enter(1)
    assert own.leads()


def test_a_newcomer_begins_in_the_latest_generation_that_admits_it():
    """Rank 0 admitted it and failed, which rank 1 did not live to see; rank 2 admitted rank 1 again, then this one."""
    returns = object.__new__(Returns)
    late = Word(generation=Generation(2, 3, 1), failed=mask([0]))
    words = {0: Word(generation=Generation(1, 3, 1), failed=mask([1])), 2: late}
    returns.barrier = SimpleNamespace(read_words=lambda: words)
    returns._view, returns._rank, returns._find_ended = FaultTolerantView(4), 3, lambda: [0]
    assert returns._admitting(1) is None
    words[1] = late
    assert returns._admitting(1) == {1: late, 2: late}
