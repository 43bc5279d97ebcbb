"""Jobs on several hosts that each start by themselves: what may fail, and what goes on."""

import re
import time

import pytest
from failing_jobs import under_one_mpi

pytestmark = under_one_mpi

TRAINS = """
import os, sys, time
import numpy as np
import malt

malt.init(suspect_after_s={suspect_after_s}, deadline_s=60)
v = malt.vector(1000, sync="asp")
print("begun", malt.rank(), malt.size(), os.uname().nodename, flush=True)
malt.barrier()
while {goes_on}:
    v.array += 1
    v.scatter()
    v.gather()
    time.sleep(0.01)
malt.barrier()
print("ends", malt.rank(), malt.alive(), len(os.environ.get("MALT_RANK")), flush=True)
"""


def trains(goes_on="v.step < 50", suspect_after_s=2):
    """A program that trains as long as that is true."""
    return TRAINS.format(goes_on=goes_on, suspect_after_s=suspect_after_s)


def words(at, ranks, program):
    return ["-n", str(ranks), "--survive=best-effort", "--hosts", at, "-c", program]


def ends(output):
    return sorted(line for line in output.splitlines() if line.startswith("ends"))


def test_ranks_of_hosts_that_start_by_themselves_train(hosts):
    done = hosts.malt("a", *words("a:1,b:2,c:1", 4, trains()))
    assert done.returncode == 0, done.stderr
    begun = {line for line in done.stdout.splitlines() if line.startswith("begun")}
    assert begun == {"begun 0 4 a", "begun 1 4 b", "begun 2 4 b", "begun 3 4 c"}, done.stderr
    assert ends(done.stdout) == [f"ends {rank} (0, 1, 2, 3) 1" for rank in range(4)]
    hosts.until_clean()


READS = """
import sys
import malt
if malt.rank() == 0:
    print(sys.stdin.readline(), end="", flush=True)
else:
    print("nothing" if not sys.stdin.read() else "something", flush=True)
"""


@pytest.mark.parametrize(("at", "reads"), [("a:1,b:1", "first\n"), ("b:2", "")], ids=["here", "elsewhere"])
def test_rank_0_reads_the_input_if_it_is_on_the_launchers_host(at, reads, hosts, tmp_path):
    """It reads the file itself: what it leaves is there for what follows."""
    (tmp_path / "lines").write_text("first\nsecond\n")
    with open(tmp_path / "lines", "rb", buffering=0) as lines:
        process = hosts.start_malt("a", *words(at, 2, READS), stdin=lines)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0 and output.replace("nothing\n", "") == reads, (output, errors)
        assert "nothing\n" in output and "something" not in output
        assert bool(reads) or lines.read() == b"first\nsecond\n"
    hosts.until_clean()


@pytest.mark.parametrize(("end", "status"), [("os._exit(5)", 5), ("os.kill(os.getpid(), 9)", 137)])
def test_how_ranks_of_another_host_end_without_a_word_is_the_status(end, status, hosts):
    done = hosts.malt("a", *words("b:2", 2, f"import os, malt\nmalt.init()\nmalt.barrier()\n{end}"))
    assert done.returncode == status
    assert done.stderr.endswith("malt run: ranks 0, 1 ended without a word: killed, or by os._exit\n")
    hosts.until_clean()


@pytest.mark.parametrize("lost", ["a rank", "an agent", "a host", "a cable"])
@pytest.mark.thorough(but="a host")
def test_the_others_go_on(lost, hosts):
    """Ranks 0 and 1 on the launcher's host, 2 on b."""
    process = hosts.start_malt("a", *words("a:2,b:1", 3, trains("len(malt.alive()) > 2")))
    await_begun(process, 3)
    if lost == "a rank":
        hosts.shell("b", "pkill -KILL -f 'runner/[p]rogram.py'")
    elif lost == "an agent":
        hosts.shell("b", "pkill -KILL -f '[m]alt-agent'")
    elif lost == "a host":
        hosts.shell("b", KILL_ALL)
    else:
        hosts.link("b", "down")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and ends(output) == ["ends 0 (0, 1) 1", "ends 1 (0, 1) 1"], (output, errors)
    hosts.link("b", "up")
    hosts.until_clean(60, names="ac" if lost == "a host" else None)


@pytest.mark.parametrize("suspect_after_s", [2, None])
@pytest.mark.thorough(but="2")
def test_where_the_launcher_is_cut_off_the_others_go_on(suspect_after_s, hosts):
    program = trains("not os.path.exists('/tmp/over')", suspect_after_s)
    process = hosts.start_malt("a", *words("a:1,b:2", 3, program))
    await_begun(process, 3)
    hosts.link("a", "down")
    began = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and time.monotonic() - began < 25, (time.monotonic() - began, errors)
    line = re.search(
        r"ranks 1, 2 may continue on host b, and print to (\S+) there; to end them: ssh b (kill -HUP -- -\d+)$",
        errors,
        re.M,
    )
    assert line and "the job is ended" not in errors, errors
    assert hosts.shell("b", f"ps -o pid= -g {line[2].rpartition('-')[2]} | wc -l").strip() != "0"
    hosts.shell("b", "touch /tmp/over")
    end = time.monotonic() + 60
    while ends(hosts.shell("b", f"cat {line[1]}")) != ["ends 1 (1, 2) 1", "ends 2 (1, 2) 1"]:
        assert time.monotonic() < end, hosts.shell("b", f"cat {line[1]}; ps -ef")
        time.sleep(0.5)
    hosts.shell("b", f"rm -r /tmp/over $(dirname {line[1].partition('*')[0]}x)")
    hosts.link("a", "up")
    hosts.until_clean(60)


SAVES = """
import sys, time, malt
malt.init()
malt.barrier()
print("begun", flush=True)
try:
    time.sleep(100)
except KeyboardInterrupt:
    if malt.rank() == int(sys.argv[1]):
        time.sleep(6)  # longer than it takes to give up a host
        print("saved", flush=True)
"""


@pytest.mark.parametrize(("at", "slow", "options"), [
    ("a:1,b:2", 0, ()), ("a:1,b:2", 2, ("--rejoin",)), ("a:1,b:1,c:1", 2, ()), ("b:2,a:1", 1, ()),
], ids=["here", "rejoin", "alone", "beside another"])  # fmt: skip
@pytest.mark.thorough(but="rejoin")
def test_at_ctrl_c_a_rank_has_the_time_to_save(at, slow, options, hosts):
    process = hosts.start_malt("a", *options, *words(at, 3, SAVES), slow)
    await_begun(process, 3)
    hosts.shell("a", "kill -INT $(pgrep -f '[ ]-m malt run' | head -1)")
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (130, "saved\n"), errors
    assert "leaves" not in errors
    hosts.until_clean()


KILL_ALL = """
for p in $(ps -e -o pid=); do
    [ $p = 1 ] || [ $p = $$ ] || [ $p = $(cat /run/sshd.pid) ] || kill -KILL $p 2>/dev/null || :
done
"""


def await_begun(process, ranks):
    """Wait until so many ranks have begun; what they print so far is read."""
    for _ in range(ranks):
        line = process.stdout.readline()
        assert line.startswith("begun"), (line, process.communicate(timeout=60))
