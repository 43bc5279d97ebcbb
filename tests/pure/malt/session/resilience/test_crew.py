"""The crew of a session: who leaves as the job shrinks, and who stays until another one is there."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import malt
from apps.harness.marks import Mark
from apps.harness.training import Training
from dstorm.view import FaultTolerantView
from malt.runner import roster
from malt.runner.roster import Roster
from malt.session import session
from malt.session.vectors.graphs import session_graph
from malt.session.world.crew import Crew, Dealt


@pytest.fixture
def made(tmp_path):
    """made(rank, incarnation): the crew of a rank of a job of up to four that began with two. All share one view."""
    view, now = FaultTolerantView(4, (2, 3)), iter(range(0, 1000, 10))
    roster.write(tmp_path, Roster.of(2, 1, 4))

    def transport(rank):
        return SimpleNamespace(rank=rank, view=view, clock=lambda: float(next(now)), call_later=calls.append)

    def crew(rank, incarnation=0):
        return Crew(str(tmp_path), transport(rank), incarnation, roster.read(tmp_path), incarnation > 0)

    calls = []
    crew.view, crew.calls, crew.transport = view, calls, transport
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


def test_a_rank_that_was_started_again_trains_all_epochs_of_the_next_session(made):
    """The loops of a session are counted from its begin: it has not gone through those of the one before."""
    zero, one = made(0), made(1)
    for _ in range(2):
        for crew in (zero, one):
            assert crew.begin_loop() == 0 and [crew.begin(epoch) for epoch in (0, 1)] == [0, 1]
    with roster.changing(zero._folder) as found:
        found.enlist(1, 1)
        found.enlist(1, 1)
        assert [one.incarnation for one in found.spells if one.rank == 1] == [0, 1]
    made.view.begin([], [0, 1, 0, 0], [0, 1, 0, 0])
    zero, one = (Crew(zero._folder, made.transport(rank), rank, roster.read(zero._folder), False, 2) for rank in (0, 1))
    for crew in (one, zero):
        assert crew.begin_loop() == 0 and crew.begin(0) == 0 and crew.dealt == Dealt((0, 1), {})
    made.view.change(failed=[1])
    assert zero.begin(1) == 1 and zero.dealt == Dealt((0, 1), {1: (0,)})


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
    assert not made.calls and one.why_left(1, 0) and not one.why_left(0, 1)


def test_a_rank_that_was_told_to_leave_and_has_begun_a_loop_since_leaves_at_an_epoch(made):
    """The others have dealt it rows of the epochs that they have begun: it trains them."""
    zero = made(0)
    assert zero.begin_loop() == 0 and zero.begin(0) == 0
    zero.scale(1)
    made.view.change(joined=[2])
    two = made(2, 1)
    two.look()
    first = two.begin_loop()
    assert zero.begin(1) == first == 1 and zero.dealt.ranks == (0, 2)
    made.calls.pop()()
    assert two.begin(first) == 1 and two.dealt.ranks == (0, 2)
    with pytest.raises(SystemExit):
        two.begin(2)
    assert zero.begin(2) == 2 and zero.dealt.ranks == (0,)


def test_a_rank_that_is_stopped_as_it_changes_the_roster_is_found_by_those_that_wait(made, tmp_path):
    """Their transport ends it. Nobody else would: not all ranks are stopped."""
    zero, polls = made(0), []
    text = "import sys, time\nfrom malt.runner import roster\nwith roster.changing(sys.argv[1]):\n    print(flush=True)"
    words = [sys.executable, "-c", f"{text}\n    time.sleep(10)", tmp_path]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as stopped:
        stopped.stdout.readline()

        def pause(count):
            polls.append(count)
            if count == 5:
                stopped.kill()

        zero._transport.pause = pause
        assert zero.begin(zero.begin_loop()) == 0 and polls[:5] == [1, 2, 3, 4, 5]


def test_rows_outside_of_epochs_are_dealt_among_as_many_as_there_are_to_be(made):
    zero = made(0)
    zero.scale(3)
    assert zero.dealt == Dealt((0, 1, 2), {2: [0, 1]})
    zero.begin_loop()
    zero.begin(0)
    assert zero.dealt == Dealt((0, 1), {}), "the third begins with a later epoch"
    zero.end_loop()
    assert zero.dealt.ranks == (0, 1, 2)


@pytest.mark.parametrize(
    ("graph", "follows"), [("ring", True), ("auto", True), ("base", True), ({0: [1], 1: [0]}, False)]
)
def test_a_graph_by_its_name_follows_the_ranks_there_are(graph, follows):
    size = 8 if isinstance(graph, str) else 2
    transport = SimpleNamespace(size=size, hosts=("here",) * size)
    found = session_graph(SimpleNamespace(is_elastic=True, transport=transport), graph)
    assert (found.smaller is not None) is follows
    if follows:
        assert found.without(range(3, 8)).out(2) == malt.graph(graph, 3).out(2)
    assert session_graph(SimpleNamespace(is_elastic=False, transport=transport), graph).smaller is None


def test_what_gives_each_rank_a_part_is_refused(monkeypatch):
    monkeypatch.setattr(type(malt.init()), "is_elastic", True)
    for make in (lambda: malt.sharded(10), lambda: malt.blocks(np.zeros((4, 2), np.float32), [2, 2])):
        with pytest.raises(RuntimeError, match="gives each rank a part, and ranks of this job come and go"):
            make()


def test_a_job_of_a_fixed_number_of_ranks_is_not_scaled():
    with pytest.raises(RuntimeError, match="does not change: start it with malt run --elastic MIN:MAX"):
        malt.scale(2)
    assert list(malt.epochs(3)) == [0, 1, 2] and list(malt.epochs(3, 2)) == [2]
    with pytest.raises(ValueError, match="malt.epochs: start"):
        malt.epochs(3, -1)


def test_a_number_of_ranks_that_cannot_be_is_refused_in_the_name_of_the_call(monkeypatch):
    monkeypatch.setattr(session.world(), "crew", SimpleNamespace(is_elastic=True, scale=Roster.of(2, 1, 4).scale))
    with pytest.raises(ValueError, match="^malt.scale: the number of ranks of this job is from 1 to 4, not 9$"):
        malt.scale(9)


def test_a_program_notes_the_epochs_that_passed_while_a_rank_came():
    """Or while another one that was to go had stayed, as it had the model alone: what it has counted stays counted."""
    training = SimpleNamespace(_checkpoints=SimpleNamespace(epoch=2), marks=[Mark(examples=7)])
    Training._skip_to(training, 4)
    assert training.marks == [Mark(examples=7)]
    Training._skip_to(training, 7)
    assert training.marks == [Mark(examples=7)] * 4
    training.marks = []
    Training._skip_to(training, 5)
    assert training.marks == [Mark()] * 2
