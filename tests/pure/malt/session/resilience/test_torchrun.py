"""Which process of torchrun's this one is, by its variables, and why it cannot be a rank."""

import os

import pytest

import malt
from dstorm.membership.children import RANK_PROCESS
from malt.runner.program import JOB_DIR
from malt.session import opening
from malt.session.resilience import start, torchrun

RAY = {
    "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}  # fmt: skip
"""Without torchrun's own."""
TORCHRUN = {**RAY, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}


@pytest.mark.parametrize("environment", [TORCHRUN, RAY])
def test_a_process_of_several_on_one_host(environment):
    one = torchrun.started(environment)
    assert one[:3] == (1, 2, range(2)) and one.is_on_one_host


@pytest.mark.parametrize("more", [
    {"WORLD_SIZE": "1", "RANK": "0"}, {"RANK": "2"}, {"RANK": "master"}, {"RANK": ""}, {"LOCAL_WORLD_SIZE": "4"},
    {"LOCAL_WORLD_SIZE": "0"}, {"MASTER_PORT": ""}, {"MASTER_PORT": "http"}, {"LOCAL_RANK": "2"},
    {"OMPI_COMM_WORLD_SIZE": "2"}, {"PMI_SIZE": "1"},
])  # fmt: skip
def test_others_are_none(more):
    """One process alone, a number that is none, a variable that is missing; and those of an mpiexec."""
    assert torchrun.started({**TORCHRUN, **more}) is None


def test_what_srun_says_is_of_the_torchrun_that_it_has_started():
    """One on each host. Without torchrun srun has started this process."""
    slurm = {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}
    assert torchrun.started({**TORCHRUN, **slurm})[:3] == (1, 2, range(2))
    assert torchrun.started({**RAY, **slurm}) is None


@pytest.mark.parametrize("name", ["TORCHELASTIC_RESTART_COUNT", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "WORLD_SIZE"])
def test_each_start_has_a_name_of_its_own(name):
    """A restart too; the ranks of one start have the same one."""
    here, other = torchrun.started(TORCHRUN), torchrun.started({**TORCHRUN, name: "7"})
    assert here.name != other.name
    assert here.name == torchrun.started({**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0"}).name


SECRET = "0123456789abcdef"


@pytest.mark.parametrize("secret", ["", SECRET[1:]])
def test_ranks_of_several_hosts_without_a_key_are_refused_with_the_remedy(secret):
    with pytest.raises(RuntimeError, match="4 processes, 2 of them on this host.*set MALT_KEY.*malt run -n 4 --hosts"):
        torchrun.check(of_host(1), False, secret)
    torchrun.check(of_host(1), False, SECRET)
    torchrun.check(torchrun.started(TORCHRUN), False)


def of_host(number, **more):
    """Rank 1 or 3 of 4, of two hosts."""
    return torchrun.started({**TORCHRUN, "WORLD_SIZE": "4", "RANK": str(2 * number + 1), **more})


def test_ranks_of_several_hosts_have_a_key_in_common():
    """Each host has its own name: two torchruns may be on one machine. Each host counts its own restarts."""
    first, second = of_host(0), of_host(1)
    assert (first.ranks, second.ranks) == (range(2), range(2, 4)) and not first.is_on_one_host
    assert first.name != second.name
    key = torchrun.job_key(first, SECRET)
    assert key == torchrun.job_key(of_host(1, TORCHELASTIC_RESTART_COUNT="1"), SECRET)
    assert len({key, torchrun.job_key(first, SECRET + "0"), torchrun.job_key(of_host(0, MASTER_PORT="7"), SECRET)}) == 3
    assert len(bytes.fromhex(key)) == 32 and SECRET not in key


@pytest.mark.parametrize(("port", "ports"), [(29500, range(29501, 29509)), (65533, (65534, 65535, *range(1024, 1030)))])
def test_ports_follow_that_of_torch(port, ports):
    assert of_host(0, MASTER_PORT=str(port)).ports == tuple(ports)


def test_ranks_that_are_to_survive_are_refused_with_the_remedy():
    with pytest.raises(RuntimeError, match="torchrun ends the job.*: start with malt run --survive -n 2"):
        torchrun.check(torchrun.started(TORCHRUN), True)


@pytest.fixture
def under_torchrun(monkeypatch):
    """The variables of torchrun, and none of another launcher."""
    for name in [one for one in os.environ if one.startswith(("OMPI_COMM_WORLD", "PMI", "SLURM_", "MALT_"))]:
        monkeypatch.delenv(name)
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("alone", ["", "1"])
def test_children_of_a_rank_are_known_before_its_session_begins(alone, monkeypatch, under_torchrun):
    """Those of a process that trains alone are worlds of one."""
    monkeypatch.setenv(opening.ALONE, alone)
    monkeypatch.setenv(RANK_PROCESS, "")  # so that it is restored
    del os.environ[RANK_PROCESS]
    opening.claim()
    assert os.environ.get(RANK_PROCESS, "").split()[:2] == ([] if alone else ["1", str(os.getpid())])


def test_ranks_start_no_other_ranks(under_torchrun):
    with pytest.raises(RuntimeError, match="started without mpiexec, malt run and torchrun"):
        malt.run(print, 2)


@pytest.mark.parametrize(
    ("folder", "message"),
    [("malt-torchrun-x", "no room"), ("malt-x", "survive=True: no room, or run without it")],
)
def test_a_remedy_is_one_that_there_is(folder, message, monkeypatch):
    def short(*options):
        raise MemoryError("no room")

    monkeypatch.setattr(start, "_transport", short)
    monkeypatch.setenv(JOB_DIR, f"/tmp/{folder}")
    with pytest.raises(MemoryError, match=f"^{message}$"):
        start.transport(5.0, None)
