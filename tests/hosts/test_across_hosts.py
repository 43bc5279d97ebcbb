"""Jobs on several hosts, each with a network, a file system for /tmp and /dev/shm, and an ssh daemon of its own."""

import re

import pytest
from host_network import ROOT

WHERE = "import malt, os; malt.init(); print(malt.rank(), malt.size(), os.uname().nodename, flush=True)"


def test_ranks_are_where_they_were_asked_for(hosts):
    done = hosts.malt("a", "-n", "5", "--hosts", "c:1,a:2,b:2", "-c", WHERE)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 5 c", "1 5 a", "2 5 a", "3 5 b", "4 5 b"]
    hosts.until_clean()


READS = """
import malt, os
print(os.read(0, 6).decode() if malt.rank() == 0 else "nothing" if not os.read(0, 1) else "something", flush=True)
"""


@pytest.mark.parametrize("at", ["a:1,b:1", "b:1,a:1"], ids=["here", "elsewhere"])
def test_rank_0_reads_the_input(at, hosts, tmp_path):
    """Where it is on the launcher's host, what it leaves is there for what follows."""
    (tmp_path / "lines").write_text("first\nsecond\n")
    with open(tmp_path / "lines", "rb", buffering=0) as lines:
        process = hosts.start_malt("a", "-n", "2", "--hosts", at, "-c", READS, stdin=lines)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0 and sorted(output.split()) == ["first", "nothing"], (output, errors)
        assert at.startswith("b") or lines.read() == b"second\n"
    hosts.until_clean()


PULLS = """
import malt, time
from bench.hosts.wire import sent_by_host
s = malt.sharded(1 << 18, "float64")
malt.barrier()
before = sent_by_host()
malt.barrier()  # no rank has pulled from a host that has not read its counter
for _ in range(10):
    s.pull()
malt.barrier()
sent, counted = sum(malt.allgather(sent_by_host() - before)), sum(malt.allgather(s.statistics().bytes_across))
if malt.lowest():
    print(counted / 10, sent / counted)
"""


def test_a_pull_moves_its_bytes_once(hosts):
    """Open MPI by itself sends requests as long as what they ask for."""
    done = hosts.malt("a", "-n", "2", "--hosts", "a:1,b:1", "-c", PULLS)
    assert done.returncode == 0, done.stderr
    counted, ratio = map(float, done.stdout.split())
    assert 1 << 21 <= counted < 1.01 * (1 << 21) and 1 < ratio < 1.1
    hosts.until_clean()


@pytest.mark.thorough
def test_a_program_trains_as_on_one_host(hosts):
    """On few rows, whose kernels are interpreted: a host would compile for longer than it trains."""
    data = ROOT / "build" / "few.svm"
    data.parent.mkdir(exist_ok=True)
    data.write_text("".join(f"{1 - 2 * (k % 3 > 0)} {1 + k % 5}:{k % 7} {7 + k % 2}:1\n" for k in range(200)))
    words, interpreted = ["-m", "apps.svm", data, "--sync", "bsp", "--epochs", "2"], {"NUMBA_DISABLE_JIT": "1"}
    across = hosts.malt("a", "-n", "3", "--hosts", "a:2,b:1", *words, environment=interpreted)
    assert across.returncode == 0, across.stderr
    alone = hosts.malt("a", "-n", "3", *words, environment=interpreted)
    final = re.compile("^final: .*", re.M)
    assert final.findall(across.stdout) == final.findall(alone.stdout) != []
    data.unlink()
    hosts.until_clean()
