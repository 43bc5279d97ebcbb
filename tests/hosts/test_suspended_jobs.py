"""A job on two hosts that is suspended by Ctrl-Z for longer than its deadline goes on, whole."""

import sys

import pytest
from failing_jobs import under_one_mpi
from host_network import ROOT

STOP_S = 4.0
LOOP = f"""
import time
import malt
malt.init()
malt.barrier()
malt.init(deadline_s=2.0)
v = malt.vector(1000, sync="bsp")
print("begun", flush=True)
before, later = time.monotonic(), 0
while later < 5:  # steps after that in which the job was suspended
    end = time.process_time() + 0.1
    while malt.rank() and time.process_time() < end:
        pass
    now = time.monotonic()
    v.array[:] = v.array[0] > 0 or now - before > {STOP_S} - 1  # the mean is the same on both
    before = now
    v.scatter()
    v.gather()
    later += v.array[0] > 0
    malt.barrier()
print("ends", malt.alive(), flush=True)
"""
LAUNCHER = "pgrep -f '^[^ ]*python -m [m]alt run'"
STATES = "for p in $(pgrep -f '^[^ ]*python [^ ]*runner/[p]rogram.py'); do cut -d' ' -f3 /proc/$p/stat; done"
"""The states of the ranks of a host: T where they are stopped."""


@pytest.mark.parametrize("survive", [
    pytest.param((), id="mpiexec"), pytest.param(("--survive=best-effort",), id="plain", marks=under_one_mpi),
])  # fmt: skip
def test_a_suspended_job_goes_on(survive, hosts):
    words = (sys.executable, "-m", "malt", "run", "-n", "2", *survive, "--hosts", "a:1,b:1", "-c", LOOP)
    process = hosts.start("a", "sh", "-c", '"$@" & wait $!', "sh", *words, folder=ROOT)  # nsenter stops with its child
    assert [process.stdout.readline() for _ in range(2)] == ["begun\n"] * 2, process.stderr.read()
    hosts.shell("a", f"kill -TSTP $({LAUNCHER}); sleep {STOP_S}")
    states = [hosts.shell(host, STATES) for host in "ab"]
    hosts.shell("a", f"kill -CONT $({LAUNCHER})")
    output, errors = process.communicate(timeout=60)
    assert (states, process.returncode, output, errors) == (["T\n"] * 2, 0, "ends (0, 1)\n" * 2, "")
    hosts.until_clean()
