"""Fast networks: which there are, and the settings of Open MPI where there is none."""

import json
import os
import subprocess
import sys

import pytest

from malt.launch.machine import network
from malt.launch.machine.mpi_library import bound_library

pytestmark = pytest.mark.serial

NEITHER = {"OMPI_MCA_osc": "^ucx", "OMPI_MCA_btl": "^ofi"}


@pytest.mark.parametrize(
    ("devices", "reports"),
    [
        ((), NEITHER),
        (("net/eth0",), NEITHER),
        (("infiniband/mlx5_0",), {}),
        (("cxi/cxi0",), {"OMPI_MCA_osc": "^ucx"}),
    ],
)
def test_networks_that_are_not_there_are_switched_off(devices, reports, tmp_path):
    (tmp_path / "infiniband").mkdir()
    for device in devices:
        (tmp_path / device).mkdir(parents=True)
    assert network.settings(network.found(tmp_path)) == reports


@pytest.mark.parametrize(
    ("environment", "alone"),
    [({}, True), ({"OMPI_COMM_WORLD_SIZE": "1", "PMIX_RANK": "0"}, True), ({"OMPI_COMM_WORLD_SIZE": "2"}, False),
     ({"MPI_LOCALNRANKS": "1", "PMI_SIZE": "4"}, False), ({"PMIX_RANK": "0"}, False),
     ({"OMPI_COMM_WORLD_SIZE": "1", "PMI_SIZE": "8", "SLURM_STEP_NUM_TASKS": "8"}, True)],
)  # fmt: skip
def test_a_world_of_one_needs_no_shared_memory(environment, alone):
    assert network.is_alone(environment) == alone
    assert network.settings((), alone)["OMPI_MCA_btl"] == ("^sm,ofi" if alone else "^ofi")


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({}, None),
        ({"SLURM_STEP_NUM_TASKS": "8"}, 8),
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PTY_PORT": "35001"}, None),
        ({"SLURM_STEP_NUM_TASKS": "8", "PMI_SIZE": "1"}, 1),
        ({"SLURM_STEP_NUM_TASKS": "1", "OMPI_COMM_WORLD_SIZE": "4"}, 4),
    ],
)
def test_the_count_of_processes_is_that_of_the_launcher_that_started_this_one(environment, count):
    """Not that of the srun in whose shell an mpiexec was called."""
    assert network.process_count(environment) == count


TORCH = {"RANK": "0", "WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({}, None),
        (TORCH, 2),
        ({"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "4"}, 4),
        ({"JSM_NAMESPACE_RANK": "0", "JSM_NAMESPACE_SIZE": "8"}, 8),
        ({"PMIX_RANK": "0"}, "several"),
        ({"PMIX_RANK": "0", "SLURM_PTY_PORT": "35001"}, None),
        ({"PMIX_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, None),
        ({"WORLD_SIZE": "2"}, None),  # says nothing of this process
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "master", "WORLD_SIZE": "many"}, None),
        ({**TORCH, "OMPI_COMM_WORLD_SIZE": "2"}, None),  # a program may set torch's from those of mpiexec
        ({**TORCH, "PMI_SIZE": "1"}, None),
    ],
)
def test_launchers_that_mpi_knows_nothing_of_are_known_by_their_variables(environment, count):
    found = network.strangers(environment)
    assert (None if found is None else found[1] or "several") == count


@pytest.mark.parametrize("mpi", ["", "import sys; sys.modules['mpi4py'] = None\n"], ids=["MPI", "no MPI"])
def test_a_program_under_torchrun_does_not_train_alone_without_a_word(job_environment, mpi):
    def run(**more):
        words = [sys.executable, "-c", f"{mpi}import malt\nprint(malt.size())"]
        return subprocess.run(words, env={**job_environment, **more}, capture_output=True, text=True, timeout=60)

    refused = run(**TORCH)
    assert refused.returncode and "torchrun, accelerate or the like started 2 processes" in refused.stderr
    assert "malt run -n 2" in refused.stderr and "MALT_ALONE=1" in refused.stderr
    assert run(**TORCH, MALT_ALONE="1").stdout == run().stdout == "1\n"


def test_nor_under_a_launcher_of_pmix_that_mpi_has_not_seen(job_environment):
    """Such a launcher does not say how many processes it has started."""
    words = [sys.executable, "-c", "import sys; sys.modules['mpi4py'] = None\nimport malt\nprint(malt.size())"]
    for variables, size in (({}, ""), ({"MALT_ALONE": "1"}, "1\n")):
        environment = {**job_environment, "PMIX_RANK": "1", **variables}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
        assert done.stdout == size
        said = "started processes that MPI does not know of, so each would train alone: start with malt run -n N"
        assert (said in done.stderr) == (not size)


@pytest.mark.parametrize("missing", ["MALT_SIZE", "MALT_HOST_SIZE", "MALT_JOB_DIR"])
def test_a_process_with_the_variables_of_a_rank_in_part_says_which_is_missing(job_environment, missing):
    """As where a shell has kept one of them."""
    variables = {"MALT_RANK": "0", "MALT_SIZE": "2", "MALT_HOST_SIZE": "2", "MALT_JOB_DIR": "/tmp"}
    del variables[missing]
    words = [sys.executable, "-c", "import malt; malt.init()"]
    environment = {**job_environment, **variables}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"RuntimeError: MALT_RANK is set without {missing}: malt run")


