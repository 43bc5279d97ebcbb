"""A rank of a real job is killed in the middle of a collective: the live ranks get the same result, and go on."""

import pytest
from failing_jobs import under_one_mpi

pytestmark = [pytest.mark.serial, under_one_mpi]

PROGRAM = """
import os, signal, threading
import malt
import numpy as np
from dstorm.membership.collectives.mailboxes import PIECE_NBYTES

malt.init(survive=True)
array = np.empty(20 * PIECE_NBYTES // 8)
turns = 0
while True:
    if malt.rank() == 2 and turns == 2:
        def kill_in_the_middle(number, frame):
            os.kill(os.getpid(), signal.SIGKILL)
        signal.signal(signal.SIGALRM, kill_in_the_middle)
        signal.setitimer(signal.ITIMER_REAL, 0.005)
    array[:] = 2.0 ** malt.rank()
    malt.allreduce(array, "sum")
    turns += 1
    assert (array == array[0]).all() and array[0] in (15, 11), array
    if array[0] == 11:
        break
assert malt.allgather(malt.rank()) == [0, 1, None, 3]
shapes = [None if one is None else one.shape for one in malt.allgather(np.zeros(malt.rank()))]
assert shapes == [(0,), (1,), None, (3,)], shapes
try:
    malt.broadcast(array, root=2)
    raise SystemExit("not reports")
except malt.PeerLost as error:
    assert error.rank == 2 and (array == 11).all()
array[:] = malt.rank()
malt.broadcast(array, root=3)
assert (array == 3).all()
assert malt.together(malt.rank) == malt.rank() and malt.lowest() == (malt.rank() == 0)
print("goes on", flush=True)
"""


def test_the_others_go_on(malt_run):
    done = malt_run(PROGRAM, ranks=4, options=["--survive"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("goes on") == 3, done.stdout
    assert "rank 2 is lost" in done.stderr
