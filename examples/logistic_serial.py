import numpy as np

rng = np.random.default_rng(0)
X = rng.standard_normal((1_000_000, 30))
y = np.sign(X @ rng.standard_normal(30) + rng.standard_normal(len(X)))

w = np.zeros(30)
for epoch in range(4):
    for i in range(len(X)):
        w += 0.02 * y[i] * X[i] / (1 + np.exp(y[i] * (X[i] @ w)))

print("loss", np.mean(np.log1p(np.exp(-y * (X @ w)))))
