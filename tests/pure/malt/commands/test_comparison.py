"""`malt run --compare`: what the lines of runs say, the table, in which order there are runs, how it ends."""

import argparse
import json
import re

import numpy as np
import pytest

import malt
from malt.commands.compare import command
from malt.commands.compare.comparison import Run, measured, table
from malt.launch.command import Line
from malt.launch.job import End
from malt.watch import metrics

RECORDED = [
    Run(1, 21.4, 20.1, 49_750.0, "counts", ((8.0, 0.41), (15.0, 0.35), (21.0, 0.30))),
    Run(2, 12.5, 11.0, 90_900.0, "counts", ((5.0, 0.42), (8.0, 0.36), (12.0, 0.31))),
    Run(2, 12.1, 10.9, 91_700.0, "counts", ((5.0, 0.42), (8.0, 0.36), (12.0, 0.31))),
    Run(1, 21.8, 20.5, 48_800.0, "counts", ((8.0, 0.41), (15.0, 0.35), (21.0, 0.30))),
]


def test_the_table_of_recorded_runs():
    """Medians; a loss that each run has come to."""
    assert table("train.py", RECORDED, cores=2).splitlines() == [
        "train.py: medians of 2 runs each; x: times as good as on 1 rank",
        "",
        "ranks   wall s          training s      counts/s         s to loss 0.31",
        "1       21.60           20.30           49,275           21.00",
        "2       12.30  1.76 x   10.95  1.85 x   91,300  1.85 x   12.00  1.75 x",
        "",
        "Start and end, besides the training: 1.30 s on 1 rank, 1.35 s on 2 ranks.",
        "Runs on the same number of ranks differ by up to 3% in wall seconds.",
    ]


def test_a_column_that_nothing_is_known_of_is_left_out():
    lines = table("train.py", [Run(4, 3.0), Run(2, 150.0)], cores=2).splitlines()
    assert lines == [
        "train.py: one run each; x: times as good as on 4 ranks", "",
        "ranks   wall s", "4       3.00", "2        150  0.02 x", "", "4 ranks take turns on 2 cores.",
    ]  # fmt: skip
    lines = table("train.py", [Run(1, 3.0, 2.0, 10.0), Run(2, 3.0)], cores=2).splitlines()
    assert lines[2:5] == ["ranks   wall s         training s   counts/s", "1       3.00           2.00         10.00",
                          "2       3.00  1.00 x      -             -"]  # fmt: skip


def replica(rank, time, seconds, counts):
    return {"rank": rank, "time": time, "seconds": seconds, "counts": counts}


def test_replicas_say_how_long_a_rank_trains_and_what_it_counts():
    """From the first one's start to the last one's end, of the slowest rank; of two at once, too."""
    lines = [replica(0, 105.0, 4.0, 100), replica(0, 110.0, 4.0, 100), replica(1, 111.0, 8.0, 300)]
    run = measured(2, 14.0, 99.0, lines, [])
    assert run == Run(2, 14.0, 9.0, 500 / 9.0, "counts", ())


def test_examples_that_are_reported_count_before_what_replicas_do():
    reports = [{"rank": 1, "time": 103.0, "examples": 100}, {"rank": 0, "time": 103.0, "examples": 100, "loss": None},
               {"rank": 0, "time": 107.0, "examples": 500, "loss": 0.5}, {"rank": 1, "time": 105.0, "examples": 700},
               {"rank": 1, "time": 106.0, "loss": 0.1}]  # fmt: skip
    run = measured(2, 14.0, 100.0, [replica(0, 110.0, 9.0, 7)], reports)
    assert run == Run(2, 14.0, 9.0, 1000 / 4.0, "examples", ((7.0, 0.5),))
    assert measured(2, 14.0, 100.0, [], reports).training_s == 4.0


def test_a_run_that_says_nothing_has_wall_seconds():
    assert measured(1, 2.0, 0.0, [], []) == Run(1, 2.0)
    assert measured(1, 2.0, 0.0, [], [{"rank": 0, "time": 1.0, "examples": 3}]) == Run(1, 2.0)


