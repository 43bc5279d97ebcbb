"""A failed rank ends the job, at once, with its status and its traceback."""

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from malt.launch.command import RUNNER, Job, compose, this_machine
from malt.launch.machine.mpi_library import bound_library, find_mpiexec
from malt.runner import exit_hooks

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.serial

FAILURES = {
    "raise": ("raise KeyError('mine')", 1, "KeyError: 'mine'"),
    "thread": ("threading.Thread(target=lambda: 1 // 0).start()", 1, "ZeroDivisionError"),
    "sys.exit": ("sys.exit(3)", 3, ""),
    "sys.exit in a function": ("(lambda: sys.exit(4))()", 4, ""),
    "finalize in a finally": ("try: raise KeyError('mine')\n    finally: malt.finalize()", 1, "KeyError: 'mine'"),
    "sys.exit, and finalize in a finally": ("try: sys.exit(6)\n    finally: malt.finalize()", 6, ""),
    "sys.exit with a message": ("sys.exit('no such thing')", 1, "no such thing"),
}

PROGRAM = """
import sys, threading, time
import malt
malt.init()
v = malt.vector(10, sync="bsp")
if malt.rank() == 1:
    {failure}
while True:
    v.scatter(); v.gather()
    time.sleep(0.01)
"""


def job(program, tmp_path, environment, launcher="malt run"):
    """Run the program by `malt run`, or by the line that this composes, without the runner."""
    file = tmp_path / "program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "malt", "run", "-n", "2", str(file)]
    if launcher == "mpiexec":
        library = bound_library()
        mpiexec = find_mpiexec(library, environment)
        line = compose(Job(2, (str(file),)), library, mpiexec, this_machine(), environment)
        command = [*line.arguments[: line.arguments.index(RUNNER)], str(file)]
        environment = {**environment, **line.settings}
    start = time.monotonic()
    environment = {**environment, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    return done, time.monotonic() - start


@pytest.mark.thorough(but="raise-malt run")
@pytest.mark.parametrize(
    ("name", "launcher"),
    [
        *[(name, "malt run") for name in FAILURES if name not in ("sys.exit", "sys.exit, and finalize in a finally")],
        *[(name, "mpiexec") for name in ("raise", "thread", "sys.exit", "sys.exit with a message")],
        ("sys.exit, and finalize in a finally", "mpiexec"),  # it takes the five seconds that such a rank waits
    ],
)
def test_a_failure_ends_the_job(name, launcher, tmp_path, job_environment):
    failure, status, message = FAILURES[name]
    done, seconds = job(PROGRAM.format(failure=failure), tmp_path, job_environment, launcher)
    assert done.returncode == status, done.stderr
    assert message in done.stderr
    assert seconds < 60
    if message.startswith("KeyError") and launcher == "malt run":
        assert "malt run: rank 1 failed:\n" in done.stderr and done.stderr.endswith("KeyError: 'mine'\n")
    if message == "no such thing" and launcher == "malt run":
        assert done.stderr == "no such thing\nmalt run: rank 1 exited with status 1\n"


GOOD_ENDS = {
    "exits without a failure": """
if malt.rank() == 0:
    sys.exit(0)
raise SystemExit
""",
    "a caught sys.exit, also in a function, and that of a thread": """
t = threading.Thread(target=lambda: sys.exit(5)); t.start(); t.join()
def f():
    try:
        sys.exit(5)
    except SystemExit:
        return 1
f()
try: sys.exit(5)
except SystemExit: pass
""",
    "MPI.Finalize()": "from mpi4py import MPI; MPI.Finalize()",
}


@pytest.mark.thorough(but="a caught sys.exit, also in a function, and that of a thread")
@pytest.mark.parametrize("name", GOOD_ENDS)
def test_a_good_end_is_silent(name, tmp_path, job_environment):
    program = "import sys, threading\nimport malt\nv = malt.vector(10)\nv.scatter()\n" + GOOD_ENDS[name]
    done, _ = job(program, tmp_path, job_environment)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.thorough
def test_an_end_with_a_status_that_all_share_is_silent(tmp_path, job_environment):
    """All ranks have ended the session, so there is no MPI_Abort, of which mpiexec would complain."""
    program = "import sys\nimport malt\nmalt.barrier()\nmalt.finalize()\nsys.exit(2)"
    done, _ = job(program, tmp_path, job_environment)
    assert (done.returncode, done.stderr) == (2, "")


def test_an_end_in_the_midst_of_mpi_is_a_failure(tmp_path, job_environment):
    """This holds also on MPICH, whose mpiexec ends the other ranks and returns 0."""
    program = "import os\nimport malt\nif malt.rank() == 1: os._exit(0)\nmalt.barrier()"
    done, _ = job(program, tmp_path, job_environment)
    assert done.returncode == 1
    assert "malt run: rank 1 ended by os._exit(0) without MPI.Finalize()" in done.stderr


def test_different_collective_calls_end_the_job(tmp_path, job_environment):
    program = "import malt\nr = malt.Replica(__import__('numpy').zeros(3))\nif malt.rank(): r.finish()\n"
    done, seconds = job(program, tmp_path, job_environment)
    assert done.returncode != 0 and seconds < 60
    assert "rank 0 is in malt.finalize" in done.stderr and "is in Replica.finish" in done.stderr


def fail(*what):
    raise OSError(28, "No space left on device")


ENDS = {
    "an error": lambda: exit_hooks.end_job_for(ValueError()),
    "a message": lambda: exit_hooks.end_job("why"),
    "the hook": lambda: exit_hooks._after(fail)(ValueError, ValueError(), None),
    "a thread's": lambda: exit_hooks.after_thread(fail, exit_hooks._end)(
        threading.ExceptHookArgs([ValueError, ValueError(), None, None])
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_failure_ends_the_job_whatever_can_be_printed(how, monkeypatch):
    ended, full = [], SimpleNamespace(write=fail, flush=fail)
    with monkeypatch.context() as patched, contextlib.suppress(OSError):
        patched.setattr(exit_hooks, "_abort", ended.append)
        patched.setattr(exit_hooks, "DRAIN_S", 0)
        patched.setattr(sys, "stdout", full)
        patched.setattr(sys, "stderr", full)
        ENDS[how]()
    assert ended == [1]
