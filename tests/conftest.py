"""pytest under mpiexec: all ranks run the same tests, in the same order, and meet after each.

A test that fails on one rank fails on all, and rank 0 reports what the others said. Where a failure leaves other
ranks waiting in a collective call, the failed rank gives them some seconds, prints its report and ends the job:
nothing hangs. Tests marked `serial` need no peers and run in a world of one only; those marked `parallel` do not.
"""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import settings

try:
    from mpi4py import MPI

    COMM = MPI.COMM_WORLD.Dup()
    RANK, SIZE = COMM.rank, COMM.size
except (ImportError, RuntimeError):
    RANK, SIZE = 0, 1

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"
AFTER_FAILURE_S, LONGEST_TEST_S = 10.0, 200.0

# Ranks must draw the same examples, or their collective calls differ.
settings.register_profile("malt", derandomize=True, deadline=None, print_blob=False)
settings.load_profile("malt")


def pytest_addoption(parser):
    parser.addoption("--straggler-steps", type=int, default=40, help="steps of the tests with one slow rank")
    parser.addoption("--torn-seconds", type=float, default=1.0, help="how long each free-running torn-read test lasts")


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.addinivalue_line("markers", "serial: needs no peers; runs in a world of one only")
    config.addinivalue_line("markers", "parallel: needs peers; runs on several ranks only")
    if RANK > 0:
        config.pluginmanager.getplugin("terminalreporter")._tw._file = io.StringIO()


def pytest_collection_modifyitems(config, items):
    elsewhere = "serial" if SIZE > 1 else "parallel"
    here = [item for item in items if item.get_closest_marker(elsewhere) is None]
    config.hook.pytest_deselected(items=[item for item in items if item not in here])
    items[:] = here


def pytest_runtest_protocol(item, nextitem):
    if SIZE == 1:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    _meet(item.nodeid, reports)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_unconfigure(config):
    """A rank that could not even collect the tests will not come to any meeting."""
    if SIZE > 1 and getattr(config, "ended_with", 0) not in (0, pytest.ExitCode.TESTS_FAILED):
        COMM.Abort(int(config.ended_with))


def pytest_sessionfinish(session, exitstatus):
    session.config.ended_with = exitstatus


def _meet(name, reports):
    """Wait for all ranks at the end of a test; make the reports tell of failures elsewhere."""
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
    told = "\n".join(f"--- on ranks {who}:\n{text}" for text, who in ranks.items())
    called = [report for report in reports if report.when == "call"]
    last = (failed or called or reports)[0]
    last.outcome, last.longrepr = "failed", told


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
def job_environment(tmp_path_factory):
    """The environment for a job of its own: without what this job's launcher told its ranks, with a folder for what
    a launcher leaves that is killed."""
    own = ("OMPI_COMM", "OMPI_UNIVERSE", "OMPI_FILE", "OMPI_APP", "OMPI_FIRST", "OMPI_MCA_", "OMPI_NUM", "OMPI_ARGV",
           "PMI", "PRTE_", "MPI_LOCAL", "HYDRA", "HYDI", "MPIR_", "GMPI", "OMPI_COMMAND", "IPATH", "HWLOC",
           "MALT_RANK")  # fmt: skip
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {**inherited, "TMPDIR": str(tmp_path_factory.mktemp("job"))}
