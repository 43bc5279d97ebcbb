"""Ranks of real jobs that fail before the session has begun."""

from __future__ import annotations

import pytest
from failing_jobs import under_one_mpi

pytestmark = pytest.mark.serial


EARLY = """
import os, signal, sys, time
how, failing = sys.argv[1:]
if os.environ["MALT_RANK"] in failing:
    time.sleep(0.5)
    if "raise" in how:
        raise ValueError("this rank fails")
    if "exit" in how:
        sys.exit(0)
    os.kill(os.getpid(), signal.SIGSTOP if "stop" in how else signal.SIGKILL)
import malt
malt.init(survive=True)
malt.barrier()
print("rank", malt.rank(), "has", malt.alive(), flush=True)
"""


@pytest.mark.thorough(but="1-kill")
@under_one_mpi
@pytest.mark.parametrize(
    ("failing", "how"),
    [("1", "kill"), ("1", "exit"), ("0", "raise"), ("0", "stop"), ("013", "kill"), ("013", "stop")],
)
def test_a_rank_that_fails_before_the_session_is_in_lost_ranks(failing, how, start):
    job = start(EARLY, how, failing)
    assert job.end() == 0, job.output
    left = tuple(rank for rank in range(4) if str(rank) not in failing)
    assert job.output.count(f"has {left}") == len(left)
    assert all(f"rank {rank} is lost" in job.output for rank in failing)
    assert ("ValueError: this rank fails" in job.output) == (how == "raise")


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
