"""Ranks of real jobs that fail before the session has begun."""

from __future__ import annotations

import time

import pytest
from failing_jobs import needs_openmpi

pytestmark = pytest.mark.serial


EARLY = """
import os, signal, sys, time
how, failing = sys.argv[1:]
if "late" in how:
    from mpi4py import MPI
if os.environ["PMIX_RANK"] in failing:
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


@pytest.mark.thorough(but="kill")
@needs_openmpi
@pytest.mark.parametrize("how", ["kill", "raise", "stop", "exit"])
def test_a_rank_that_fails_before_mpi_init_is_named(how, start):
    began = time.time()
    job = start(EARLY, how, "1")
    assert job.end() != 0
    assert time.time() - began < 60
    what = "ended while the others waited for it in MPI_Init" if how == "exit" else "died before the session began"
    assert f"rank 1 {what}" in job.output
    assert ("ValueError: this rank fails" in job.output) == (how == "raise")


@pytest.mark.thorough(but="1-late kill")
@needs_openmpi
@pytest.mark.parametrize("how", ["late kill", "late raise", "late stop"])
@pytest.mark.parametrize("failing", ["1", "0", "013"])
def test_a_rank_that_fails_after_mpi_init_is_in_lost_ranks(how, failing, start):
    job = start(EARLY, how, failing)
    assert job.end() == 0, job.output
    left = tuple(rank for rank in range(4) if str(rank) not in failing)
    assert job.output.count(f"has {left}") == len(left)
    assert all(f"rank {rank} is lost" in job.output for rank in failing)


INTERRUPTED = """
import os, time, malt
from malt.resilience import start
if os.environ["PMIX_RANK"] == "0":
    def transport(*arguments):
        raise KeyboardInterrupt
    start.transport = transport
malt.init()
time.sleep(1)  # an abort of the job would come meanwhile
print("rank", malt.rank(), "has", malt.alive(), flush=True)
"""


@pytest.mark.thorough
@needs_openmpi
def test_a_rank_that_is_interrupted_in_init_leaves_alone(start):
    job = start(INTERRUPTED, ranks=2)
    assert job.end() == 0, job.output
    assert "rank 1 has (1,)" in job.output and "KeyboardInterrupt" in job.output


BEGUN = """
import os, time
from mpi4py import MPI
file = os.path.join(os.environ["MALT_JOB_DIR"], f"begun-{MPI.COMM_WORLD.rank}")
end = time.time() + 60
while not os.path.exists(file) and time.time() < end:
    time.sleep(0.01)
print("reported" if os.path.exists(file) else "not reported", flush=True)
"""


@pytest.mark.thorough
@needs_openmpi
def test_the_end_of_mpi_init_is_reported_to_the_launcher(start):
    job = start(BEGUN, ranks=2)
    assert job.end() == 0, job.output
    assert job.output.splitlines().count("reported") == 2


@pytest.mark.thorough
@needs_openmpi
def test_all_fail_before_the_session(start):
    assert start("import sys\nsys.exit(3)").end() == 3
