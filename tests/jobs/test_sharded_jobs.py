"""Sharded vectors in whole jobs: what is left of them when the session ends."""

from __future__ import annotations

import subprocess
import sys

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


def run(program, environment, ranks):
    command = [sys.executable, "-m", "malt", "run", "-n", str(ranks), "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


def test_a_view_that_is_kept_lasts_beyond_the_session(job_environment):
    done = run(KEPT, job_environment, 2)
    assert (done.returncode, done.stdout) == (0, "ends well 1000000\n" * 2), done.stderr
