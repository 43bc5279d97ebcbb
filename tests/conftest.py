"""Which tests run where, and pytest under mpiexec.

A test's folder says what it needs. tests/mpi runs on the ranks there are: its tests marked `serial` in a world of one
only, those marked `parallel` on several ranks only. Under mpiexec rank 0 runs tests/pure alone while the others wait;
then all ranks run the same tests of tests/mpi, in the same order, and meet after each. What starts jobs, tests/jobs,
tests/faults and tests/hosts, is skipped there. Tests marked `thorough`, and those for a `seed` of 1 or more, run with
--all or where a test is named by `::`.

A test that fails on one rank fails on all, and rank 0 reports what the others said. Where a failure leaves other
ranks waiting in a collective call, the failed rank gives them some seconds, prints its report and ends the job:
nothing hangs.
"""

import io
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import hung
import numpy as np
import pytest
from _pytest.runner import runtestprotocol
from drawn import settings

from malt.launch.machine import network

try:
    with network.settled():  # else Open MPI searches for networks for a second, and leaves 16 MB in /dev/shm
        from mpi4py import MPI

    COMM = MPI.COMM_WORLD.Dup()
    RANK, SIZE = COMM.rank, COMM.size
    IS_SECOND_MPI = "Open MPI" not in MPI.Get_library_version()
except (ImportError, RuntimeError):
    RANK, SIZE, IS_SECOND_MPI = 0, 1, False

pytest.register_assert_rewrite("contracts", "job_contract")  # what it finds is said in full

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the workers of xdist, who share few cores: threads that spin

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background by a script: jobs would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"
ORDERLY = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
FEW_SEEDS, FEW_EXAMPLES = 1, 25
AFTER_FAILURE_S, LONGEST_TEST_S = 10.0, 200.0

# Ranks must draw the same examples, or their collective calls differ.
settings.register_profile("all", derandomize=True, deadline=None, print_blob=False)
settings.register_profile("few", settings.get_profile("all"), max_examples=FEW_EXAMPLES)


def pytest_addoption(parser):
    parser.addoption("--straggler-steps", type=int, default=20, help="steps of the tests with one slow rank")
    parser.addoption("--all", action="store_true", help="run the thorough tests, too")
    parser.addoption(
        "--compiled", action="store_true", help="import numba first, so that dense vectors use compiled calls"
    )
    parser.addoption("--torn-seconds", type=float, default=0.5, help="how long each free-running torn-read test lasts")


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.addinivalue_line("markers", "serial: needs a world of one")
    config.addinivalue_line("markers", "single: of tests/pure, but calls MPI in a world of one")
    config.addinivalue_line("markers", "parallel: needs several ranks")
    config.addinivalue_line("markers", "thorough(but=None): runs with --all only, but for the case of that name")
    hung.show_before_kill()
    settings.load_profile("all" if config.getoption("--all") else "few")
    config.stash[SESSION] = SharedSession()
    if RANK > 0:
        config.pluginmanager.getplugin("terminalreporter")._tw._file = io.StringIO()


def pytest_collection_modifyitems(config, items):
    everything = config.getoption("--all") or any("::" in argument for argument in config.args)
    alone, shared, left_out = [], [], []
    for item in items:
        if not everything and is_thorough(item):
            left_out.append(item)
        elif not is_shared(item):
            alone.append(item)
        elif item.get_closest_marker("serial" if SIZE > 1 else "parallel"):
            left_out.append(item)
        else:
            shared.append(item)
    for item in alone:
        if SIZE > 1 and (folder_of(item) in ("jobs", "faults", "hosts") or item.get_closest_marker("single")):
            item.add_marker(pytest.mark.skip(reason="starts jobs of its own: run pytest without mpiexec"))
    config.hook.pytest_deselected(items=left_out)
    items[:] = [*alone, *shared] if RANK == 0 else shared


def is_thorough(item):
    """Whether it runs with --all only: so it is marked, or it is one for many seeds."""
    case = getattr(item, "callspec", None)
    if case is not None and isinstance(seed := case.params.get("seed"), int) and seed >= FEW_SEEDS:
        return True
    kept = [mark.kwargs.get("but") for mark in item.iter_markers("thorough")]
    return any(name is None or case is None or name != case.id for name in kept)


def folder_of(item):
    """pure, mpi, jobs, faults or hosts; the name of the file for one beside them."""
    return item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""


def is_shared(item):
    """Whether all ranks run it."""
    return folder_of(item) not in ("pure", "jobs", "faults", "hosts")


class SharedSession:
    """What the ranks exchange before the first test that they share, and at the end. Rank 0 comes late to both:
    the others wait for as long as it runs tests of its own; where it fails, mpiexec ends the job."""

    def __init__(self):
        self.has_begun = self.is_over = False

    def begin(self, session, is_over=False):
        """Wait for rank 0; count its failures, so that all ranks stop after the same test."""
        self.has_begun = True
        self.is_over, session.testsfailed = self._from_rank_0(is_over, session.testsfailed)
        if self.is_over and RANK > 0:
            session.shouldstop = "rank 0 has stopped"

    def end(self, session, status):
        """End as rank 0 does."""
        if not self.has_begun:
            self.begin(session, is_over=True)
        session.exitstatus, _ = self._from_rank_0(status, 0)
        session.config.ended_with = session.exitstatus

    def _from_rank_0(self, *numbers):
        reported = np.array(numbers)
        request = COMM.Ibcast(reported, 0)
        while not request.Test():
            time.sleep(0.01)
        return [int(number) for number in reported]


SESSION = pytest.StashKey()


