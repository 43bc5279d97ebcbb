"""How a rank of another host changes the roster: by the launcher, and by itself where that does not answer."""

import time

import pytest

from malt.launch.reports import control
from malt.runner import departure, reporting, roster
from malt.runner.roster import Roster
from malt.session.world import roster_requests
from malt.session.world.roster_requests import Asking

BOTH = [(0, 0), (1, 0)]


@pytest.fixture
def launcher(tmp_path, monkeypatch):
    """The folder of the launcher, which answers while `state` says so."""
    folder, published, state = tmp_path / "launcher", {}, {"answers": True, "has_ended": False}
    folder.mkdir()
    (tmp_path / "here").mkdir()
    for one in (folder, tmp_path / "here"):
        roster.write(one, Roster.of(2, 1, 4))

    def publish(name, text):
        assert name == roster.ASK
        if state["answers"]:
            published[roster.ANSWER] = control._answer(folder, text)

    monkeypatch.setattr(reporting, "is_connected", lambda: True)
    monkeypatch.setattr(reporting, "publish", publish)
    monkeypatch.setattr(departure, "published", published.get)
    monkeypatch.setattr(departure, "is_disconnected", lambda: state["has_ended"])
    return folder, state


@pytest.fixture
def mine(tmp_path, launcher):
    return Asking(str(tmp_path / "here"), roster.read(tmp_path / "here"), lambda polls: time.sleep(0.001))


def test_the_launcher_changes_its_file_and_answers(launcher, mine):
    folder, _ = launcher
    found, begun = mine.change("begin", 1, 0, (0, 3), BOTH, [])
    assert begun == [0, 3] and found == roster.read(folder) == mine.read() and found.begun == {1: (0, (0, 3))}
    with pytest.raises(ValueError, match="the number of ranks of this job is from 1 to 4, not 9"):
        mine.change("scale", 9)
    assert mine.change("scale", 3)[0].size == roster.read(folder).size == 3


def test_where_the_launcher_has_ended_a_rank_goes_on_with_what_it_knows(launcher, mine):
    folder, state = launcher
    mine.change("begin", 1, 0, (0, 3), BOTH, [])
    state["answers"], state["has_ended"] = False, True
    found, begun = mine.change("begin", 1, 0, (0, 4), BOTH, [(0, 0)])
    assert begun == (0, 4) and found.members((0, 4)) == {0: 0, 1: 0} and found.heirs((0, 4)) == {0: (1,)}
    assert mine.read() == found and roster.read(folder).begun == {1: (0, (0, 3))}


def test_it_waits_once_for_a_launcher_that_does_not_answer(launcher, mine, monkeypatch):
    monkeypatch.setattr(roster_requests, "ANSWER_S", 1.0)
    _, state = launcher
    state["answers"], took = False, []
    for epoch in range(3):
        began = time.monotonic()
        assert mine.change("begin", 1, 0, (0, epoch), BOTH, [])[1] == (0, epoch)
        took.append(time.monotonic() - began)
    assert took[0] > 1.0 > took[1] + took[2], took
    state["answers"] = True
    mine.change("begin", 1, 0, (0, 3), BOTH, [])
    assert mine.change("begin", 1, 0, (0, 4), BOTH, [])[1] == [0, 4], "it is heard again"


def test_the_answer_to_a_session_before_is_none_to_this_one(launcher, mine, tmp_path, monkeypatch):
    """The process is the same, and an answer takes a while."""
    assert mine.change("begin", 1, 0, (0, 3), BOTH, [])[1] == [0, 3]
    answer, asked = reporting.publish, []
    monkeypatch.setattr(reporting, "publish", lambda *question: asked.append(question))
    folder = str(tmp_path / "here")
    later = Asking(folder, roster.read(folder), lambda polls: asked and answer(*asked.pop()))
    assert later.change("begin", 1, 0, (1, 0), BOTH, [])[1] == [1, 0]
