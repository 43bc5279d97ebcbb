"""How real jobs end that have failed, or of which a rank has."""

import pytest
from failing_jobs import under_one_mpi

pytestmark = pytest.mark.serial


def test_a_world_of_one_fails_with_its_status(start):
    assert start("import sys, malt\nmalt.barrier()\nsys.exit(3)", ranks=1).end() == 3


@under_one_mpi
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


UNSAID = """
import os, sys, malt
malt.init(survive=True)
malt.barrier()
eval(sys.argv[1])
"""


@pytest.mark.thorough(but="exit")
@under_one_mpi
@pytest.mark.parametrize(("how", "status"), [("_exit(3)", 3), ("kill(os.getpid(), 9)", 137)], ids=["exit", "kill"])
def test_where_no_rank_can_say_how_it_ends_the_status_is_that_of_the_first(how, status, start):
    job = start(UNSAID, f"os.{how}", ranks=2)
    assert job.end() == status, job.output
    assert "malt run: ranks 0, 1 ended without a word: killed, or by os._exit\n" in job.output


@under_one_mpi
def test_ranks_that_interrupt_themselves_end_as_under_plain_python(start):
    job = start("import malt\nmalt.init(survive=True)\nmalt.barrier()\nraise KeyboardInterrupt", ranks=2)
    assert job.end() == 130, job.output


@pytest.mark.thorough(but="0")
@under_one_mpi
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
@under_one_mpi
def test_children_of_failed_ranks_are_ended(start):
    job = start(ORPHAN, ranks=2)
    assert job.end() == 0, job.output  # it also checks that nothing is left


SAVING = """
import os, sys, time, malt
malt.init(survive=True)
malt.barrier()
malt.finalize()
if os.environ["MALT_RANK"] == "0":
    time.sleep(0.5)
    if sys.argv[1] == "exit":
        sys.exit(3)
    raise OSError("the model cannot be saved")
"""


@pytest.mark.thorough(but="raise-1")
@under_one_mpi
@pytest.mark.parametrize(("how", "status"), [("exit", 3), ("raise", 1)])
def test_a_failure_after_the_session_is_one_of_the_job(how, status, start):
    job = start(SAVING, how, ranks=3)
    assert job.end() == status, job.output


STOPPED_LAST = """
import os, signal, malt
malt.init(survive=True)
malt.barrier()
malt.finalize()
if os.environ["MALT_RANK"] == "1":
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.thorough
@under_one_mpi
def test_a_rank_that_is_stopped_at_the_very_end_holds_up_no_other(start):
    job = start(STOPPED_LAST, ranks=3)
    assert job.end() == 0, job.output
