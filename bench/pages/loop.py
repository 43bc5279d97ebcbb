"""A training loop of which rank 3 takes twice as long as the others: what the pictures of reports and of a view show.

malt run -n 4 -m bench.pages.loop SYNC GRAPH [STEP_S FATAL_STEP]

STEP_S: what a step takes. In FATAL_STEP rank 2 kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

import malt

ROWS, FEATURES, STEPS, BATCH, REPORT_EVERY, SLOW, KILLED = 40_000, 100, 400, 25, 20, 3, 2


def main(sync: str, graph: str, step_s: str = "0.002", fatal_step: str = "-1") -> None:
    """Train logistic regression on rows generated from a seed. Collective."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, FEATURES))
    y = np.sign(X @ rng.standard_normal(FEATURES) + 3 * rng.standard_normal(ROWS))
    mine = malt.shard(ROWS)
    X, y = X[mine], y[mine]
    v = malt.vector(FEATURES, graph=graph, sync=sync)
    for step in malt.progress(range(STEPS)):
        batch = slice(step * BATCH % len(X), step * BATCH % len(X) + BATCH)
        slope = -y[batch] / (1 + np.exp(y[batch] * (X[batch] @ v.array)))
        v.array[:] -= 0.005 * slope @ X[batch]
        time.sleep(float(step_s) * (1 + (malt.rank() == SLOW)))
        v.scatter()
        v.gather()
        if step % REPORT_EVERY == REPORT_EVERY - 1:
            malt.report(examples=BATCH * (step + 1))
            if malt.rank() == 0:
                malt.report(loss=float(np.log1p(np.exp(-y[:2000] * (X[:2000] @ v.array))).mean()))
        if malt.rank() == KILLED and step == int(fatal_step):
            os.kill(os.getpid(), signal.SIGKILL)
    malt.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
