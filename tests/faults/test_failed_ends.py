"""How real jobs end that have failed, or of which a rank has."""

from __future__ import annotations

import subprocess
import sys

import pytest
from failing_jobs import SURVIVES, Job, needs_openmpi
from programs import ROOT

from malt.launch import command as launcher
from malt.launch.command import compose, this_machine
from malt.launch.mpi_library import bound_library, find_mpiexec

pytestmark = pytest.mark.serial


@pytest.mark.skipif(SURVIVES, reason="this MPI carries it")
def test_an_mpi_without_support_is_refused_at_once(job_environment, tmp_path):
    job = Job(["-m", "apps.svm"], job_environment, tmp_path)
    assert job.end() == 2
    assert "--survive needs Open MPI 5 or newer" in job.output and "--survive=best-effort" in job.output


def test_a_world_of_one_fails_with_its_status(start):
    options = ("--survive",) if SURVIVES else ()
    assert start("import sys, malt\nmalt.barrier()\nsys.exit(3)", ranks=1, options=options).end() == 3


@needs_openmpi
def test_a_program_without_malt_ends_as_ever(start):
    job = start("import os\nprint('hello', flush=True)", ranks=2)
    assert job.end() == 0, job.output
    assert job.output.count("hello") == 2


ALL_FAIL = """
import os, signal, time, malt
malt.init(survive=True)
malt.barrier()
time.sleep(0.2 * malt.rank())
if os.environ.get("MALT_RESTART") != "1":
    os.kill(os.getpid(), signal.SIGKILL)
malt.barrier()
print("rank", malt.rank(), "ends well", flush=True)
"""


@pytest.mark.thorough(but="0")
@needs_openmpi
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_job_whose_ranks_have_all_failed_has_failed(restarts, start):
    job = start(ALL_FAIL, ranks=2, options=("--survive", "--restarts", str(restarts)))
    assert (job.end() == 0) == (restarts == 1), job.output
    assert job.output.count("ends well") == 2 * restarts


ORPHAN = """
import os, signal, subprocess, malt
malt.init(survive=True)
if malt.rank() == 1:
    subprocess.Popen(["sleep", "100"])
    os.kill(os.getpid(), signal.SIGKILL)
malt.barrier()
"""


@pytest.mark.thorough
@needs_openmpi
def test_children_of_failed_ranks_are_ended(start):
    job = start(ORPHAN, ranks=2)
    assert job.end() == 0, job.output  # it also checks that nothing is left


SAVING = """
import os, sys, time, malt
malt.init(survive=True)
malt.barrier()
malt.finalize()
if os.environ["PMIX_RANK"] == "0":
    time.sleep(0.5)
    if sys.argv[1] == "exit":
        sys.exit(3)
    raise OSError("the model cannot be saved")
"""


@pytest.mark.thorough(but="raise-1")
@needs_openmpi
@pytest.mark.parametrize(("how", "status"), [("exit", 3), ("raise", 1)])
def test_a_failure_after_the_session_is_one_of_the_job(how, status, start):
    job = start(SAVING, how, ranks=3)
    assert job.end() == status, job.output


STOPPED_LAST = """
import os, signal, malt
malt.init(survive=True)
malt.barrier()
malt.finalize()
if os.environ["PMIX_RANK"] == "1":
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.thorough
@needs_openmpi
def test_a_rank_that_is_stopped_at_the_very_end_holds_up_no_other(start):
    job = start(STOPPED_LAST, ranks=3)
    assert job.end() == 0, job.output


PLAIN = """
import atexit, os, signal, sys
atexit.register(lambda: print("the very end", flush=True))  # before malt: runs after what malt does at exit
import malt
malt.init(survive=True)
if malt.rank() == 1 and "fails" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
malt.barrier()
malt.barrier()
print("rank", malt.rank(), "ends with", malt.alive(), flush=True)
"""


@pytest.mark.thorough(but="fails")
@needs_openmpi
@pytest.mark.parametrize("what", ["fails", "goes on"])
def test_under_plain_mpiexec_no_rank_waits_for_failed_ones_in_mpi_finalize(what, job_environment, tmp_path):
    program = tmp_path / "plain.py"
    program.write_text(PLAIN)
    library = bound_library()
    mpiexec = [find_mpiexec(library, job_environment), "--with-ft", "ulfm", "-n", "3"]
    line = compose(launcher.Job(3, (str(program),)), library, mpiexec[0], this_machine(), job_environment)
    environment = {**job_environment, **line.settings, "PYTHONPATH": str(ROOT)}
    command = [*mpiexec, sys.executable, str(program), what]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ends with (0, 2)" if what == "fails" else "ends with (0, 1, 2)") == 3 - (what == "fails")
    assert done.stdout.count("the very end") == (2 if what == "fails" else 3)