def pytest_runtest_protocol(item, nextitem):
    if SIZE == 1 or not is_shared(item):
        return None
    ranks = item.config.stash[SESSION]
    if not ranks.has_begun:
        ranks.begin(item.session)
    if ranks.is_over:
        return True
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    _enter(item.nodeid, reports)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_sessionfinish(session, exitstatus):
    session.config.ended_with = exitstatus
    ranks = session.config.stash[SESSION]
    if SIZE > 1 and (exitstatus in ORDERLY or ranks.is_over):
        ranks.end(session, exitstatus)


def pytest_unconfigure(config):
    """A rank that could not even collect the tests will not come to any meeting."""
    if SIZE > 1 and getattr(config, "ended_with", 0) not in ORDERLY:
        COMM.Abort(int(config.ended_with))


def _enter(name, reports):
    """Wait for all ranks at the end of a test; add failures on other ranks to the reports."""
    failed = [report for report in reports if report.failed]
    anywhere = np.array([0])
    request = COMM.Iallreduce(np.array([len(failed)]), anywhere)
    start = time.monotonic()
    while not request.Test():
        if time.monotonic() - start > (AFTER_FAILURE_S if failed else LONGEST_TEST_S):
            _give_up(name, failed)
        time.sleep(1e-4)
    if not anywhere[0]:
        return
    texts = COMM.allgather("\n".join(report.longreprtext for report in failed))
    ranks = {text: [rank for rank in range(SIZE) if texts[rank] == text] for text in texts if text}
    reported = "\n".join(f"--- on ranks {who}:\n{text}" for text, who in ranks.items())
    called = [report for report in reports if report.when == "call"]
    last = (failed or called or reports)[0]
    last.outcome, last.longrepr = "failed", reported


def _give_up(name, failed):
    why = "the others do not come" if failed else f"ranks are still in it after {LONGEST_TEST_S:.0f} s"
    print(f"\nrank {RANK}: {name}: {why}; ending the job", file=sys.__stderr__)
    for report in failed:
        print(report.longreprtext, file=sys.__stderr__)
    sys.__stderr__.flush()
    COMM.Abort(1)


@pytest.fixture
def data():
    """The folder of real data beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip("no ../shared/data beside the checkout")
    return SHARED_DATA


@pytest.fixture
def user_cache(tmp_path, monkeypatch):
    """The folder of caches of the user, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    return tmp_path / "user"


@pytest.fixture(
    params=[None, 2, 5] if SIZE == 1 and not IS_SECOND_MPI else [None],
    ids=lambda ranks: f"simulated {ranks}" if ranks else "mpi",
)
def everywhere(request):
    """Run a function on all ranks: those of this job, or simulated ones, which no MPI takes part in."""
    import malt

    if request.param is None:
        return lambda function: [function(malt.rank())]
    return lambda function: malt.simulate(function, request.param, seed=1)


@pytest.fixture
def job_environment(tmp_path_factory):
    """The environment for a job of its own: without what this job's launcher set for its ranks, with a folder for what
    a launcher leaves that is killed."""
    own = ("OMPI_COMM", "OMPI_UNIVERSE", "OMPI_FILE", "OMPI_APP", "OMPI_FIRST", "OMPI_MCA_", "OMPI_NUM", "OMPI_ARGV",
           "PMI", "PRTE_", "MPI_LOCAL", "HYDRA", "HYDI", "MPIR_", "GMPI", "OMPI_COMMAND", "IPATH", "HWLOC",
           "MALT_RANK", "OMP_NUM_THREADS")  # fmt: skip
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {**inherited, "TMPDIR": str(tmp_path_factory.mktemp("job"))}


@pytest.fixture
def malt_run(job_environment, tmp_path):
    """malt_run(source, *arguments, ranks, options): the finished `malt run` of that program, in its folder."""

    def run(source, *arguments, ranks=2, options=()):
        (tmp_path / "program.py").write_text(source)
        words = [sys.executable, "-m", "malt", "run", "-n", ranks, *options, tmp_path / "program.py", *arguments]
        environment = {**job_environment, "PYTHONPATH": str(TESTS.parent)}
        streams = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        return subprocess.run(list(map(str, words)), cwd=tmp_path, env=environment, timeout=200, **streams)

    return run


@pytest.fixture
def start(job_environment, tmp_path):
    """start(source, *arguments, ...): a Job (tests/failing_jobs.py) of that program."""
    from failing_jobs import Job

    def start(source, *arguments, **options):
        program = tmp_path / "program.py"
        program.write_text(source)
        return Job([str(program), *arguments], job_environment, tmp_path, **options)

    return start


@pytest.fixture(autouse=True)
def compiled_calls(request, monkeypatch):
    """Dense vectors use compiled calls with --compiled alone, whatever other tests have imported."""
    from dstorm.queues.calls import compiled

    kernels = compiled.load if request.config.getoption("--compiled") else lambda kind: None
    monkeypatch.setattr(compiled, "kernels", kernels)


@pytest.fixture(autouse=find_spec("greenlet") is None)
def simulated_ranks(monkeypatch):
    """Skip a test once it simulates several ranks: that cannot be."""
    from dstorm import Group

    monkeypatch.setattr(Group, "_start", lambda *_: pytest.skip("needs greenlet"))


@pytest.fixture(autouse=SIZE > 1)
def no_session_over_mpi_on_rank_0_alone(request, monkeypatch):
    """Skip a test of tests/pure under mpiexec once it begins a session over MPI: the other ranks do not come."""
    if folder_of(request.node) != "pure":
        return
    from dstorm.transports.mpi import MpiTransport

    def skip(*args, **kwargs):
        pytest.skip("begins a session over MPI in a world of one: run pytest without mpiexec")

    monkeypatch.setattr(MpiTransport, "__init__", skip)
