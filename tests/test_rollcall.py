"""How a job ends whose ranks may die, by what they left in its folder."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from malt.rollcall import RollCall, failed_with

pytestmark = pytest.mark.serial


@pytest.fixture
def gone():
    """The number of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def called(folder, **said):
    """The status after ranks have said this: started maps ranks to processes."""
    for rank, process in said.pop("started", {}).items():
        (folder / f"started-{rank}").write_text(str(process))
    for kind, ranks in said.items():
        for rank in ranks:
            (folder / f"{kind}-{rank}").write_text("")
    return RollCall(folder, 2).status()


def test_it_goes_on_while_somebody_lives(tmp_path, gone):
    assert called(tmp_path, started={0: os.getpid(), 1: gone}, ready=[0, 1]) is None


def test_it_is_well_once_those_who_live_have_finished(tmp_path, gone):
    assert called(tmp_path, started={0: os.getpid(), 1: gone}, ready=[0, 1], finished=[0]) == 0


def test_one_that_has_not_finished_is_waited_for(tmp_path):
    assert called(tmp_path, started={0: os.getpid(), 1: os.getpid()}, ready=[0, 1], finished=[0]) is None


def test_nobody_is_left(tmp_path, gone):
    assert called(tmp_path, started={0: gone, 1: gone}, ready=[0, 1]) == 1


def test_who_dies_before_the_session_is_told_once(tmp_path, gone, capsys):
    (tmp_path / "started-0").write_text(str(os.getpid()))
    (tmp_path / "started-1").write_text(str(gone))
    roll = RollCall(tmp_path, 2)
    assert roll.status() == roll.status() == 1
    assert capsys.readouterr().err == "malt run: rank 1 died before the session began: ending the job\n"


def test_before_anything_was_said(tmp_path):
    assert called(tmp_path) is None
    assert failed_with(tmp_path) is None
    assert called(tmp_path, started={0: os.getpid()}, finished=[0]) is None


def test_a_failure_of_all_ends_it(tmp_path):
    (tmp_path / "status-2").write_text("")
    assert called(tmp_path, started={0: os.getpid()}, ready=[0]) == 2


def test_what_was_left_in_memory_is_removed(tmp_path):
    left = tmp_path / "sm_segment.x"
    left.write_text("")
    (tmp_path / "memory-0").write_text(f"{left}\n{tmp_path / 'gone already'}\n")
    RollCall(tmp_path, 2).clean()
    assert not left.exists()
