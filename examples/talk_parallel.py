"""The loop of the talk about MALT. Ranks take the mean step of a row each; what is sent are the features in it."""

import numpy as np

import malt

ROWS, FEATURES, STEP, EPOCHS = 2000, 500, 0.1, 2

rng = np.random.default_rng(0)
features = np.array([rng.choice(FEATURES, 10, replace=False) for _ in range(ROWS)])
x = rng.standard_normal((ROWS, 10))
y = np.sign(np.sum(x * rng.standard_normal(FEATURES)[features], axis=1))


def gradient(i, w):
    """The step that row i asks for: its features, and their values."""
    is_right = y[i] * (x[i] @ w[features[i]]) >= 1
    return features[i], 0 if is_right else STEP * y[i] * x[i]


w = np.zeros(FEATURES)
g = malt.vector(np.zeros(FEATURES), kind="sparse", sync="bsp")
for epoch in range(EPOCHS):
    for i in malt.shard(range(ROWS)):
        g.clear()
        touched, values = gradient(i, w)
        g.array[touched] = values
        g.scatter()
        g.gather(malt.MEAN)
        w += g.array

if malt.lowest():
    print("accuracy", np.mean(np.sign(np.sum(x * w[features], axis=1)) == y))
