"""The command line of a job, for every MPI and machine. No process is started here."""

import contextlib
import os
import sys
from types import SimpleNamespace

import pytest

from malt.launch import command
from malt.launch.command import HEAP, RUNNER, THREADS, Job, Line, Machine, compose, this_machine
from malt.launch.environment import RESTART
from malt.launch.hosts.allocation import Host, hosts
from malt.launch.machine import network
from malt.launch.machine.mpi_library import LaunchError, Library
from malt.launch.program import check_program

OPENMPI5, OPENMPI4 = Library("openmpi", (5, 0)), Library("openmpi", (4, 1))
MPICH, INTEL = Library("mpich", (5, 0)), Library("intel", (2021, 18))
OPENMPI = OPENMPI5, OPENMPI4
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"}
CLUSTER = Machine(cores=8, fabrics=["infiniband"])


def line(library=OPENMPI5, ranks=4, machine=CLUSTER, environ=None, at="", program=("x.py", "-n", "7")):
    job = Job(ranks, tuple(program), hosts(at) if at else ())
    return compose(job, library, "/opt/bin/mpiexec", machine, environ or {})


def settings(*arguments, **keywords):
    """The environment without the thread counts and what ranks keep of freed memory."""
    found = line(*arguments, **keywords).settings
    return {name: value for name, value in found.items() if name not in {*THREADS, *HEAP}}


def options(*arguments, **keywords):
    """The words between mpiexec and the program."""
    words = line(*arguments, **keywords).arguments
    assert words[0] == "/opt/bin/mpiexec"
    return words[1 : words.index(sys.executable)]


@pytest.mark.parametrize("library", [OPENMPI5, OPENMPI4, MPICH, INTEL], ids=str)
@pytest.mark.parametrize("program", [("x.py", "-n", ":", "--", "a b", ""), ("-m", "apps.svm", "+")], ids=str)
def test_every_rank_runs_this_python_and_a_program_none_of_whose_words_is_for_mpiexec(library, program):
    words = line(library, program=program).arguments
    assert words[1:3] == ["-n", "4"]
    assert words[words.index(sys.executable) :] == [sys.executable, RUNNER, "+", *(f"+{word}" for word in program)]


