"""bench.hosts: trainings on hosts that slow links join, and their tables."""

import json
import subprocess
import sys

import pytest
from failing_jobs import under_one_mpi
from host_network import LIMIT_S, ROOT, missing

from bench.harness import datasets
from bench.hosts import trials

pytestmark = under_one_mpi


@pytest.mark.skipif(not datasets.RCV1.exists(), reason=datasets.NO_RCV1)
@pytest.mark.parametrize("part", ["link", "far"])
@pytest.mark.thorough
def test_the_quick_form_trains_and_prints_its_table(part, tmp_path):
    if why := missing():
        pytest.skip(why)
    words = [sys.executable, "-m", "bench.hosts", "--quick", "--only", part, "--json", str(tmp_path / "page.json")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=4 * LIMIT_S)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads((tmp_path / "page.json").read_text()).values()
    runs = found[part]
    assert len(runs) > 1 and all(run["seconds"] and run["wire"] for run in runs), runs
    if part == "link":  # 100 Mbit/s each way, and what the switch holds
        assert all(run["wire"] < 2 * (12.5e6 * run["seconds"] + 2e6) for run in runs), runs
    else:
        assert runs[0]["seconds"] > 0.04 * runs[0]["exchanges"], "an Allreduce is a round trip at least"
    assert all(f"| {run['way']} |" in done.stdout for run in runs)


PROCESS = """
import json, os, socket, sys
own = [socket.gethostname(), os.environ["RANK"], socket.gethostbyname(os.environ["MASTER_ADDR"])]
if own[1] == "0":
    json.dump(own, open(sys.argv[-1], "w"))
sys.exit(sys.argv[1] == own[0])
"""


@pytest.mark.thorough
def test_a_process_on_each_host_meets_the_others():
    if why := missing():
        pytest.skip(why)
    with trials.linked_hosts("ab", mbit=50) as network:
        found = trials.processes(network, sys.executable, ["-c", PROCESS, "nowhere"])
        assert found[:2] == ["a", "0"] and found[2] == network.shell("b", "getent hosts a").split()[0]
        for name in "ab":
            assert "rate 50Mbit" in network.shell(name, "tc qdisc show dev eth0")
            with pytest.raises(RuntimeError):
                trials.processes(network, sys.executable, ["-c", PROCESS, name])
