"""A training loop of which rank 2 takes twice as long as the others: what the pictures of reports show.

malt run -n 4 -m bench.pages.loop SYNC GRAPH
"""

from __future__ import annotations

import sys
import time

import numpy as np

import malt

ROWS, FEATURES, STEPS, BATCH, REPORT_EVERY = 40_000, 100, 400, 25, 20
STEP_S, SLOW_STEP_S = 0.002, 0.004


def main(sync: str, graph: str) -> None:
    """Train logistic regression on rows generated from a seed. Collective."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, FEATURES))
    y = np.sign(X @ rng.standard_normal(FEATURES) + 3 * rng.standard_normal(ROWS))
    mine = malt.shard(ROWS)
    X, y = X[mine], y[mine]
    v = malt.vector(FEATURES, graph=graph, sync=sync)
    for step in range(STEPS):
        batch = slice(step * BATCH % len(X), step * BATCH % len(X) + BATCH)
        slope = -y[batch] / (1 + np.exp(y[batch] * (X[batch] @ v.array)))
        v.array[:] -= 0.005 * slope @ X[batch]
        time.sleep(SLOW_STEP_S if malt.rank() == 2 else STEP_S)
        v.scatter()
        v.gather()
        if step % REPORT_EVERY == REPORT_EVERY - 1:
            malt.report(examples=BATCH * (step + 1))
            if malt.rank() == 0:
                malt.report(loss=float(np.log1p(np.exp(-y[:2000] * (X[:2000] @ v.array))).mean()))
    malt.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
