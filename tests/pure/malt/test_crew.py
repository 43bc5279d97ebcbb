"""The crew of a session: who leaves as the job shrinks, and who stays until another one is there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dstorm.view import FaultTolerantView
from malt.runner import roster
from malt.runner.roster import Roster
from malt.world.crew import Crew, Dealt

pytestmark = pytest.mark.serial


@pytest.fixture
def made(tmp_path):
    """made(rank, incarnation): the crew of a rank of a job of up to four that began with two. All share one view."""
    view, now = FaultTolerantView(4, (2, 3)), iter(range(0, 1000, 10))
    roster.write(tmp_path, Roster.of(2, 1, 4))

    def crew(rank, incarnation=0):
        transport = SimpleNamespace(rank=rank, view=view, clock=lambda: float(next(now)), call_later=calls.append)
        return Crew(str(tmp_path), transport, incarnation, roster.read(tmp_path))

    calls = []
    crew.view, crew.calls = view, calls
    return crew


def test_a_rank_that_leaves_waits_until_one_is_there_that_stays(made):
    zero, one = made(0), made(1)
    for crew in (zero, one):
        assert crew.begin_loop() == 0 and crew.begin(0) == 0
    made.view.change(failed=[0])
    one.scale(1)
    assert [one.begin(epoch) for epoch in (1, 2, 3)] == [1, 2, 3], "it has the model alone"
    made.view.change(joined=[0])
    back = made(0, 1)
    assert one.begin(4) == 4, "that one may not have the model yet"
    assert back.begin(back.begin_loop()) == 5
    assert one.begin(5) == 5, "others have begun no later epoch than that"
    assert one.dealt.ranks == (0, 1)
    with pytest.raises(SystemExit) as left:
        one.begin(6)
    assert left.value.code == 0 and one.is_retired and back.begin(6) == 6 and back.dealt == Dealt((0,), {})


def test_without_a_loop_over_epochs_a_rank_leaves_in_a_call(made):
    zero, one = made(0), made(1)
    made.view.change(failed=[0])
    zero.scale(1)
    one.look()
    assert one.size == 1 and len(made.calls) == 1
    made.calls.pop()()
    made.view.change(joined=[0])
    one.look()
    one.look()
    with pytest.raises(SystemExit):
        made.calls.pop()()
    assert not made.calls and one.has_retired(1, 0) and not one.has_retired(0, 1)


def test_rows_outside_of_epochs_are_dealt_among_as_many_as_there_are_to_be(made):
    zero = made(0)
    zero.scale(3)
    assert zero.dealt == Dealt((0, 1, 2), {2: [0, 1]})
    zero.begin_loop()
    zero.begin(0)
    assert zero.dealt == Dealt((0, 1), {}), "the third begins with a later epoch"
    zero.end_loop()
    assert zero.dealt.ranks == (0, 1, 2)
