"""`malt run --compare` with real jobs."""

import re
import subprocess
import sys

import pytest
from programs import ROOT

pytestmark = pytest.mark.serial
LOOP = """
import sys, malt
import numpy as np
assert sys.stdin.read() == ""
w = np.zeros(3)
with malt.Replica(w, every=5) as replica:
    for i in malt.shard(range(100)):
        w += 1
        replica.step()
malt.report(loss=0.5)
print("done")
"""


def test_a_program_on_one_rank_and_on_two(tmp_path, job_environment):
    """One round of each. What ranks print is not shown, and nothing is left."""
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "malt", "run", "--compare", "1,2", "--rounds", "1", "loop.py"], cwd=tmp_path,
        env={**job_environment, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp")}, input="read by none",
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"malt run: round 1 on 1 rank: \S+ s\nmalt run: round 1 on 2 ranks: \S+ s\n", done.stderr)
    head, _, titles, one, two, *_ = done.stdout.splitlines()
    assert head == "loop.py: one run each; x: times as good as on 1 rank"
    assert re.split(r" {2,}", titles) == ["ranks", "wall s", "training s", "counts/s", "s to loss 0.5"]
    number, ratio = r" +[\d,.]+", r" +[\d.]+ x"
    assert re.fullmatch(f"1{number * 4}", one) and re.fullmatch(f"2{(number + ratio) * 4}", two)
    assert list((tmp_path / "tmp").iterdir()) == []
