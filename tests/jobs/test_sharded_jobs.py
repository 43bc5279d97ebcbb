"""Sharded vectors in whole jobs: what is left of them when the session ends."""

import re

import pytest

pytestmark = pytest.mark.serial

KEPT = """
import malt
s = malt.sharded(1_000_000)
s.fill(3)
kept = s.local[::2] if malt.rank() == 1 else None
malt.finalize()
t = malt.sharded(1_000_000)
t.fill(7)
assert kept is None or (kept == 3).all()
print("ends well", t.nnz())
"""


def test_a_view_that_is_kept_lasts_beyond_the_session(malt_run):
    done = malt_run(KEPT, ranks=2)
    assert (done.returncode, done.stdout) == (0, "ends well 1000000\n" * 2), done.stderr


CONTENDED = """
import os, subprocess, sys
import malt
s = malt.sharded(10, "float64")
malt.barrier()
words = [sys.executable, "-c", "while True: pass"]
busy = [subprocess.Popen(words) for _ in range(os.cpu_count() if malt.lowest() else 0)]
try:
    for _ in range(300):
        s.push([1.0 + malt.rank()], [7])
    malt.barrier()
finally:
    for process in busy:
        process.kill()
        process.wait()
assert s.pull([7]) == 300 * (1 + 2 + 3 + 4) == s.sum()
x, y = malt.sharded(1_000_000), malt.sharded(1_000_000)
x.fill(1), y.fill(2)
before = x.statistics(), y.statistics()
assert x.dot(y) == 2_000_000
after = x.statistics(), y.statistics()
moved = [now.bytes_sent + now.bytes_read - then.bytes_sent - then.bytes_read for now, then in zip(after, before)]
assert sum(moved) <= 8 * malt.size()
print("ends well", flush=True)
"""


@pytest.mark.thorough
def test_pushes_into_one_element_are_exact_under_load_and_a_scalar_product_moves_scalars(malt_run):
    done = malt_run(CONTENDED, ranks=4)
    assert (done.returncode, done.stdout) == (0, "ends well\n" * 4), done.stderr


LARGE = """
import malt
import numpy as np

def resident():
    with open("/proc/self/smaps_rollup") as lines:
        return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Rss:"))

malt.barrier()
before = resident()
s = malt.sharded(200_000_000)
s.fill(3)
s.scale(2)
malt.barrier()  # before others push into it
s.push(np.ones(1000), np.arange(1000) * 200_000)
malt.barrier()
assert s.nnz() == 200_000_000 and s.max() == 6 + malt.size() and s.norm() > 0
print("grew by", (resident() - before) / 800_000_000, flush=True)
s.pull([199_999_999])
"""


@pytest.mark.thorough
def test_a_rank_holds_its_part_of_a_large_vector_alone(malt_run):
    """Also what it shares counts in full: each page of its own part, and of others' that it has touched."""
    done = malt_run(LARGE, ranks=4)
    assert done.returncode == 0, done.stderr
    grown = [float(share) for share in re.findall("grew by (.*)", done.stdout)]
    assert len(grown) == 4 and max(grown) <= 0.25 * 1.1, grown
