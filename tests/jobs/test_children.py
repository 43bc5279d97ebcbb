"""Processes that a rank starts: by fork, spawn, forkserver, subprocess; and jobs that it starts."""

import os
import subprocess
import sys

import pytest

from dstorm.membership import children
from dstorm.membership.processes import this_process

pytestmark = pytest.mark.serial

CHILDREN = """
import multiprocessing, os, subprocess, sys, threading
import numpy as np
import malt

def refused(call, *arguments):
    try:
        return f"{call} -> {call(*arguments)}"
    except malt.ClosedError as error:
        return str(error) if "child of rank" not in str(error) else ""

def work(number):
    assert malt.simulate(lambda rank: malt.size(), 3) == [3, 3, 3] and malt.graph("ring", 4).edges
    return [refused(call) for call in (malt.init, malt.rank, malt.barrier)] + [refused(malt.vector, 3)]

def forked(*calls, code):
    pid = os.fork()
    if pid == 0:
        for call in calls:
            assert not refused(call), refused(call)
        assert v.close() is None and malt.finalize() is None
        exec(code)
    else:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

if __name__ == "__main__":
    v = malt.vector(3)
    replica = malt.Replica(np.zeros(3), every=1)
    if malt.rank() == 1:
        for kind in ("fork", "spawn", "forkserver"):
            with multiprocessing.get_context(kind).Pool(1) as pool:
                assert pool.map(work, [1]) == [[""] * 4], kind
        alone = "import malt; print(malt.simulate(lambda rank: rank, 2)); malt.rank()"
        done = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True)
        assert done.stdout == "[0, 1]\\n" and "ClosedError: this process is a child of rank 1" in done.stderr, done
        calls = v.scatter, v.gather, v.statistics, v.barrier, replica.step, replica.finish, malt.barrier, malt.alive
        sys.stdout.flush()
        assert forked(*calls, code="sys.exit(3)") == 3
        if sys.argv[1:] == ["malt run"]:  # which sees what no hook of Python's is reports of
            assert forked(code="raise SystemExit(4)") == 4
        assert forked(code="raise ValueError('its own affair')") == 1
        assert forked(code="t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join(); sys.exit(0)") == 0
    malt.barrier()
    assert v.scatter() == 12
    replica.finish()
    print("well", flush=True)
"""


@pytest.mark.thorough(but="malt run")
@pytest.mark.parametrize("launcher", ["malt run", "mpiexec"])
def test_children_of_a_rank_are_no_ranks_and_end_by_themselves(launcher, tmp_path, job_environment):
    program = tmp_path / "program.py"
    program.write_text(CHILDREN)
    start = [sys.executable, "-m", "malt", "run", "-n", "2"]
    if launcher == "mpiexec":
        start = [os.path.join(os.path.dirname(sys.executable), "mpiexec"), "-n", "2", sys.executable]
        job_environment = {**job_environment, "OMPI_MCA_osc": "^ucx", "OMPI_MCA_btl": "^ofi",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # fmt: skip
    done = subprocess.run([*start, program, launcher], env=job_environment, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout.count("well")) == (0, 2), done.stderr
    assert "ValueError: its own affair" in done.stderr and "ZeroDivisionError" in done.stderr


ALONE = """
import multiprocessing, os, sys
import malt
if __name__ == "__main__":
    malt.rank()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(malt.size) == 1
    pid = os.fork()
    if pid == 0:
        malt.vector(3).scatter()
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
"""


@pytest.mark.thorough
def test_children_of_a_world_of_one_are_worlds_of_one(tmp_path, job_environment):
    program = tmp_path / "program.py"
    program.write_text(ALONE)
    done = subprocess.run([sys.executable, program], env=job_environment, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")


JOB_IN_A_RANK = """
import subprocess, sys
import malt
if malt.rank() == 0:
    inner = "import malt\\nmalt.barrier()\\nprint('inner', malt.rank(), malt.size(), flush=True)\\n"
    with open(sys.argv[1], "w") as file:
        file.write(inner)
    command = [sys.executable, "-m", "malt", "run", "-n", "2", sys.argv[1]]
    print(subprocess.run(command, capture_output=True, text=True, timeout=50))
malt.barrier()
"""


@pytest.mark.thorough
@pytest.mark.parametrize("survive", [False, True])
def test_a_rank_may_run_a_job(survive, malt_run, tmp_path):
    done = malt_run(JOB_IN_A_RANK, tmp_path / "inner.py", options=["--survive"] * survive)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "inner 0 2" in done.stdout and "inner 1 2" in done.stdout and "returncode=0" in done.stdout


def test_who_is_a_child(monkeypatch):
    environ, number, started = {"PMI_RANK": "2"}, os.getpid(), this_process().started
    children.claim(environ)
    children.claim(environ, 3)
    assert environ == {"PMI_RANK": "2", children.RANK_PROCESS: f"2 {number} {started}"}
    for words, is_child in (
        (f"2 {number} {started}", False),
        (f"2 {number + 1} {started}", True),
        (f"2 {number} {started - 1}", True),
        ("", False),
    ):
        monkeypatch.setenv(children.RANK_PROCESS, words)
        assert children.refusal().startswith("this process is a child of rank 2") == is_child
