import numpy as np

import malt  # 1

rng = np.random.default_rng(0)
X = rng.standard_normal((8000, 30))
y = np.sign(X @ rng.standard_normal(30) + rng.standard_normal(8000))

w = np.zeros(30)
replica = malt.Replica(w, every=100)  # 2: w is exchanged every 100 examples
for epoch in range(3):
    for i in malt.shard(range(len(X))):
        w += 0.02 * y[i] * X[i] / (1 + np.exp(y[i] * (X[i] @ w)))
        replica.step()  # 3
replica.finish()  # 4: one and the same w on all ranks

print("loss", np.mean(np.log1p(np.exp(-y * (X @ w)))))
