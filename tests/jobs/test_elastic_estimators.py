"""A job of partial_fit loops that grows and shrinks (malt run --elastic, malt.sklearn.average)."""

import json
import sys

import pytest
from failing_jobs import under_one_mpi

import malt

pytest.importorskip("sklearn")
pytestmark = pytest.mark.serial

FITS = """
import json, sys, time
import numpy as np
import malt
from malt.sklearn import average
from sklearn.linear_model import SGDClassifier

rng = np.random.default_rng(0)
X = rng.standard_normal((3000, 20))
y = np.sign(X @ rng.standard_normal(20) + 2 * rng.standard_normal(3000))
sizes = dict(zip((10, 20), json.loads(sys.argv[1])))
model = average(SGDClassifier(loss="log_loss", alpha=0.01, random_state=0))

def wait_until(condition):
    while not condition():
        malt.alive()
        time.sleep(0.01)

for epoch in malt.epochs(40):
    mine = malt.shard(len(X), shuffle=True, seed=epoch)
    print(json.dumps([epoch, mine.tolist()]), flush=True)
    for rows in np.array_split(mine, 6):
        model.partial_fit(X[rows], y[rows], classes=[-1, 1])
    if epoch in sizes:
        if malt.lowest():
            malt.scale(sizes[epoch])
        wait_until(lambda: malt.size() == sizes[epoch])
        if malt.rank() < sizes[epoch]:  # the others leave at their next epoch
            wait_until(lambda: len(malt.alive()) == malt.size())
        time.sleep(0.5)  # all have seen that size before the next one
model.finish()
margins = y * (X @ model.coef_.ravel() + model.intercept_[0])
print("ends", np.logaddexp(0, -margins).mean() + 0.005 * (model.coef_**2).sum(), flush=True)
"""


def said(output):
    """The rows by epoch, and the objectives at the end."""
    lines = output.splitlines()
    trained = [json.loads(line) for line in lines if line.startswith("[")]
    return trained, [float(line.split()[1]) for line in lines if line.startswith("ends")]


@under_one_mpi
@pytest.mark.thorough
def test_partial_fit_loops_grow_and_shrink(malt_run, monkeypatch, capsys):
    """To 2 ranks, and back to 1: each row of each epoch is trained once, and the objective the same."""
    found = malt_run(FITS, "[2, 1]", ranks=1, options=["--elastic", "1:2"])
    assert found.returncode == 0, found
    (trained, ends), says = said(found.stdout), found.stderr
    assert says.count("rank 1 has come") == says.count("rank 1 has left, as the job shrank") == 1, says
    assert says.count("malt: rank") == 2, says
    parts = [[len(rows) for at, rows in trained if at == epoch] for epoch in range(40)]
    assert max(map(len, parts)) == 2
    for epoch in range(40):
        assert sorted(row for at, rows in trained if at == epoch for row in rows) == list(range(3000)), (epoch, parts)
    monkeypatch.setattr(sys, "argv", ["program.py", "[]"])
    malt.simulate(lambda rank: exec(FITS, {}), 1)
    _, undisturbed = said(capsys.readouterr().out)
    assert len(ends) == 1 and ends[0] == pytest.approx(undisturbed[0], rel=0.01)
