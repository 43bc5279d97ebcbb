"""Jobs of several hosts that grow and shrink while they train (malt run --elastic, malt scale)."""

from __future__ import annotations

import json
from collections import Counter

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

def begun():
    with open(os.path.join(os.environ["MALT_JOB_DIR"], "roster")) as file:
        return json.load(file)["begun"]

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
        if epoch == 10:
            wait_until(lambda: len(begun()) == 4)
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


def test_a_job_grows_on_other_hosts_and_shrinks_and_trains_each_row_of_each_epoch_once(hosts):
    """It begins on two hosts, and has one rank more on the second and one on a third."""
    job = ["--elastic", "1:4", "-n", "2", "--survive=best-effort", "--hosts", "a:1,b:2,c:1", "-c", TRAINS]
    done = hosts.malt("a", *job, limit_s=120)
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    trained = [json.loads(line) for line in lines if line.startswith("[")]
    for epoch in range(60):
        times = Counter(row for at, rows in trained if at == epoch for row in rows)
        assert times == Counter(range(100)), (epoch, done)
    assert max(Counter(at for at, _ in trained).values()) == 4, done
    ends = ["ends 0 a 1 []", "leaves 1 b 1 []", "leaves 2 b 1 []", "leaves 3 c 1 []"]
    assert sorted(line for line in lines if not line.startswith("[")) == ends, done
    for rank in (1, 2, 3):
        assert f"malt: rank {rank} has left, as the job shrank; " in done.stderr, done
    hosts.until_clean()
