"""A neural network that classifies points by the arm of a spiral. Each rank trains on its part of the points."""

import numpy as np

import malt

ROWS, TRAINED, HIDDEN, BATCH, STEP, EPOCHS = 6000, 5000, 64, 20, 0.2, 40

rng = np.random.default_rng(0)
y = rng.integers(3, size=ROWS)
radius = rng.random(ROWS)
angle = 4 * radius + y * 2 * np.pi / 3 + 0.2 * rng.standard_normal(ROWS)
X = radius[:, np.newaxis] * np.stack((np.sin(angle), np.cos(angle)), axis=1)


def layers(x):
    hidden = np.maximum(0, x @ p["W1"] + p["b1"])
    return hidden, hidden @ p["W2"] + p["b2"]


def gradients(x, y):
    """The gradients of the mean cross-entropy over these rows."""
    hidden, scores = layers(x)
    delta = np.exp(scores - scores.max(axis=1, keepdims=True))
    delta /= delta.sum(axis=1, keepdims=True)
    delta[np.arange(len(y)), y] -= 1
    delta /= len(y)
    below = delta @ p["W2"].T * (hidden > 0)
    return {"W1": x.T @ below, "b1": below.sum(axis=0), "W2": hidden.T @ delta, "b2": delta.sum(axis=0)}


p = {
    "W1": rng.standard_normal((2, HIDDEN)),
    "b1": np.zeros(HIDDEN),
    "W2": rng.standard_normal((HIDDEN, 3)) / np.sqrt(HIDDEN),
    "b2": np.zeros(3),
}
replica = malt.Replica(p, every=5, sync="bsp")
for epoch in range(EPOCHS):
    order = malt.shard(rng.permutation(TRAINED))
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        for name, gradient in gradients(X[rows], y[rows]).items():
            p[name] -= STEP * gradient
        replica.step()
replica.finish()

_, scores = layers(X[TRAINED:])
if malt.lowest():
    print(f"test accuracy {np.mean(scores.argmax(axis=1) == y[TRAINED:]):.4f}")
