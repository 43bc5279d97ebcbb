"""Jobs whose failed ranks come back (`malt run --survive --rejoin`): real processes, in shared memory."""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from failing_jobs import under_one_mpi
from programs import ROOT
from rejoining import TRAINS, check

from malt.launch.command import RUNNER

pytestmark = [pytest.mark.serial, under_one_mpi]
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
        ours |= {"MALT_SIZE": str(ranks), "MALT_HOST_SIZE": str(ranks)}
        lives, end = dict.fromkeys(range(ranks), 0), time.monotonic() + LIMIT_S
        with (tmp_path / "printed").open("w") as printed:

            def started(rank):
                again = {"MALT_INCARNATION": str(lives[rank])} if lives[rank] else {}
                return subprocess.Popen(
                    [sys.executable, RUNNER, str(program), *arguments], stdin=subprocess.DEVNULL, stdout=printed,
                    env=job_environment | ours | {"MALT_RANK": str(rank)} | again, stderr=printed,
                )  # fmt: skip

            processes = {rank: started(rank) for rank in lives}
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


def test_a_rank_that_was_killed_comes_back(run_at_once):
    check(1, run_at_once(TRAINS, "1", "asp", "delta"))


@pytest.mark.thorough
def test_the_lowest_rank_that_was_killed_is_started_again_and_comes_back(run):
    check(0, run(TRAINS, "0", "ssp:2", "model"))


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


SESSIONS = """
import os, pathlib, signal, sys, time
import malt

here = pathlib.Path(os.environ["MALT_JOB_DIR"], "came")
when, life = sys.argv[1], int(os.environ.get("MALT_INCARNATION", "0"))
for session in (1, 2):
    if life:
        here.touch()
    while (when, session) == ("late", 2) and not here.exists():
        time.sleep(0.2)  # it comes when the first session is over, and the second one has not begun
    began = time.perf_counter()
    malt.init(deadline_s=30)
    rank, came = malt.rank(), []
    malt.on_join(came.append)
    v = malt.vector(2, sync="bsp")
    print("begins", rank, life, malt.rejoined(), time.perf_counter() - began < 15, flush=True)
    is_over = False
    while v.array[0] < 1:  # the mean of all: is_over on all of them
        v.array[0] = is_over
        v.scatter()
        is_full = v.gather().count == 2
        if when == "late":
            is_over = is_full if session == 2 else v.step > 10
        else:
            is_over = is_full and (malt.rejoined() or came == [1])
        if when == "amid" and rank == 1 and (life, v.step) == (session - 1, 10):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002)
    if (when, rank, life) == ("late", 1, 0):
        os.kill(os.getpid(), signal.SIGKILL)
    v.close()
    malt.barrier()
    print("ends", rank, life, malt.alive(), came, flush=True)
    malt.finalize()
    if life == (2 if when == "amid" else 1):
        break  # it was in the second session of the others
"""


def test_a_rank_that_has_come_back_begins_the_next_session_with_the_others(run_at_once):
    """And comes back to that, too, where it fails in it."""
    status, output = run_at_once(SESSIONS, "amid")
    assert status == 0 and "stays out" not in output, output
    for rank in (0, 2):
        assert output.count(f"ends {rank} 0 (0, 1, 2) [1]") == 2, output
    assert "begins 1 1 True True" in output and "begins 1 1 False True" in output and "begins 1 2 True True" in output
    assert "ends 1 2 (0, 1, 2)" in output and "False\n" not in output, output


def test_ranks_begin_a_session_without_one_that_failed_at_the_end_of_the_one_before(run_at_once):
    """It comes to the new one, not to that which is over."""
    status, output = run_at_once(SESSIONS, "late")
    assert status == 0 and "malt: rank 1 stays out" not in output, output
    for rank in (0, 2):
        assert f"ends {rank} 0 (0, 2)" in output and f"ends {rank} 0 (0, 1, 2)" in output, output
    assert "ends 1 1 (0, 1, 2)" in output and "False\n" not in output, output