LOADED = """
import sys, malt
malt.vector(1)
of_others = {"malt.launch.machine.network", "malt.session.resilience.torchrun", "mpi4py"}
print(*of_others & sys.modules.keys(), end="")
"""


def test_a_plain_process_loads_nothing_of_other_launchers(malt_run):
    done = malt_run(LOADED, options=["--survive"])
    assert (done.returncode, done.stdout) == (0, ""), done


def test_mpi_is_loaded_with_a_home(monkeypatch):
    """Open MPI aborts a program that is started without one, as by env -i."""
    monkeypatch.delenv("HOME", raising=False)
    with network.settled():
        assert os.environ["HOME"].startswith("/")
    assert "HOME" not in os.environ


SEGMENTS = """
import malt
malt.init()
import mpi4py.MPI
print("segments", [line.split()[-1] for line in open("/proc/self/maps") if "sm_segment" in line])
"""


@pytest.mark.thorough
@pytest.mark.skipif(bound_library().family != "openmpi", reason="what it leaves in /dev/shm is Open MPI's")
@pytest.mark.parametrize("how", [[sys.executable], [sys.executable, "-m", "malt", "run", "-n", "1"]])
def test_a_rank_that_is_alone_leaves_no_segment(how, job_environment, tmp_path):
    (tmp_path / "program.py").write_text(SEGMENTS)
    done = subprocess.run(
        [*how, str(tmp_path / "program.py")], env=job_environment, capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout) == (0, "segments []\n"), done.stderr


needs_openmpi = pytest.mark.skipif(bound_library().family != "openmpi", reason="they are settings of Open MPI")

PROGRAM = """
import json, os, sys, time
before = dict(os.environ)
start = time.perf_counter()
import malt
from malt.launch.machine import network
network.found = lambda: frozenset(sys.argv[1:])
malt.init()
from mpi4py import MPI
assert MPI.Is_initialized() and dict(os.environ) == before
print(json.dumps([os.environ.get("OMPI_MCA_btl"), time.perf_counter() - start]))
"""


def begin(environment, *kinds):
    """What OMPI_MCA_btl is in a session, and the seconds that it takes to begin it on a machine with such networks."""
    command = [sys.executable, "-c", PROGRAM, *kinds]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.thorough
@needs_openmpi
def test_mpi_begins_without_a_search_for_networks(job_environment):
    """Open MPI sleeps for a second in its search. Both begin in turns, as other processes may be at work."""
    taken = []
    for _ in range(10):
        taken.append((begin(job_environment)[1], begin(job_environment, "cxi")[1]))
        without, searching = map(min, zip(*taken, strict=True))
        if searching - without > 0.5:
            return
    raise AssertionError(taken)


@needs_openmpi
@pytest.mark.parametrize("own", [None, "self,sm,tcp"])
def test_what_the_user_has_set_stays(own, job_environment):
    environment = job_environment if own is None else {**job_environment, "OMPI_MCA_btl": own}
    assert begin(environment)[0] == own
