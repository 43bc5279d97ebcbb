"""Jobs of several hosts that grow and shrink while they train (malt run --elastic, malt scale)."""

import json
import threading
from collections import Counter

from failing_jobs import under_one_mpi

pytestmark = under_one_mpi

TRAINS = """
import json, os, time
import numpy as np
import malt

def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, (malt.rank(), malt.alive(), malt.size())
        malt.alive()
        time.sleep(0.01)

def roster():
    with open(os.path.join(os.environ["MALT_JOB_DIR"], "roster")) as file:
        return json.load(file)

w = np.zeros(10)
replica = malt.Replica(w)
how = "leaves"
try:
    for epoch in malt.epochs(60):
        mine = malt.shard(100, shuffle=True, seed=epoch)
        print(json.dumps([epoch, mine.tolist() if isinstance(mine, np.ndarray) else [*range(100)][mine]]), flush=True)
        for row in mine:
            w += 1
            replica.step()
        if epoch == 10 and malt.rank() == 1:
            malt.scale(4)
        if 10 <= epoch < 40:  # else one that has come would be far ahead when the next one comes
            wait_until(lambda: len(roster()["begun"]) == 4)
        if epoch == 10:
            assert malt.alive() == (0, 1, 2, 3)
        if epoch == 40 and malt.rank() == 0:
            malt.scale(1)
        if epoch == 40:
            wait_until(lambda: malt.size() == 1)
        if epoch == 50 and malt.rank() == 0:
            wait_until(lambda: len(malt.alive()) == 1)
    how = "ends"
    replica.finish()
finally:
    print(how, malt.rank(), os.uname().nodename, malt.size(), malt.lost_ranks(), flush=True)
"""


def check_rows(lines):
    """Each row of each epoch was trained once; by epoch the number of ranks that have trained it."""
    trained = [json.loads(line) for line in lines if line.startswith("[")]
    for epoch in range(60):
        times = Counter(row for at, rows in trained if at == epoch for row in rows)
        assert times == Counter(range(100)), (epoch, lines)
    return Counter(at for at, _ in trained)


def test_a_job_grows_on_other_hosts_and_shrinks_and_trains_each_row_of_each_epoch_once(hosts):
    """It begins on two hosts, and has one rank more on the second and one on a third."""
    job = ["--elastic", "1:4", "-n", "2", "--survive=best-effort", "--hosts", "a:1,b:2,c:1", "-c", TRAINS]
    done = hosts.malt("a", *job, limit_s=120)
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    assert max(check_rows(lines).values()) == 4, done
    ends = ["ends 0 a 1 []", "leaves 1 b 1 []", "leaves 2 b 1 []", "leaves 3 c 1 []"]
    assert sorted(line for line in lines if not line.startswith("[")) == ends, done
    for rank in (1, 2, 3):
        assert f"malt: rank {rank} has left, as the job shrank; " in done.stderr, done
    hosts.until_clean()


TAKEN = (
    TRAINS.partition("        if epoch == 10 and")[0]
    + """
        if epoch == 10 and malt.rank() == 1:
            print("now", flush=True)
            wait_until(lambda: os.path.exists("/tmp/told"))
        elif epoch == 10:
            wait_until(lambda: roster()["departing"] == [[1, 0]])
        if epoch == 50:
            wait_until(lambda: malt.alive() == (0, 2))
    how = "ends"
    replica.finish()
finally:
    print(how, malt.rank(), os.uname().nodename, malt.size(), malt.lost_ranks(), flush=True)
"""
)
TAKE = """
for p in $(ps -e -o pid=); do
    [ $p = 1 ] || [ $p = $$ ] || [ $p = $(cat /run/sshd.pid) ] || kill -TERM $p 2>/dev/null
done
touch /tmp/told
"""


def test_the_ranks_of_a_host_that_is_taken_away_leave_in_order(hosts):
    """All of its processes get SIGTERM. They are not the last ranks: their rows are dealt to those before and after."""
    job = ["--elastic", "1:3", "-n", "3", "--survive=best-effort", "--hosts", "a:1,b:1,c:1", "-c", TAKEN]
    with hosts.start_malt("a", *job) as process:
        limit, lines = threading.Timer(120, process.kill), []
        limit.start()
        for line in process.stdout:
            lines.append(line.rstrip())
            if line == "now\n":
                hosts.shell("b", TAKE)
        errors = process.stderr.read()
    limit.cancel()
    assert process.returncode == 0, (lines, errors)
    check_rows(lines)
    assert {"ends 0 a 3 []", "ends 2 c 3 []"} < set(lines), (lines, errors)
    assert "malt: rank 1 has left, as it was told to (SIGTERM); 2 of 3 ranks continue" in errors
    assert "lost" not in errors
    hosts.shell("b", "rm -r /tmp/told /tmp/malt-*")  # what they have printed stays there
    hosts.until_clean()
