"""`malt plan`: a program measured on one rank, predicted on more."""

import json
import signal
import subprocess
import sys

import pytest
from processes import is_alive, wait_for
from programs import ROOT

from malt.commands import command_line

pytestmark = pytest.mark.serial
LOOP = """import time
import numpy as np, malt
w = np.zeros(1000, np.float32)
replica = malt.Replica(w, every=5)
for epoch in range(3):
    for _ in range(20):
        time.sleep(1e-3)
        w += 1
        replica.step()
    malt.report(epoch=epoch + 1)
replica.finish()
"""
LONG = "import os, sys, time\nprint(os.getpid(), file=open(sys.argv[1], 'w'), flush=True)\ntime.sleep(250)\n"


def plan(tmp_path, environment, text, *words):
    file = tmp_path / "loop.py"
    file.write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "malt", "plan", *words, str(file)],
        cwd=tmp_path, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip


def test_a_loop_is_measured_and_predicted(tmp_path, job_environment):
    done = plan(tmp_path, job_environment, LOOP, "--ranks", "2", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    one = found["one_rank"]
    assert (one["exchanges_an_epoch"], one["every"], one["bytes_a_message"]) == (4, 5, 4000)
    assert 0.005 <= one["compute_s"] < 2 and found["loss"] is None
    assert len(found["rows"]) == 4 * 4 * 2 * 3 and {row["ranks"] for row in found["rows"]} == {2}
    computed_s = 2 * one["compute_s"]
    assert all(row["seconds_an_epoch"] > (row["sync"] == "bsp") * computed_s for row in found["rows"])
    assert all(row["seconds_an_epoch"] > 0.99 * computed_s for row in found["rows"])
    assert [row["network"] for row in found["best"]][-1] == "WAN 100 Mbit/s"


@pytest.mark.parametrize("words, why", [
    (["gone.py"], "no such file: gone.py (a module is run with -m)"), (["-m", "gone"], "no module named gone"),
    (["-c", "pass"], "a file or a module is planned for, not -c CODE"),
])  # fmt: skip
def test_a_program_that_is_not_there_is_named_as_by_run(capsys, words, why):
    assert command_line.main(["plan", *words]) == 2
    assert capsys.readouterr().err.startswith(f"malt plan: {why}")


@pytest.mark.parametrize("text, why", [
    ("import malt\nmalt.report(epoch=1)\n", "makes no malt.Replica"),
    (LOOP.replace("malt.report(epoch=epoch + 1)", "pass"), "reports no epoch: call malt.report(epoch=...)"),
    (LOOP.replace("every=5", "every=500"), "makes no exchange"),
    ("import malt\n1 / 0\n", "failed on one rank, with status 1: ZeroDivisionError: division by zero"),
    ("import os\nos.write(2, b'\\xff!')\nraise SystemExit(3)\n", "failed on one rank, with status 3: \ufffd!"),
], ids=["no replica", "no report", "no exchange", "failure", "no text"])  # fmt: skip
def test_what_cannot_be_planned_is_said_in_one_line(tmp_path, job_environment, text, why):
    done = plan(tmp_path, job_environment, text, "--ranks", "2")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("malt plan: ") and why in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_program_ends_with_a_plan_that_is_killed(number, tmp_path, job_environment):
    """It may be one of hours."""
    noted, file, temporary = tmp_path / "pid", tmp_path / "loop.py", tmp_path / "temporary"
    file.write_text(LONG)
    temporary.mkdir()
    planning = subprocess.Popen(
        [sys.executable, "-m", "malt", "plan", file, noted],
        env={**job_environment, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # these tests may run under nohup
    )
    wait_for(lambda: noted.exists() and noted.read_text())
    planning.send_signal(number)
    assert planning.wait(100) == 128 + number
    wait_for(lambda: not is_alive(int(noted.read_text())), 10.0)
    assert [path for path in temporary.iterdir() if not path.name.startswith("ompi.")] == []
