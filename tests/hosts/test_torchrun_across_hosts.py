"""Jobs that a torchrun on each of two hosts starts: who knows MALT_KEY takes part, and a failure ends all of it."""

import importlib.util
import re
import sys
import time

import pytest
from failing_jobs import under_one_mpi
from host_network import ROOT
from processes import wait_for
from restarted import RESUMES

pytestmark = [
    under_one_mpi, pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra torch")
]  # fmt: skip

KEY = "0f" * 32
LIMIT_S = 200
OF_TORCH, OF_JOB = "/tmp/torchelastic_", "/tmp/malt-torchrun-"


STARTER = """
import os, subprocess, sys
first = int(sys.argv[1])
ours = {"MASTER_ADDR": "a", "MASTER_PORT": "29577", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
ranks = [
    subprocess.Popen([sys.executable, "-c", *sys.argv[2:]], env={
        **os.environ, **ours, "RANK": str(first + rank), "LOCAL_RANK": str(rank)
    }) for rank in range(2)
]
sys.exit(max(one.wait() for one in ranks))
"""
"""Starts two ranks of a host as torchrun does, which imports PyTorch, which takes longer than these tests."""


def started(hosts, program, *arguments, keys=(KEY, KEY), options=None):
    """The processes that start 2 ranks each on a and on b, by host. torchrun, if there are `options` for it."""
    words = ["--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "a:29400"]
    words += ["--rdzv-id", "job", *(options or ()), "--no-python", sys.executable, "-c"]
    processes = {}
    for number, (host, key) in enumerate(zip("ab", keys, strict=True)):
        environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | ({"MALT_KEY": key} if key else {})
        starter = ["-c", STARTER, 2 * number] if options is None else ["-m", "torch.distributed.run", *words]
        command = [sys.executable, *starter, program, *arguments]
        processes[host] = hosts.start(host, *command, folder=ROOT, environment=environment)
    return processes


@pytest.fixture
def torchrun(hosts):
    """torchrun(program, *arguments, ...): both jobs at their end, by host: status, stdout and stderr."""

    def run(program, *arguments, keys=(KEY, KEY), options=None):
        processes = started(hosts, program, *arguments, keys=keys, options=options)
        outputs = {host: process.communicate(timeout=LIMIT_S) for host, process in processes.items()}
        for said in outputs.values():
            assert not any(key and key in "".join(said) for key in keys)
        return {host: (processes[host].returncode, *said) for host, said in outputs.items()}

    return run


def until_clean(hosts, killed=False):
    """Wait until nothing is left of jobs, but for what torch leaves.

    `killed`: torchrun may have ended the ranks of a host before one removed the folder of the job, which is small.
    """
    for host in hosts.names:
        hosts.shell(host, f"rm -rf {OF_TORCH}* /tmp/torchinductor*")
        if killed:
            wait_for(lambda host=host: all(one.startswith(OF_JOB) for one in hosts.left(host)))
            sizes = hosts.shell(host, f"find {OF_JOB}* -type f -printf '%s\\n' 2>/dev/null || :").split()
            assert sum(map(int, sizes)) < 100_000
            hosts.shell(host, f"rm -rf {OF_JOB}*")
    hosts.until_clean()


TRAINS = """
import os, sys
import numpy as np
import malt
w = np.zeros(4)
replica = malt.Replica(w, every=1, sync="bsp")
for step in range(20):
    w += (malt.rank() + 1) * step
    replica.step()
replica.finish()
print("rank", malt.rank(), malt.size(), os.uname().nodename, w[0], os.environ.get("MALT_KEY"), flush=True)
first = malt.allgather(malt.rank())
malt.finalize()
again = malt.allgather(malt.rank())
if malt.lowest():
    print("again", first, again, malt.init().survive, flush=True)
else:
    malt.lowest()
"""
"""Of two sessions."""


def test_ranks_of_two_hosts_train(torchrun, hosts):
    done = torchrun(TRAINS)
    assert [status for status, *_ in done.values()] == [0, 0], done
    said = sorted("".join(output for _, output, _ in done.values()).splitlines())
    assert said == ["again [0, 1, 2, 3] [0, 1, 2, 3] False"] + [
        f"rank {rank} 4 {'aabb'[rank]} 475.0 None" for rank in range(4)
    ], done
    until_clean(hosts)


@pytest.mark.thorough
def test_without_a_key_or_with_a_short_one_it_is_refused_with_the_remedy(torchrun, hosts):
    done = torchrun("import malt\nmalt.init()\nprint('begun')", keys=("", "short"))
    for status, output, errors in done.values():
        assert status == 1 and output == ""
        assert "between hosts malt admits only those that know a key: set MALT_KEY to the same secret" in errors
        assert "or start with malt run -n 4 --hosts HOST,HOST..." in errors
    until_clean(hosts)


WRONG = """
import malt
malt.init(deadline_s=20)
print("begun")
"""


@pytest.mark.thorough
def test_a_wrong_key_is_dropped_and_named(torchrun, hosts):
    done = torchrun(WRONG, keys=(KEY, "f0" * 32))
    assert [(status, output) for status, output, _ in done.values()] == [(1, ""), (1, "")], done
    address = hosts.shell("b", "ip -4 -o addr show eth0").split()[3].partition("/")[0]
    assert done["a"][2].count(f"malt: rank 0 has dropped a connection from {address} with a wrong MALT_KEY") == 1
    assert re.search(r"malt.init: the deadline passed waiting for rank 2 .*, rank 3 ", done["a"][2])
    assert re.search(r"rank 0 at a:\d+ has dropped the connection of rank [23]: it has another MALT_KEY", done["b"][2])
    until_clean(hosts)


FAILS = """
import os, signal, sys, time
import numpy as np
import malt
w = np.zeros(10)
replica = malt.Replica(w, every=1, sync="asp")
for step in range(100_000):
    w += 1
    replica.step()
    time.sleep(0.01)
    if step == 50 and malt.rank() == int(sys.argv[2]):
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
replica.finish()
print("trained without it")
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("how", "rank"), [("killed", "3"), ("left", "0")])
def test_a_rank_that_fails_ends_the_job_on_both_hosts(how, rank, torchrun, hosts):
    done = torchrun(FAILS, how, rank, options=[])
    assert [(status, output) for status, output, _ in done.values()] == [(1, ""), (1, "")], done
    assert re.search(rf"malt: rank {rank} is lost: .*; the job ends", done["a"][2]), done
    until_clean(hosts, killed=True)


@pytest.mark.thorough
def test_a_restart_goes_on_from_the_checkpoint(torchrun, hosts):
    """Each host counts its restarts: these numbers differ."""
    done = torchrun(RESUMES, "/tmp/state.ckpt", options=["--max-restarts", "2"])
    said = "".join(output for _, output, _ in done.values()).splitlines()
    assert said == ["begins at 0", "begins at 6", "ends with [225. 225. 225. 225.]"], done
    hosts.shell("a", "rm /tmp/state.ckpt")
    until_clean(hosts, killed=True)


@pytest.mark.thorough
def test_where_hosts_lose_each_other_the_ranks_of_both_end(hosts):
    processes = started(hosts, FAILS, "never", "-1")
    while not all(any(one.startswith("/tmp/malt-torchrun-") for one in hosts.left(host)) for host in "ab"):
        time.sleep(0.5)
    time.sleep(5)
    hosts.link("b", "down")
    end = time.monotonic() + 60
    while any(one.startswith(f"{sys.executable} -c") for host in "ab" for one in hosts.left(host)):
        assert time.monotonic() < end
        time.sleep(0.5)
    hosts.end_jobs()  # torchrun waits for its other
    said = {host: process.communicate(timeout=LIMIT_S)[1] for host, process in processes.items()}
    for host, ranks in {"a": "23", "b": "01"}.items():
        for rank in ranks:
            line = f"malt: rank {rank} is lost: nothing is heard of it: it has ended, or is cut off; the job ends"
            assert line in said[host], said
