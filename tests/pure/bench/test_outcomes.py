"""bench.hosts: what the page says of jobs that left something or did not go on; and of pauses."""

import json

import pytest

from bench.hosts import __main__ as program
from bench.hosts import page, trials


def run(expected=True, seconds=2.0, **left):
    return {"status": 1, "ended_s": seconds, "pause_s": 0.5, "expected": expected, "left": {}, "clean_s": 0.0} | left


def test_what_is_left_is_named():
    late = run(left={"b": ["/tmp/malt-x"]}, clean_s=7.2)
    found = {"MPICH": {"a rank is killed": [run(), late], "a link goes down": [late, run(clean_s=None)]}}
    assert [row[-1] for row in page.survival(found)[1:]] == [
        "on b nothing after 7 s more", "in 1 runs something stays",
    ]  # fmt: skip


def test_what_was_left_is_kept_without_the_place_of_the_project():
    found = {"MPICH": {"survival": [run(left={"b": [f"python {program.ROOT}/malt/runner/program.py"]})]}}
    (kept,) = json.loads(program.without_root(found))["MPICH"]["survival"]
    assert kept["left"] == {"b": ["python malt/runner/program.py"]}


def test_pauses_of_runs_that_went_on_are_shown():
    found = {"Open MPI": {"a rank is killed": [run(), run(False, pause_s=99.0)]}}
    assert page.survival(found)[1] == ["a rank is killed", "1 of 2", "0.5, 0.5 s", "2.0, 2.0 s", "nothing"]


def test_a_pause_is_from_the_failure_to_the_next_exchange():
    ends = [{"pauses": [[0.0, 4.0], [11.0, 13.5]]}, {"pauses": [[10.5, 12.0]]}]
    assert trials.pause_s(ends, 10.0) == 3.5  # the one before it does not count
    assert trials.pause_s(ends, 14.0) == 0.0


def test_what_was_set_for_trials_is_restored_though_one_fails(tmp_path, monkeypatch):
    setting = tmp_path / "sched_autogroup_enabled"
    setting.write_text("1\n")
    monkeypatch.setattr(trials, "_AUTOGROUP", setting)
    with pytest.raises(ValueError, match="a trial"), trials.sharing_cores():
        assert setting.read_text() == "0"
        raise ValueError("a trial")
    assert setting.read_text() == "1\n"
