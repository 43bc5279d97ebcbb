"""A linear SVM on census data. Each rank computes the step of its part of a batch, and all take the mean step."""

import numpy as np

import malt

L2, STEP, BATCH, EPOCHS = 1e-4, 0.1, 200, 10

data = malt.open_svmlight("apps/linear/data/a9a/train.svm.xz")
X, y = data.X, data.y


def update(w, rows):
    """The step against the mean gradient of the hinge loss over these rows, and of the penalty."""
    violated = y[rows] * (X[rows] @ w) < 1
    return STEP * (X[rows].T @ (violated * y[rows]) / len(rows) - L2 * w)


def objective(w):
    return np.maximum(0, 1 - y * (X @ w)).mean() + L2 / 2 * w @ w


rng = np.random.default_rng(0)
w = np.zeros(X.shape[1])
g = malt.vector(np.zeros_like(w), sync="bsp")
for epoch in range(EPOCHS):
    order = rng.permutation(len(y))
    for start in range(0, len(y), BATCH):
        batch = malt.shard(order[start : start + BATCH])
        g.array[:] = update(w, batch)
        g.scatter()
        g.gather(malt.MEAN)
        w += g.array

if malt.lowest():
    print(f"objective {objective(w):.4f}")