FAST = {"fabrics": ["infiniband"]}
GETS, OF_11 = "OMPI_MCA_btl_tcp_flags", Library("openmpi", (5, 0, 11))
FLAGS = "send,put,inplace,need-ack,need-csum,hetero-rdma,rdma-remote-completion"
IDLE = {"OMPI_MCA_mpi_yield_when_idle": "1"}
SETTINGS = [
    (OPENMPI5, {}, {}), *((library, {"machine": Machine(1, root=True)}, {}) for library in (MPICH, INTEL)),
    # no colours into a file: ranks of Open MPI print to a pseudo-terminal, wherever their output goes
    (OPENMPI5, {"machine": Machine(8, **FAST, terminal=False)}, {"NO_COLOR": "1"}),
    (OPENMPI5, {"machine": Machine(8, **FAST, terminal=False), "environ": {"FORCE_COLOR": "1"}}, {}),
    (MPICH, {"machine": Machine(8, terminal=False, home={"HOME": "/root"})}, {}),
    (OPENMPI5, {"machine": Machine(8, **FAST, home={"HOME": "/root"})}, {"HOME": "/root"}),
    *((library, {"machine": Machine(8, **FAST, root=True)}, dict.fromkeys(ROOT, "1")) for library in OPENMPI),
    *((library, {"machine": Machine(8)}, {"OMPI_MCA_osc": "^ucx", "OMPI_MCA_btl": "^ofi"}) for library in OPENMPI),
    (OPENMPI5, {"ranks": 8}, {}),
    (OPENMPI5, {"ranks": 9}, {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", **IDLE}),
    (OPENMPI4, {"ranks": 9}, {"OMPI_MCA_rmaps_base_oversubscribe": "1", **IDLE}),
    (OPENMPI5, {"ranks": 16, "at": "a,b"}, {}),
    # gets between hosts are answered with puts by Open MPI, and in long segments by MPICH
    (OF_11, {"at": "a,b"}, {GETS: FLAGS}),
    (Library("openmpi", (5, 0, 9)), {"at": "a,b"}, {}), (OF_11, {"at": "localhost:4"}, {}),
    (OF_11, {"at": "a,b", "environ": {GETS: "send"}}, {}), (MPICH, {"at": "a,b"}, {"UCX_TCP_TX_SEG_SIZE": "64k"}),
    (MPICH, {"at": "localhost:4"}, {}), (INTEL, {"at": "a,b"}, {}),
    (MPICH, {"at": "a,b", "environ": {"UCX_TCP_RX_SEG_SIZE": "16k"}}, {}),
]


@pytest.mark.parametrize(("library", "given", "expected"), SETTINGS)
def test_settings_are_those_that_the_library_needs_there(library, given, expected):
    assert settings(library, **given) == expected


def test_options_are_those_that_the_library_needs():
    assert options() == ["-n", "4", "--bind-to", "none"]
    assert options(MPICH) == options(INTEL, machine=Machine(1, root=True)) == ["-n", "4"]
    for policy in ("PRTE_MCA_hwloc_default_binding_policy", "OMPI_MCA_hwloc_base_binding_policy"):
        assert options(environ={policy: "numa"}) == ["-n", "4"]


@pytest.mark.parametrize("library", [OPENMPI4, OPENMPI5, MPICH, INTEL], ids=str)
@pytest.mark.parametrize("rejoin", [False, True])
def test_ranks_that_may_fail_are_plain_processes(library, rejoin):
    def made(survive, at=""):
        job = Job(3, ("x.py",), hosts(at) if at else (), survive, rejoin=rejoin)
        return compose(job, library, "/opt/bin/mpiexec", Machine(cores=8), {})

    for here in (made("1"), made("best-effort"), made("1", "localhost:3")):
        assert here.arguments[1].endswith("starter.py") and here.arguments[2:] == ["0,1,2", "3", "x.py"]
        assert here.settings["MALT_SURVIVE"] in ("1", "best-effort") and here.survives and not line().survives
        assert here.settings.get("MALT_REJOIN") == ("1" if rejoin else None)
        assert here.remote_ranks == () and not here.is_spread
    assert made("best-effort", "localhost:1,b:2").remote_ranks == (("b", (1, 2)),)
    with pytest.raises(LaunchError, match=r"^--survive: on several hosts ranks open TCP .*, or run on one host$"):
        made("1", "localhost:1,b:2")


@pytest.mark.parametrize("library", [OPENMPI5, MPICH], ids=str)
def test_hosts_start_by_themselves_where_ranks_may_fail(library):
    job = Job(5, ("x.py", "--fast"), hosts("b:1,localhost:1,c:1,b:2"), "best-effort")
    spread = compose(job, library, "/opt/bin/mpiexec", Machine(cores=8), {})
    assert spread.is_spread and spread.settings["MALT_SURVIVE"] == "best-effort"
    assert spread.arguments[1].endswith("starter.py") and spread.arguments[2:] == ["1", "5", "x.py", "--fast"]
    assert spread.remote_ranks == (("b", (0, 3, 4)), ("c", (2,)))


@pytest.mark.parametrize(("ranks", "threads"), [(1, 8), (2, 4), (3, 2), (8, 1), (100, 1)])
@pytest.mark.parametrize("library", [OPENMPI5, MPICH], ids=str)
def test_the_ranks_share_the_cores(library, ranks, threads):
    set_by_us = line(library, ranks).settings
    assert {name: set_by_us[name] for name in THREADS} == dict.fromkeys(THREADS, str(threads))


def test_settings_of_the_user_are_kept():
    environ = {"OMPI_MCA_osc": "rdma", "PRTE_MCA_rmaps_default_mapping_policy": "node", "NUMBA_NUM_THREADS": "3",
               "OMPI_ALLOW_RUN_AS_ROOT": "0", "MKL_NUM_THREADS": "", "MALLOC_TRIM_THRESHOLD_": "4096"}  # fmt: skip
    composed = line(ranks=9, machine=Machine(8, root=True), environ=environ)
    assert not set(composed.settings) & set(environ)
    assert composed.settings["OMP_NUM_THREADS"] == "1"


def test_openmp_of_the_user_goes_for_those_that_follow_it():
    found = set(line(environ={"OMP_NUM_THREADS": "5"}).settings)
    assert found - set(HEAP) == {"VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS"}


@pytest.mark.parametrize("library", [OPENMPI5, MPICH], ids=str)
def test_ranks_keep_the_memory_of_arrays(library):
    assert HEAP.items() <= line(library).settings.items()


@pytest.mark.parametrize(
    ("at", "expected"), [("a,b", "a:2,b:2"), ("a,b:1", "a:3,b:1"), ("a:4", "a:4"), ("a:8,b:8", "a:8,b:8")]
)
def test_hosts(at, expected):
    between = network.between_hosts(MPICH, {})
    names = sorted([*THREADS, *HEAP, *between, "MALT_FAILURE_DIR", "MALT_WITHIN"])
    assert options(MPICH, at=at) == ["-n", "4", "-hosts", expected, "-genvlist", ",".join(names)]
    exported = [word for name in names if name not in between for word in ("-x", name)]
    assert options(OPENMPI5, at=at) == ["-n", "4", "--bind-to", "none", "--host", expected, *exported]


def test_other_hosts_get_the_environment_without_what_belongs_to_a_host_or_session():
    environ = {"OWN": "a b", "PYTHONPATH": "x", "OMPI_MCA_btl": "tcp", "DISPLAY": ":0", "SSH_AUTH_SOCK": "y", "_": "z",
               "XDG_CACHE_HOME": "y", "BASH_FUNC_which%%": "()", "TERM": "xterm", "TMPDIR": "/scratch"}  # fmt: skip
    passed = options(MPICH, at="a", environ=environ)[-1].split(",")
    assert set(environ) & set(passed) == {"OWN", "PYTHONPATH", "OMPI_MCA_btl"}
    words = options(OPENMPI5, at="a", environ=environ)
    assert set(environ) & set(words) == {"OWN", "PYTHONPATH"}  # Open MPI passes its own by itself
    assert not set(environ.values()) & set(words)
    assert "-x" not in options(OPENMPI5, at="localhost:4", environ=environ)


def test_hosts_are_given_only_what_is_set():
    words = options(OPENMPI5, at="a", environ={"OMP_NUM_THREADS": "5"})
    given = {"OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS"}
    assert {name for name in THREADS if name in words} == given


def test_hosts_of_intel_mpi():
    assert options(INTEL, at="a,b")[:-1] == ["-n", "4", "-hosts", "a,b", "-ppn", "2", "-genvlist"]
    with pytest.raises(LaunchError, match="same number of slots"):
        line(INTEL, at="a:3,b:1")


def test_hosts_share_the_load():
    assert line(ranks=4, at="a,b").settings["OMP_NUM_THREADS"] == "4"
    assert line(ranks=4, at="a:64").settings["OMP_NUM_THREADS"] == "2"
    assert settings(ranks=20, at="a,b").keys() >= IDLE.keys()


def test_openmpi_sends_other_hosts_the_attempt():
    words = options(OPENMPI5, at="a", environ={RESTART: "1"})
    assert words[words.index(RESTART) - 1] == "-x"
    assert RESTART not in options(OPENMPI5, at="a") + options(environ={RESTART: "1"})


def test_too_few_slots():
    with pytest.raises(LaunchError, match=r"^the hosts have 3 slots, too few for 4 ranks: a:1,b:2$"):
        line(at="a:1,b:2")


def test_hosts_are_parsed():
    assert hosts("a,b-1.example.org:16") == (Host("a"), Host("b-1.example.org", 16))


@pytest.mark.parametrize("text", ["", "a,", ":4", "a:0", "a:-1", "a:x", "a:", "-x", "a b", "a:1:2"])
def test_bad_hosts(text):
    with pytest.raises(ValueError, match="host"):
        hosts(text)


def test_the_line_can_be_pasted_into_a_shell():
    composed = Line({"A": "^ucx", "B": "1"}, ["/with space/mpiexec", "-n", "2", "x.py", "it's"], Job(2, ()))
    assert str(composed) == """A='^ucx' B=1 '/with space/mpiexec' -n 2 x.py 'it'"'"'s'"""


def test_this_machine():
    assert this_machine().fabrics == network.found()


@pytest.mark.parametrize(
    ("own", "here"), [("n1", "n1 n1.example.org localhost"), ("n1.example.org", "n1 n1.example.org")]
)
def test_names_of_this_machine(own, here, monkeypatch):
    monkeypatch.setattr(command.os, "uname", lambda: SimpleNamespace(nodename=own))
    assert all(map(command.is_here, here.split()))
    assert not any(map(command.is_here, ("n2", "n1.other.org" if "." in own else "n2.example.org", "n")))


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder of programs, which is the working one, where importing anything fails."""
    for name in ("plain.py", "package/__init__.py", "package/part.py", "runs/__init__.py", "runs/__main__.py",
                 "space/m.py"):  # fmt: skip
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("raise AssertionError('imported')")
    monkeypatch.chdir(tmp_path)


THERE = ["plain.py", "runs", "-m plain", "-m package.part", "-m runs", "-m space.m", "-m pytest"]
ABSENT = ["no.py", "package", "-m no", "-m package", "-m package.no", "-m plain.no", "-m plain.py", "-m ..", "-m",
          "-m package/part"]  # fmt: skip


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("program", [*THERE, *ABSENT])
def test_programs_are_there_or_named(program):
    with contextlib.nullcontext() if program in THERE else pytest.raises(
        LaunchError, match=r"^(no such file|no __main__.py in|no module named|-m needs).*$"
    ):
        check_program(program.split())


def test_a_program_is_one_that_each_rank_can_run(tmp_path):
    """Not what can be read once, as the input of a shell, nor what another Python has compiled."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "old.pyc").write_bytes(b"\0\0\r\n" + bytes(12))
    for path, why in [("pipe", "is not a file that each rank can read"), ("old.pyc", "is compiled for another Python")]:
        with pytest.raises(LaunchError, match=f"^{tmp_path / path} {why}"):
            check_program([str(tmp_path / path)])
    with open(__file__) as shown, pytest.raises(LaunchError, match="is not a file that each rank can read"):
        check_program([f"/dev/fd/{shown.fileno()}"])  # as /dev/stdin: another rank has another file there


@pytest.mark.parametrize(("at", "passes"), [("", False), ("localhost,b", False), ("b,localhost", True), ("b", True)])
def test_an_mpiexec_gets_the_input_where_rank_0_is_on_another_host(at, passes):
    assert line(at=at).passes_input_on == passes
    plain = compose(Job(4, ("x.py",), hosts(at) if at else (), "best-effort"), None, "", CLUSTER, {})
    assert not plain.passes_input_on
