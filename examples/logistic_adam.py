"""Logistic regression by Adam. Each rank owns a part of the weights, and of all that Adam keeps."""

import numpy as np

import malt

rng = np.random.default_rng(0)
X = rng.standard_normal((8000, 30))
y = np.sign(X @ rng.standard_normal(30) + rng.standard_normal(8000))

w = malt.sharded(30, "float64")
mean, variance, g = w.derive(), w.derive(), w.derive()
step = malt.optim.adam(0.05)
for epoch in range(10):
    for rows in np.array_split(malt.shard(np.arange(len(X))), 50):
        malt.barrier()  # all ranks have taken the last step, and g is zeros again
        margins = y[rows] * (X[rows] @ w.pull())  # of sparse rows: w.pull(columns)
        gradient = -X[rows].T @ (y[rows] / (1 + np.exp(margins)))
        g.push(gradient / len(rows) / malt.size())  # added at the owners
        malt.barrier()  # all that was pushed is in
        w.zip(step, mean, variance, g)  # each rank for its part: nothing is sent
        g.fill(0)

malt.barrier()
if malt.lowest():
    print("loss", np.mean(np.log1p(np.exp(-y * (X @ w.pull())))))
malt.barrier()
