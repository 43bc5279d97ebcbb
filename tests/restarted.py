"""A program whose last rank is killed in epoch 6, once, and that goes on from its checkpoint when it is restarted."""

RESUMES = """
import os, signal, sys
import numpy as np
import malt
checkpoint = malt.Checkpoint(sys.argv[1])
state = checkpoint.load() or {"w": np.zeros(4), "epoch": 0}
w, first = state["w"], int(state["epoch"])
if malt.lowest():
    print("begins at", first, flush=True)
replica = malt.Replica(w, every=1, sync="bsp", graph="all")
for epoch in range(first, 10):
    checkpoint.save({"w": w, "epoch": epoch}, force=True)
    malt.barrier()
    if epoch == 6 and first == 0 and malt.rank() == malt.size() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    w += 2.0 * epoch * (malt.rank() + 1)
    replica.step()
replica.finish()
if malt.lowest():
    print("ends with", w, flush=True)
"""
