"""Ranks of several hosts that fail are started again, and come back (`malt run --rejoin`)."""

import re
import time

import pytest
from failing_jobs import under_one_mpi
from rejoining import TRAINS, check

pytestmark = under_one_mpi

LIVES = """
import os, sys, time
rank, life = os.environ["MALT_RANK"], os.environ.get("MALT_INCARNATION", "0")
print("life", rank, life, flush=True)
if rank == "0":
    sys.exit()
while life == "0" and not os.path.exists("/tmp/over"):
    time.sleep(0.01)
print("ends", rank, life)
"""


def words(at, program):
    return ["-n", "3", "--survive=best-effort", "--rejoin", "--hosts", at, "-c", program]


@pytest.mark.thorough
def test_ranks_are_started_again_also_where_the_launcher_is_cut_off_and_all_ends_with_the_ranks(hosts):
    process = hosts.start_malt("a", *words("a:1,b:2", LIVES))
    for _ in range(3):
        assert process.stdout.readline().startswith("life")
    hosts.link("a", "down")
    _, errors = process.communicate(timeout=60)
    place = re.search(r"ranks 1, 2 may continue on host b, and print to (\S+) there", errors)
    assert process.returncode == 1 and place, errors
    hosts.shell("b", "pkill -KILL -o -f 'runner/[p]rogram.py'")
    for life in (1, 0):
        end = time.monotonic() + 60
        while not re.search(f"^ends [12] {life}$", printed := hosts.shell("b", f"cat {place[1]}"), re.M):
            assert time.monotonic() < end, printed
            time.sleep(0.2)
        hosts.shell("b", "touch /tmp/over")
    hosts.shell("b", f"rm -r /tmp/over $(dirname {place[1].partition('*')[0]}x)")
    hosts.link("a", "up")
    hosts.until_clean(60)


CUT_OFF = "nothing is heard of it: it has ended, or is cut off"
ENDED = "its process has ended"


@pytest.mark.parametrize(("at", "ranks", "doomed", "sync", "why"), [
    ("a:2,b:2", 4, 3, "bsp", ENDED), ("a:2,b:1", 3, 0, "bsp", ENDED), ("a:1,b:1,c:1", 3, 2, "asp", CUT_OFF),
])  # fmt: skip
@pytest.mark.thorough(but="a:2,b:2-4-3-bsp-its process has ended")
def test_a_rank_that_was_killed_comes_back(at, ranks, doomed, sync, why, hosts):
    job = ["-n", ranks, "--survive=best-effort", "--rejoin", "--hosts", at, "-c", TRAINS, doomed, sync, "delta"]
    done = hosts.malt("a", *job)
    check(doomed, (done.returncode, done.stdout + done.stderr), ranks, why)
    hosts.until_clean()


AGAIN = """
import os, signal, sys, time
import numpy as np
import malt
life, start = int(os.environ.get("MALT_INCARNATION", "0")), float(sys.argv[1])
until = start + 24
malt.init(deadline_s=30)
v = malt.vector(1000, sync="bsp")
while time.time() < until or v.array[1] < 1:
    # The mean of all is 1 once all agree that it is over. A rank may take long to come back on a busy machine.
    over = time.time() > until and len(malt.alive()) == malt.size()
    v.array[:] = v.step + 1
    v.array[1] = over
    v.scatter()
    v.gather()
    assert v.array[0] == v.array[-1] == v.step
    time.sleep(0.01)
    if time.time() > start + {(0, 0): 3, (1, 0): 10, (0, 1): 17}.get((malt.rank(), life), 99):
        os.kill(os.getpid(), signal.SIGKILL)
malt.barrier()
print("ends", malt.rank(), v.step, malt.alive(), life, flush=True)
"""


@pytest.mark.thorough
def test_ranks_are_killed_again_and_again(hosts):
    """Ranks 0, 1, and 0 again: the lowest one, and one of another host."""
    job = ["-n", 4, "--survive=best-effort", "--rejoin", "--hosts", "a:1,b:1,c:2", "-c", AGAIN, time.time()]
    done = hosts.malt("a", *job, limit_s=90)
    assert done.returncode == 0, done
    ends = [line.split() for line in done.stdout.splitlines() if line.startswith("ends")]
    assert len(ends) == 4 and len({one[2] for one in ends}) == 1, done
    assert sorted(int(one[-1]) for one in ends) == [0, 0, 1, 2], done.stderr
    hosts.until_clean()
