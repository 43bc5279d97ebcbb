"""Jobs that torchrun starts: its processes are ranks, a failure ends all, a restart goes on from a checkpoint."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from programs import ROOT
from restarted import RESUMES

from bench.pages import lines

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra torch"),
]


@pytest.fixture
def torchrun(job_environment, tmp_path):
    """torchrun(program, *arguments, ...): the job of 2 ranks, at its end. `program`: a source text."""

    def run(program, *arguments, ranks=2, options=(), **variables):
        file = tmp_path / "program.py"
        file.write_text(program)
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *options]
        environment = {**job_environment, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
        return subprocess.run(
            [*command, str(file), *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200
        )

    return run


def left(environment):
    """What is left of the job, but for an empty folder and what torch leaves."""
    names = os.listdir(environment["TMPDIR"])
    return [name for name in names if name.startswith("malt-torchrun-")]


SESSIONS = """
import runpy
import malt
runpy.run_path("examples/cnn_parallel.py", run_name="__main__")
first = malt.allgather(malt.rank())
malt.finalize()
if malt.lowest():
    print(first, malt.size(), malt.allgather(malt.rank()), malt.init().survive)
else:
    malt.allgather(malt.rank())
"""


@pytest.mark.thorough
def test_the_example_is_as_accurate_as_the_page_says_and_a_session_can_follow(torchrun, job_environment):
    """Also where srun has started torchrun: these variables are of that."""
    done = torchrun(SESSIONS, PMIX_RANK="0", SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="1")
    assert done.returncode == 0, done.stderr
    accuracy, sessions = done.stdout.splitlines()
    measure, value = re.fullmatch(r"(.+?) ([\d.]+)", accuracy).groups()
    assert measure == "test accuracy" and float(value) == pytest.approx(lines.EXAMPLES["cnn"].parallel, rel=0.03)
    assert sessions == "[0, 1] 2 [0, 1] False"
    assert left(job_environment) == []


FAILS = """
import os, signal, sys, time
import numpy as np
import malt
w = np.zeros(10)
replica = malt.Replica(w, every=1, sync=sys.argv[2])
for step in range(1000):
    w += 1
    replica.step()
    if step == 100 and malt.rank() == int(sys.argv[3]):
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if sys.argv[1] == "raised":
            raise ValueError("a fault of its own")
        os._exit(0)
    if step > 100:
        time.sleep(0.02)
replica.finish()
print("trained without it")
"""


@pytest.mark.thorough(but="left-asp-1")
@pytest.mark.parametrize(
    ("how", "sync", "rank"), [("left", "asp", "1"), ("killed", "bsp", "1"), ("raised", "bsp", "0")]
)
def test_a_rank_that_fails_ends_the_job(how, sync, rank, torchrun, job_environment):
    """Also one that ends with status 0 while others train: torchrun then waits for them, and does not end them."""
    done = torchrun(FAILS, how, sync, rank)
    why = "it has failed" if how == "raised" else "its process has ended"
    assert done.returncode == 1 and done.stdout == ""
    said = re.findall(r"malt: .*", done.stderr)  # nothing, where torchrun ends the others before they see it
    assert said in ([f"malt: rank {rank} is lost: {why}; the job ends"], [] if how != "left" else None)
    assert done.stderr.count("ValueError: a fault of its own") == (how == "raised")
    if how == "raised":
        assert left(job_environment) == []
    if how != "left":
        cause = done.stderr.partition("Root Cause")[2]
        assert re.search(r"rank +: (\d)", cause)[1] == rank, "torchrun names the one that has failed"


@pytest.mark.thorough
def test_a_restart_goes_on_from_the_checkpoint(torchrun, tmp_path, job_environment):
    done = torchrun(RESUMES, str(tmp_path / "state.ckpt"), options=["--max-restarts", "1"])
    assert (done.returncode, done.stdout.splitlines()) == (
        0, ["begins at 0", "begins at 6", "ends with [135. 135. 135. 135.]"]
    ), done.stderr  # fmt: skip
    assert left(job_environment) == []


@pytest.fixture
def started(job_environment, tmp_path):
    """started(program, *arguments, ends, ...): the end of each of these ranks, of processes that have torchrun's
    variables. The others are killed then. torchrun itself imports PyTorch, which takes longer."""

    def run(program, *arguments, ends, ranks=2, **variables):
        (tmp_path / "program.py").write_text(program)
        environment = {**job_environment, "PYTHONPATH": str(ROOT), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577",
                       "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), **variables}  # fmt: skip
        processes = [
            subprocess.Popen(
                [sys.executable, str(tmp_path / "program.py"), *arguments],
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        try:
            said = [processes[rank].communicate(timeout=100) for rank in ends]
            assert all(processes[rank].poll() is None for rank in range(ranks) if rank not in ends), "they are killed"
            return [(processes[rank].returncode, *one) for rank, one in zip(ends, said, strict=True)]
        finally:
            for process in processes:
                process.kill()
                process.communicate()

    return run


SURVIVES = """
import os
import malt
try:
    malt.init()
except RuntimeError as error:
    assert "survive=True" in str(error)
    os.environ.pop("MALT_SURVIVE")
    malt.init(survive=True)
print("begun")
"""


def test_ranks_cannot_survive_there(started):
    """Neither by the variable nor by the argument."""
    for status, output, errors in started(SURVIVES, ends=(0, 1), MALT_SURVIVE="1"):
        assert (status, output) == (1, "")
        assert "survive=True: torchrun ends the job when a rank dies: start with malt run --survive -n 2" in errors


COMES_ALONE = """
import os, time
import malt
if os.environ["RANK"] == "2":
    time.sleep(100)
malt.init(deadline_s=1)
"""


def test_a_rank_that_does_not_come_is_named(started):
    found = started(COMES_ALONE, ends=(0, 1), ranks=3)
    assert [status for status, *_ in found] == [1, 1]
    said = "".join(errors for *_, errors in found)
    assert "malt.init: ranks 0, 1 have come: the deadline passed waiting for rank 2" in said


SLEEPS = """
import time
import malt
malt.init(deadline_s=1)
if malt.rank() == 1:
    time.sleep(100)
malt.barrier()
"""


@pytest.mark.thorough
def test_a_rank_that_gives_no_heartbeat_is_named_and_not_killed(started):
    [(status, _, errors)] = started(SLEEPS, ends=[0])
    assert status == 1 and "DeadlinePassed: malt.barrier: the deadline passed waiting for rank 1" in errors


STOPPED = """
import os, signal, time
import malt
process = malt.allgather(os.getpid())[1]
if malt.rank() == 0:
    os.kill(process, signal.SIGSTOP)
    for _ in range(50):
        malt.alive()
        time.sleep(0.1)
    os.kill(process, signal.SIGCONT)
print(malt.allreduce(1.0, "sum"))
"""


@pytest.mark.thorough
def test_a_rank_that_is_stopped_is_waited_for(started):
    assert started(STOPPED, ends=(0, 1)) == 2 * [(0, "2.0\n", "")]
