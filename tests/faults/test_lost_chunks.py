"""A rank of a real job is killed in the function of malt.map_reduce: others do its chunks, with the same bits."""

import pytest
from failing_jobs import under_one_mpi

pytestmark = [pytest.mark.serial, under_one_mpi]

PROGRAM = """
import os, signal, sys
import malt
import numpy as np

malt.init(survive=True)
rows = np.random.default_rng(0).normal(size=(3000, 40))
rows.flags.writeable = False
calls = 0

def products(theta, some):
    global calls
    calls += 1
    if malt.rank() == 2 and calls == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    return float((some @ theta).sum()), np.outer(some.sum(0), np.arange(1000.0))

found = set()
for turn in range(6):
    total, whole = malt.map_reduce(products, np.arange(40.0), rows if malt.rank() == 0 else None)
    found.add((total, whole.tobytes()))
assert len(found) == 1 and malt.alive() == (0, 1, 3), (len(found), malt.alive())
np.testing.assert_allclose(whole, np.outer(rows.sum(0), np.arange(1000.0)), rtol=1e-9, atol=1e-6)
before = malt.init().chunk_statistics().bytes_sent
malt.map_reduce(products, np.arange(40.0), rows if malt.rank() == 0 else None)
assert malt.init().chunk_statistics().bytes_sent == before
print("goes on", flush=True)
"""


@pytest.mark.thorough
def test_the_others_do_its_chunks(malt_run):
    """At other calls: tests/pure/malt/data/test_mapreduce.py."""
    done = malt_run(PROGRAM, 13, ranks=4, options=["--survive"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("goes on") == 3, done.stdout
