"""A program of which a rank is killed, started again, and comes back; and what such a job prints."""

import re

TRAINS = """
import os, signal, sys, time
import numpy as np
import malt

doomed, life = int(sys.argv[1]), int(os.environ.get("MALT_INCARNATION", "0"))
malt.init(deadline_s=30)
print("folder", os.environ["MALT_JOB_DIR"], flush=True)
events = f"{os.environ['MALT_JOB_DIR']}/events-{malt.rank()}"
is_ready = os.path.exists(events) and '"ready"' in open(events).read().rpartition('"again"')[2]
print("ready", malt.rank(), is_ready, flush=True)
came, nap_s = [], 0.002 if os.environ.get("MALT_FAULTS") == "long" else 0.02
malt.on_join(came.append)
w = {"a": np.zeros(100_000, np.float32), "n": np.array([malt.rank()])}
replica = malt.Replica(w, every=1, sync=sys.argv[2], average=sys.argv[3])
v = malt.vector(1000, sync="bsp")
print("begins", malt.rank(), malt.rejoined(), v.step > 0, bool(w["a"][0] > 1), int(w["n"][0]), flush=True)
together = 0
while v.array[1] < 1:  # the mean of all is 1
    w["a"] += 1
    replica.step()
    together = together + 1 if (came or malt.rejoined()) and len(malt.alive()) == malt.size() else 0
    v.array[:] = v.step + 1
    v.array[1] = together >= 50
    v.scatter()
    gathered = v.gather()
    assert set(gathered.steps) <= {v.step} and v.array[0] == v.array[-1] == v.step
    if v.step == 40 and life == 0 and malt.rank() == doomed:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(nap_s if v.step > 40 and not together else 0.002)  # the rank that starts needs the cores
lost = [(one.rank, one.back_at is not None) for one in malt.lost_ranks()]
print("ends", malt.rank(), gathered.senders, malt.shard(60), malt.alive(), lost, flush=True)
replica.finish()
print("model", malt.rank(), np.ptp(w["a"]) == 0, float(w["a"][0]), flush=True)
"""


def check(doomed, found, ranks=3, why="its process has ended"):
    """Such a job has ended well: its status, and what it has printed. `why`: why the rank was lost."""
    status, output = found
    on = f"of {ranks} ranks continue"
    assert status == 0, output
    assert "folder" in output
    assert output.count(f"malt: rank {doomed} is lost: {why}; {ranks - 1} {on}") == 1, output
    assert output.count(f"malt: rank {doomed} is back; {ranks} {on}") == 1, output
    assert f"ready {doomed} False" in output, output  # it is once the others have admitted it
    everyone, rows = tuple(range(ranks)), 60 // ranks
    for rank in everyone:
        assert f"begins {rank} False False False 0" in output
        lost = f"[({doomed}, True)]" if rank != doomed else "[]"
        mine = slice(rows * rank, rows * (rank + 1))
        assert re.search(re.escape(f"ends {rank} ") + ".*" + re.escape(f" {mine} {everyone} {lost}"), output), output
    assert f"begins {doomed} True True True 0" in output
    models = re.findall(r"model (\d) True (.*)", output)
    assert len(models) == ranks and len({value for _, value in models}) == 1
