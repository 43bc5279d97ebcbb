"""A part of a job on two hosts is killed by SIGKILL: the rest ends, or goes on with --survive. Nothing is left."""

import time

import pytest
from failing_jobs import under_one_mpi

RUNS = """
import os, time
import malt
malt.init(deadline_s=60)
v = malt.vector(1000, sync="asp")
malt.barrier()
print("running", flush=True)
while not os.path.exists("/tmp/over"):
    v.scatter()
    v.gather()
    time.sleep(0.05)
"""
LAUNCHER = "$(pgrep -f '[ ]-m malt run' | head -1)"
STARTS = f"ps -o pid=,args= --ppid {LAUNCHER} | grep -v -e '[ ]-I -S ' -e ssh | awk '{{print $1}}'"
"""The process by which the launcher has started the ranks of its host: mpiexec, or the starter."""
PARTS = {
    "the launcher": ("a", f"kill -KILL {LAUNCHER}"),
    "mpiexec": ("a", f"kill -KILL $({STARTS})"),
    "its agent": ("a", "pkill -KILL -f '[ ]-I -S '"),
    "an agent": ("b", "pkill -KILL -f '[m]alt-agent'"),
}
PLAIN = ["--survive=best-effort"]
REJOINS = [*PLAIN, "--rejoin"]
UNDER_MPI = [(part, []) for part in PARTS]
PLAIN_PARTS = [*((part, PLAIN) for part in PARTS if part != "an agent"), ("an agent", REJOINS)]
ENDS_S = 10.0


def named(value):
    """The part, or the options: ranks of MPI, survive or rejoin."""
    return value if isinstance(value, str) else (value or ["ranks of MPI"])[-1].strip("-").partition("=")[0]


@pytest.mark.parametrize(
    ("part", "options"), [*UNDER_MPI, *(pytest.param(*one, marks=under_one_mpi) for one in PLAIN_PARTS)], ids=named
)
@pytest.mark.thorough(but="an agent-rejoin")
def test_nothing_of_it_is_left(part, options, hosts):
    process = hosts.start_malt("a", "-n", "3", *options, "--hosts", "a:2,b:1", "-c", RUNS)
    assert [process.stdout.readline() for _ in range(3)] == ["running\n"] * 3, process.communicate(timeout=60)
    host, command = PARTS[part]
    began = time.monotonic()
    hosts.shell(host, command)
    goes_on = "ab" if part == "its agent" else "a" if host == "b" and options else ""
    if goes_on != "ab":
        hosts.until_clean(ENDS_S, "b" if goes_on else "ab")
    print(f"ended after {time.monotonic() - began:.1f} s")
    for one in goes_on:
        assert process.poll() is None and any("program.py" in line for line in hosts.left(one))
        hosts.shell(one, "touch /tmp/over")
    output, errors = process.communicate(timeout=60)
    assert bool(process.returncode) != bool(goes_on), (process.returncode, output, errors)
    ends_it = "malt run: the connection to host b has ended: the job is ended\n"
    assert (ends_it in errors) == (part == "an agent" and not options), errors
    for one in goes_on:
        hosts.shell(one, "rm /tmp/over")
    hosts.until_clean(ENDS_S, "ab")


@pytest.mark.thorough
def test_a_daemon_of_mpiexec_that_is_killed_leaves_nothing(hosts):
    """Open MPI's mpiexec ends the job. MPICH's does not see it, and the job goes on."""
    process = hosts.start_malt("a", "-n", "3", "--hosts", "a:2,b:1", "-c", RUNS)
    assert [process.stdout.readline() for _ in range(3)] == ["running\n"] * 3, process.communicate(timeout=60)
    hosts.shell("b", "pkill -KILL -f '[p]rted|[h]ydra_pmi_proxy'; touch /tmp/over")
    hosts.shell("a", "touch /tmp/over")
    process.communicate(timeout=3 * ENDS_S)
    for host in "ab":
        hosts.shell(host, "rm /tmp/over")
    hosts.until_clean(ENDS_S, "ab")
