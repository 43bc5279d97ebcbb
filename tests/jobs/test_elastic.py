"""Jobs that grow and shrink while they train (malt run --elastic, malt scale)."""

import json
import subprocess
import sys
import threading
from collections import Counter

import pytest
from documents import EXAMPLES
from failing_jobs import under_one_mpi
from programs import ROOT

from malt.commands.command_line import main

pytestmark = pytest.mark.serial
LIMIT_S = 90

TRAINS = """
import json, pathlib, sys, time
import numpy as np
import malt

def wait_until(condition):
    while not condition():
        malt.alive()
        time.sleep(0.01)

came, joined, gone = pathlib.Path(__file__).with_name("came"), [], []
malt.on_join(joined.append)
malt.on_death(gone.append)
w = np.zeros(10)
replica = malt.Replica(w)
how, had = "leaves", []
try:
    for epoch in malt.epochs(60):
        if malt.rejoined():
            came.touch()
        mine = malt.shard(100, shuffle=True, seed=epoch)
        print(json.dumps([epoch, mine.tolist() if isinstance(mine, np.ndarray) else [*range(100)][mine]]), flush=True)
        for row in mine:
            w += 1
            replica.step()
        if epoch == 20 and malt.rank() == 0:
            print("grow", flush=True)
        if epoch == 20:
            wait_until(came.exists)
        if epoch == 40 and malt.rank() == 0:
            malt.scale(2)
        if epoch == 40:
            wait_until(lambda: malt.size() == 2)
        if epoch == 50 and malt.rank() < 2:
            wait_until(lambda: len(malt.alive()) == 2)
    how = "ends"
    replica.finish()
finally:
    print(how, malt.rank(), malt.size(), malt.alive(), malt.rejoined(), joined, gone, malt.lost_ranks(), flush=True)
"""


@under_one_mpi
def test_a_job_grows_and_shrinks_and_trains_each_row_of_each_epoch_once(job_environment, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(TRAINS)
    command = [sys.executable, "-m", "malt", "run", "--elastic", "1:4", "-n", "2", program]
    environment = job_environment | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as job:
        limit, lines = threading.Timer(LIMIT_S, job.kill), []
        limit.start()
        for line in job.stdout:
            lines.append(line.rstrip("\n"))
            if line == "grow\n":
                scaled = [sys.executable, "-m", "malt", "scale", str(job.pid), "3"]
                found = subprocess.run(scaled, env=environment, capture_output=True, text=True, timeout=60)
                assert found.stdout == f"job {job.pid}: 3 ranks, 2 before\n" and not found.stderr
    limit.cancel()
    assert job.returncode == 0, lines
    trained = [json.loads(line) for line in lines if line.startswith("[")]
    for epoch in range(60):
        times = Counter(row for at, rows in trained if at == epoch for row in rows)
        assert times == Counter(range(100)), (epoch, lines)
    assert max(Counter(at for at, _ in trained).values()) == 3
    assert lines.count("malt: rank 2 has come; 3 of 3 ranks continue") == 1, lines
    assert lines.count("malt: rank 2 has left, as the job shrank; 2 of 2 ranks continue") == 1, lines
    assert "leaves 2 2 (0, 1, 2) True [] [] []" in lines, lines
    assert {f"ends {rank} 2 (0, 1) False [2] [2] []" for rank in (0, 1)} <= set(lines), lines


@under_one_mpi
def test_the_loop_of_the_guide(malt_run):
    rows = "import numpy as np\nX = np.random.default_rng(0).normal(size=(200, 30))\ny = np.sign(X[:, 0])\n"
    source = rows + EXAMPLES["elastic"] + "print('ends', malt.size(), bool(w[0] > w[1:].max()))\n"
    found = malt_run(source, options=["--elastic", "1:4"])
    assert (found.returncode, found.stdout) == (0, 2 * "ends 2 True\n"), found


SHRINKS = """
import time
import numpy as np
import malt

w = np.zeros(10)
replica = malt.Replica(w)
for epoch in malt.epochs(3):
    w += 1
    replica.step()
    if malt.rank() == 0 and epoch == 0:
        malt.scale(1)
    while malt.size() > 1:
        time.sleep(0.01)
    if malt.rank() == 1:
        time.sleep(1)  # the other one has left by then
    while malt.rank() == 0 and len(malt.alive()) > 1:
        time.sleep(0.01)
replica.finish()
"""


@under_one_mpi
def test_no_more_ranks_continue_than_there_are_as_they_leave_one_after_the_other(malt_run):
    found = malt_run(SHRINKS, ranks=3, options=["--elastic", "1:3"])
    says = [f"malt: rank {rank} has left, as the job shrank; {rank} of {rank} rank" for rank in (2, 1)]
    assert (found.returncode, found.stderr) == (0, f"{says[0]}s continue\n{says[1]} continue\n")


FAILS = """
import os, signal, time
import numpy as np
import malt

epochs = []

def happens(epoch):
    epochs.append(epoch)
    if malt.rank() == 1 and epoch == 1 and not malt.rejoined():
        os.kill(os.getpid(), signal.SIGKILL)
    while epoch == 2 and len(malt.alive()) < 2:
        time.sleep(0.01)

X = np.random.default_rng(0).normal(size=(200, 30))
y = np.sign(X[:, 0])
w = np.zeros(30)
replica = malt.Replica(w)
"""


def test_ranks_that_meet_in_each_epoch_end_together_though_one_comes_later(malt_run):
    loop = EXAMPLES["epochs-together"].replace("epoch < 3", "epoch < 5")
    loop = loop.replace("    replica.agree", "    happens(epoch)\n    replica.agree")
    source = FAILS + loop + "print(epochs, malt.alive(), malt.rejoined())\n"
    found = malt_run(source, options=["--survive", "--rejoin"])
    assert found.returncode == 0 and "stays out" not in found.stderr, found
    assert sorted(found.stdout.splitlines()) == ["[0, 1, 2, 3, 4] (0, 1) False", "[0, 3, 4] (0, 1) True"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["scale", "999999999", "3"], "malt scale: no job 999999999 of this user runs on this machine"),
        (["run", "--elastic", "2:3", "-n", "4", "x.py"], "--elastic 2:3: the job would begin with 4 ranks: -n 2"),
        (["run", "--elastic", "1:4", "-n", "2", "--hosts", "no:4", "x.py"], "allow it with --survive=best-effort"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").touch()
    assert main(words) == 2
    assert says in capsys.readouterr().err


SCALES = """
import malt
from apps.harness import training
from apps.harness.job import main

def note(**values):
    malt.report(**values)
    if values.get("epoch") == 5 and malt.rank() == 0:
        malt.scale(1)

training.report = note
main("apps.svm")
"""


@under_one_mpi
def test_what_a_rank_that_leaves_has_counted_is_in_the_report(malt_run, tmp_path):
    rows = 300
    (tmp_path / "rows.svm").write_text("".join(f"{1 - 2 * (one % 2)} 1:{one % 7} 2:{one % 3}\n" for one in range(rows)))
    words = ["rows.svm", "--sync", "ssp:1", "--epochs", "60", "--json", "report.json"]
    found = malt_run(SCALES, *words, options=["--elastic", "1:2"])
    assert found.returncode == 0 and "rank 1 has left, as the job shrank" in found.stderr, found
    epochs = json.loads((tmp_path / "report.json").read_text())["epochs"]
    assert [one["examples"] for one in epochs] == [rows * one["epoch"] for one in epochs]
    assert epochs[-1]["merged"] > 0 and len(epochs) == 60
