"""Logistic regression by L-BFGS: on arrays, of which every rank has all, and on sharded vectors."""

import numpy as np

import malt

rng = np.random.default_rng(0)
X = rng.standard_normal((8000, 30))
y = np.sign(X @ rng.standard_normal(30) + rng.standard_normal(8000))
rows = malt.shard(len(X))


def of_my_rows(w):  # what they add to the mean loss, and to its gradient
    margins = y[rows] * (X[rows] @ w)
    return np.logaddexp(0, -margins).sum() / len(X), -X[rows].T @ (y[rows] / (1 + np.exp(margins))) / len(X)


def on_arrays(w):
    sums = np.append(*of_my_rows(w)[::-1])
    malt.allreduce(sums, "sum")
    return sums[-1], sums[:-1]


def on_parts(w):
    g.fill(0)
    malt.barrier()  # all ranks have moved their part of w, and g is zeros
    loss, gradient = of_my_rows(w.pull())
    g.push(gradient)  # added at the owners
    loss = np.array(loss)
    malt.allreduce(loss, "sum")
    malt.barrier()  # all that was pushed is in
    return float(loss), g


parts = malt.sharded(30, "float64")
g = parts.derive()
for name, function, w in (("arrays", on_arrays, np.zeros(30)), ("parts", on_parts, parts)):
    result = malt.optim.lbfgs(function, w)
    if malt.lowest():
        print(f"loss on {name}: {result.value:.6f}, {result.reason} after {result.iterations} iterations")
