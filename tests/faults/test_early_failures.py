"""Ranks of real jobs that fail before the session has begun."""

import pytest
from failing_jobs import under_one_mpi

pytestmark = pytest.mark.serial


EARLY = """
import os, signal, sys, time
how = dict(zip("013", sys.argv[1:])).get(os.environ["MALT_RANK"])
if how is not None:
    time.sleep(0.5)
    if how == "raises":
        raise ValueError("this rank fails")
    if how == "exits":
        sys.exit(0)
    os.kill(os.getpid(), signal.SIGSTOP if how == "is stopped" else signal.SIGKILL)
import malt
malt.init(survive=True)
malt.barrier()
print("rank", malt.rank(), "has", malt.alive(), flush=True)
"""


@pytest.mark.thorough(but="ways0")
@under_one_mpi
@pytest.mark.parametrize("ways", [["raises", "exits", "is killed"], 3 * ["is stopped"]])
def test_ranks_that_fail_before_the_session_are_in_lost_ranks(ways, start):
    job = start(EARLY, *ways, ranks=6)
    assert job.end() == 0, job.output
    assert job.output.count("has (2, 4, 5)") == 3
    assert all(f"rank {rank} is lost" in job.output for rank in (0, 1, 3))
    assert ("ValueError: this rank fails" in job.output) == ("raises" in ways)


INTERRUPTED = """
import os, time, malt
from malt.session.resilience import start
if os.environ["MALT_RANK"] == "0":
    def transport(*arguments):
        raise KeyboardInterrupt
    start.transport = transport
malt.init()
time.sleep(1)  # an abort of the job would come meanwhile
print("rank", malt.rank(), "has", malt.alive(), flush=True)
"""


@pytest.mark.thorough
@under_one_mpi
def test_a_rank_that_is_interrupted_in_init_leaves_alone(start):
    job = start(INTERRUPTED, ranks=2)
    assert job.end() == 0, job.output
    assert "rank 1 has (1,)" in job.output and "KeyboardInterrupt" in job.output


@pytest.mark.thorough
@under_one_mpi
def test_all_fail_before_the_session(start):
    assert start("import sys\nsys.exit(3)").end() == 3
