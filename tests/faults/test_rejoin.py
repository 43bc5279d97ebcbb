"""Jobs whose failed ranks come back (`malt run --survive --rejoin`): real processes, in shared memory."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from programs import ROOT

from malt.launch.hosts.plain.starter import commands

pytestmark = pytest.mark.serial
LIMIT_S = 90


@pytest.fixture
def run(start_rejoining):
    """run(source, *arguments, ranks): a `malt run --survive --rejoin` of a program: its status, and what it prints."""

    def job(source, *arguments, ranks=3):
        process = start_rejoining(source, *arguments, ranks=ranks)
        output = process.communicate(timeout=LIMIT_S)[0]
        for folder in set(re.findall("^folder .*/(.*)$", output, re.MULTILINE)):
            assert not list(Path("/dev/shm").glob(f"{folder}-*"))
        return process.returncode, output

    return job


@pytest.fixture
def run_at_once(job_environment, tmp_path):
    """As `run`, without a launcher: a rank that has failed is started again at once, so the job takes less time."""
    folder = Path(tempfile.mkdtemp(prefix="malt-", dir=tmp_path))

    def job(source, *arguments, ranks=3):
        program = tmp_path / "program.py"
        program.write_text(source)
        ours = {"PYTHONPATH": str(ROOT), "MALT_REJOIN": "1", "MALT_SURVIVE": "1"}
        ours |= dict.fromkeys(("MALT_JOB_DIR", "MALT_FAILURE_DIR"), str(folder))
        lines = commands(list(range(ranks)), ranks, [str(program), *arguments])
        lives, end = dict.fromkeys(lines, 0), time.monotonic() + LIMIT_S
        with (tmp_path / "printed").open("w") as printed:

            def started(rank):
                words, variables = lines[rank]
                again = {"MALT_INCARNATION": str(lives[rank])} if lives[rank] else {}
                environment = job_environment | ours | variables | again
                return subprocess.Popen(
                    words, env=environment, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed
                )

            processes = {rank: started(rank) for rank in lines}
            while running := [rank for rank, process in processes.items() if process.poll() != 0]:
                for rank in running:
                    if processes[rank].returncode is not None and len(running) > 1:
                        lives[rank] += 1
                        processes[rank] = started(rank)
                if len(running) == 1 and processes[running[0]].returncode is not None:
                    break
                if time.monotonic() > end:
                    for process in processes.values():
                        process.kill()
                time.sleep(0.01)
        for left in Path("/dev/shm").glob(f"{folder.name}-*"):
            left.unlink()
        return max(process.returncode for process in processes.values()), (tmp_path / "printed").read_text()

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


def test_a_rank_that_was_killed_comes_back(run_at_once):
    check(1, run_at_once(TRAINS, "1", "asp", "delta"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("doomed", "sync", "average"),
    [(1, "asp", "delta"), (0, "bsp", "model"), (2, "bsp", "delta"), (0, "ssp:2", "model")],
)
def test_a_rank_that_was_killed_is_started_again_and_comes_back(doomed, sync, average, run):
    check(doomed, run(TRAINS, str(doomed), sync, average))


def check(doomed, found):
    status, output = found
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
def test_a_rank_that_comes_at_the_end_ends_in_a_line(run_at_once):
    """The others finish, though one of them takes its time."""
    source = """
import os, pathlib, time
import malt
here = pathlib.Path(os.environ["MALT_JOB_DIR"], "came")
if "MALT_INCARNATION" in os.environ:
    malt.init()
    here.touch()
v = malt.vector(4)
if malt.rank() == 1:
    os._exit(3)
v.close()
while malt.rank() == 2 and not here.exists():
    malt.heartbeat()
    time.sleep(0.01)
time.sleep(malt.rank() / 2)
"""
    _, output = run_at_once(source)
    assert "malt: rank 1 stays out: the others are at the end of the session" in output, output
