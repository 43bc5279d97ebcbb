"""A job on two hosts ends soon after a rank has failed or all have ended, whatever mpiexec sees. Nothing is left."""

import time

import pytest
from host_network import ROOT

from malt.launch.hosts.agent.agent import SILENCE_S
from malt.launch.hosts.remote import CUT_OFF_S

PROGRAM = """
import os, sys, time
import malt
malt.init()
malt.vector(1000)
malt.barrier()
def until_asked():
    while not os.path.exists("/tmp/asked"):
        time.sleep(0.01)
    os.remove("/tmp/asked")
print("running", flush=True)
{}
"""
ASK = "touch /tmp/asked"
SOON_S = 20.0
"""Less than SILENCE_S, after which a host ends what runs there by itself."""


class Run:
    """A job of a rank on a and one on b."""

    def __init__(self, hosts, last_lines, environment=None):
        words = ["-n", "2", "--hosts", "a:1,b:1", "-c", PROGRAM.format(last_lines)]
        self.hosts, self._process = hosts, hosts.start_malt("a", *words, environment=environment)
        assert [self._process.stdout.readline() for _ in range(2)] == ["running\n"] * 2, self._process.stderr.read()

    def end(self, limit_s):
        """Its status, and what it printed on stderr. It must end within that time."""
        began = time.monotonic()
        _, errors = self._process.communicate(timeout=100)
        assert time.monotonic() - began < limit_s, errors
        return self._process.returncode, errors


def test_an_error_on_another_host_ends_the_job(hosts):
    status, errors = Run(hosts, "if malt.rank() == 1: raise KeyError('the reason')\ntime.sleep(60)").end(SOON_S)
    assert status == 1 and errors.rstrip().endswith("KeyError: 'the reason'")
    assert "malt run: rank 1" in errors
    hosts.until_clean()


EARLY = """
import os, time
if "1" in (os.environ.get("PMI_RANK"), os.environ.get("OMPI_COMM_WORLD_RANK")):
    time.sleep(0.2)
    raise KeyError("the reason")
import malt
malt.init()
"""


@pytest.mark.parametrize("at", [(), ("--hosts", "a:2,b:1")], ids=["one-host", "two-hosts"])
def test_what_mpi_made_for_ranks_that_were_killed_while_it_began_is_removed(at, hosts):
    done = hosts.malt("a", "-n", "3", *at, "-c", EARLY)
    assert done.returncode == 1 and "KeyError: 'the reason'" in done.stderr
    hosts.until_clean()


@pytest.mark.thorough
def test_a_rank_that_is_killed_on_another_host_ends_the_job(hosts):
    run = Run(hosts, "time.sleep(60)")
    hosts.shell("b", "pkill -KILL -f [r]unner/program.py")
    status, _ = run.end(SOON_S)
    assert status != 0
    hosts.until_clean()


@pytest.mark.thorough
@pytest.mark.parametrize(("last_lines", "limit_s", "ended", "line"), [
    ("time.sleep(100)", SOON_S, 1, f"nothing was heard of host b for {CUT_OFF_S:.0f} s, by a link that is down, say"),
    ("if malt.rank() == 0:\n    until_asked()\n    sys.exit(5)\ntime.sleep(100)", SOON_S, 5,
     "host b does not answer: what is left of the job there ends by itself"),
], ids=["no-failure", "a-failure"])  # fmt: skip
def test_the_job_ends_while_a_link_is_down(last_lines, limit_s, ended, line, hosts):
    run = Run(hosts, last_lines)
    hosts.link("b", "down")
    if ended == 5:
        hosts.shell("a", ASK)
    status, errors = run.end(limit_s)
    assert status == ended
    assert f"malt run: {line}" in errors
    hosts.until_clean(SILENCE_S + 5)
    hosts.link("b", "up")


@pytest.mark.thorough
def test_the_job_goes_on_while_a_host_is_busy(hosts):
    """Its agent and the daemons of ssh say nothing for longer than a link may be down. Its network answers."""
    run = Run(hosts, f"time.sleep({2 * CUT_OFF_S})")
    stopped = hosts.shell("b", "pgrep -f -- '-I -[c]'; pgrep -f 'sshd: [r]oot'").split()
    assert len(stopped) >= 2
    hosts.shell("b", f"kill -STOP {' '.join(stopped)}")
    time.sleep(1.5 * CUT_OFF_S)
    hosts.shell("b", f"kill -CONT {' '.join(stopped)}")
    status, errors = run.end(2 * SOON_S)
    assert status == 0 and "nothing was heard" not in errors
    hosts.until_clean()


@pytest.mark.thorough
def test_the_job_ends_when_all_ranks_have_and_mpiexec_has_not(hosts):
    run = Run(hosts, "if malt.rank() == 1: until_asked()")
    hosts.shell("b", "kill -STOP $(ps -e -o pid=,comm= | grep -E 'prted|hydra_pmi' | while read p c; do echo $p; done)")
    hosts.shell("b", ASK)
    status, errors = run.end(2 * SOON_S)
    assert status == 0
    assert "malt run: all ranks have ended, and mpiexec has not: the job is ended" in errors
    hosts.until_clean()


@pytest.mark.thorough
def test_a_rank_that_still_writes_after_its_program_is_waited_for(hosts):
    slow = (
        "class Slow:\n    def __del__(self, sleep=time.sleep, write=os.write):\n        sleep(9); write(2, b'written')"
    )
    run = Run(hosts, f"{slow}\nif malt.rank() == 1: slow = Slow()")
    status, errors = run.end(2 * SOON_S)
    assert status == 0 and errors.splitlines()[-1] == "written"  # mpiexec may have a warning before it
    hosts.until_clean()


@pytest.mark.thorough
def test_hosts_that_share_tmpdir_are_watched(hosts):
    shared = ROOT / "build" / "shared"
    shared.mkdir(parents=True, exist_ok=True)
    run = Run(hosts, "time.sleep(100)", {"TMPDIR": str(shared)})
    hosts.shell("a", "kill -KILL $(ps -e -o pid=,args= | grep '[m]alt run' | head -1 | cut -c1-8)")
    run.end(2 * SOON_S)
    hosts.until_clean(SOON_S, "b")
    assert not list(shared.iterdir())


@pytest.mark.thorough
def test_a_signal_to_the_launcher_leaves_nothing_on_any_host(hosts):
    run = Run(hosts, "time.sleep(100)")
    hosts.shell("a", "kill -INT $(ps -e -o pid=,args= | grep '[m]alt run' | head -1 | cut -c1-8)")
    run.end(2 * SOON_S)
    hosts.until_clean(SOON_S)
