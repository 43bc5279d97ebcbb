"""Jobs whose failed ranks come back (`malt run --survive --rejoin`): real processes, in shared memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs import ROOT

pytestmark = pytest.mark.serial
LIMIT_S = 90


@pytest.fixture
def run(job_environment, tmp_path):
    """run(source, *arguments, ranks): a `malt run --survive --rejoin` of a program: its status, and what it prints."""

    def job(source, *arguments, ranks=3):
        program = tmp_path / "program.py"
        program.write_text(source)
        command = [sys.executable, "-m", "malt", "run", "-n", str(ranks), "--survive", "--rejoin", program, *arguments]
        done = subprocess.run(
            command, env=job_environment | {"PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S,
        )  # fmt: skip
        for folder in set(re.findall("^folder .*/(.*)$", done.stdout, re.MULTILINE)):
            assert not list(Path("/dev/shm").glob(f"{folder}-*"))
        return done.returncode, done.stdout

    return job


TRAINS = """
import os, signal, sys, time
import numpy as np
import malt

doomed, life = int(sys.argv[1]), int(os.environ.get("MALT_INCARNATION", "0"))
malt.init(deadline_s=30)
print("folder", os.environ["MALT_JOB_DIR"], flush=True)
came = []
malt.on_join(came.append)
w = {"a": np.zeros(100_000, np.float32), "n": np.array([malt.rank()])}
replica = malt.Replica(w, sync=sys.argv[2], average=sys.argv[3])
v = malt.vector(1000, sync="bsp")
print("begins", malt.rank(), malt.rejoined(), v.step > 0, bool(w["a"][0] > 1), int(w["n"][0]), flush=True)
together = 0
while v.array[1] < 1:  # the mean of all is 1
    w["a"] += 1
    replica.step()
    together = together + 1 if (came or malt.rejoined()) and len(malt.alive()) == 3 else 0
    v.array[:] = v.step + 1
    v.array[1] = together >= 50
    v.scatter()
    gathered = v.gather()
    assert set(gathered.steps) <= {v.step} and v.array[0] == v.array[-1] == v.step
    if v.step == 40 and life == 0 and malt.rank() == doomed:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.002)
lost = [(one.rank, one.back_at is not None) for one in malt.lost_ranks()]
print("ends", malt.rank(), gathered.senders, malt.shard(90), malt.alive(), lost, flush=True)
replica.finish()
print("model", malt.rank(), np.ptp(w["a"]) == 0, float(w["a"][0]), flush=True)
"""


@pytest.mark.parametrize(
    ("doomed", "sync", "average"), [
        (1, "asp", "delta"),
        pytest.param(0, "bsp", "model", marks=pytest.mark.thorough),
        pytest.param(2, "bsp", "delta", marks=pytest.mark.thorough),
        pytest.param(0, "ssp:2", "model", marks=pytest.mark.thorough),
    ],
)  # fmt: skip
def test_a_rank_that_was_killed_comes_back(doomed, sync, average, run):
    status, output = run(TRAINS, str(doomed), sync, average)
    assert status == 0, output
    assert "folder" in output
    assert output.count(f"malt: rank {doomed} is lost: its process has ended; 2 of 3 ranks go on") == 1, output
    assert output.count(f"malt: rank {doomed} is back; 3 of 3 ranks go on") == 1, output
    for rank in range(3):
        assert f"begins {rank} False False False 0" in output
        others = tuple(other for other in range(3) if other != rank)
        lost = f"[({doomed}, True)]" if rank != doomed else "[]"
        assert f"ends {rank} {others} slice({30 * rank}, {30 * rank + 30}, None) (0, 1, 2) {lost}" in output, output
    assert f"begins {doomed} True True True 0" in output
    models = re.findall(r"model (\d) True (.*)", output)
    assert len(models) == 3 and len({value for _, value in models}) == 1


@pytest.mark.thorough
def test_ranks_are_killed_again_and_again(run):
    """The job goes on with all of them in the end."""
    source = TRAINS.replace("life == 0", "life < 2").replace("v.step == 40", "v.step > 40 and together == 20 * life")
    status, output = run(source, "1", "asp", "model")
    assert status == 0 and output.count("malt: rank 1 is back") == 2, output


@pytest.mark.thorough
def test_a_rank_that_comes_at_the_end_ends_in_a_line(run):
    """The others finish."""
    source = """
import os, sys, time
import malt
if malt.rank() == 1 and "MALT_INCARNATION" not in os.environ:
    malt.vector(4)
    os._exit(3)
v = malt.vector(4)
if "MALT_INCARNATION" not in os.environ:
    v.close()
    malt.finalize()
"""
    status, output = run(source)
    assert status == 0, output
