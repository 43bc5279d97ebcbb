import numpy as np

import malt  # 1

rng = np.random.default_rng(0)
X = rng.standard_normal((1_000_000, 30))
y = np.sign(X @ rng.standard_normal(30) + rng.standard_normal(len(X)))

w = np.zeros(30)
replica = malt.Replica(w)  # 2: w is exchanged as often as that is worth its cost
for epoch in range(4):
    for i in malt.shard(range(len(X))):
        w += 0.02 * y[i] * X[i] / (1 + np.exp(y[i] * (X[i] @ w)))
        replica.step()  # 3
replica.finish()  # 4: one and the same w on all ranks

print("loss", np.mean(np.log1p(np.exp(-y * (X @ w)))))