def test_turns_alternate():
    assert list(command.turns((1, 2, 4), 3)) == [(1, 1), (1, 2), (1, 4), (2, 4), (2, 2), (2, 1), (3, 1), (3, 2), (3, 4)]


@pytest.mark.parametrize("follows", [False, True])
def test_a_replica_notes_what_it_has_counted(follows, tmp_path, monkeypatch):
    """One that follows another has counted the same."""
    monkeypatch.setenv(metrics.COUNTS, str(tmp_path / "counts.jsonl"))

    def train(rank):
        w, v = np.zeros(2), np.zeros(2)
        replicas = [malt.Replica(w, every=4), malt.Replica(v, every=4)]
        if follows:
            replicas[1].follow(replicas[0])
        for _ in range(5):
            malt.compute(0.5)
            replicas[0].step(3)
        for one in replicas:
            one.finish()
            one.close()

    malt.simulate(train, 1)
    lines = [json.loads(line) for line in (tmp_path / "counts.jsonl").read_text().splitlines()]
    assert [line["counts"] for line in lines] == [15] if follows else [15, 0]
    assert lines[0]["rank"] == 0 and lines[0]["seconds"] >= 0


@pytest.fixture
def compared(tmp_path, monkeypatch):
    """compared(*ends, output=None): the status of --compare 1,2 --rounds 2, whose runs end so, and the jobs begun."""
    monkeypatch.setattr(command.tempfile, "mkdtemp", lambda prefix: str(tmp_path / prefix))
    monkeypatch.setattr(command, "usable_cores", lambda: 2)
    begun = []

    def compared(*ends, output=None):
        left = iter(ends)

        def run(line, environ, grace_s):
            with open(environ[metrics.COUNTS], "w") as file:
                file.write(json.dumps(replica(0, 5.0, 4.0, 8)) + '\n{"rank": 0, "ti')
            begun.append(line)
            return next(left)

        monkeypatch.setattr(command.job, "run", run)
        chosen = argparse.Namespace(compare=(1, 2), rounds=2, output=output, grace=1.0)
        line = lambda job: Line({}, [str(job.ranks)], job)  # noqa: E731
        return command.main(chosen, ("x.py",), {}, line), begun

    return compared


def test_all_runs_end_well_and_leave_nothing(compared, tmp_path, capsys):
    status, begun = compared(*[End(0)] * 4)
    assert status == 0 and [line.job.ranks for line in begun] == [1, 2, 2, 1]
    printed = capsys.readouterr()
    assert re.search(r"^2 .* 4\.00  1\.00 x   2\.00  1\.00 x$", printed.out, re.M), printed.out
    assert re.fullmatch(r"(malt run: round \d on \d ranks?: 0\.\d\d s\n){4}", printed.err)
    assert list(tmp_path.iterdir()) == []


def test_the_first_failure_ends_it(compared, tmp_path, capsys):
    status, begun = compared(End(0), End(5))
    kept = tmp_path / "malt-compare-" / "round-1-ranks-2"
    assert status == 5 and len(begun) == 2
    printed = capsys.readouterr()
    assert printed.err.splitlines()[1:] == [
        f"malt run: round 1 on 2 ranks ended with status 5: {kept} has what its ranks printed"
    ]
    assert printed.out == "" and (kept / "rank-1.txt").exists()


def test_a_signal_ends_it(compared, tmp_path, capsys):
    status, begun = compared(End(130, is_notified=True))
    assert status == 130 and len(begun) == 1
    assert capsys.readouterr() == ("", "") and list(tmp_path.iterdir()) == []


def test_a_folder_of_the_users_stays(compared, tmp_path):
    assert compared(*[End(0)] * 4, output=str(tmp_path / "kept"))[0] == 0
    names = {f"round-{turn}-ranks-{ranks}" for turn in (1, 2) for ranks in (1, 2)}
    assert {path.name for path in (tmp_path / "kept").iterdir()} == names
    (line,) = {one.job.display for one in compared(*[End(0)] * 4, output=str(tmp_path / "kept"))[1][:1]}
    assert line.ranks == frozenset() and line.folder == str(tmp_path / "kept" / "round-1-ranks-1")
