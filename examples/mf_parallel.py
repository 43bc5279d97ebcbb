"""Matrix factorization. Each rank trains on its own users, and sends the rows of items that changed."""

import numpy as np
from numba import njit

import malt

USERS, ITEMS, RANK = 2000, 500, 4
STEP, L2, EPOCHS, PARTS = 0.02, 0.02, 20, 10


@njit(nogil=True)
def train(users, items, ratings, P, Q):
    """Take a step for each rating, on the rows of its user and its item."""
    for n in range(len(ratings)):
        p, q = P[users[n]], Q[items[n]]
        error = ratings[n] - np.sum(p * q)
        for k in range(RANK):
            p[k], q[k] = p[k] + STEP * (error * q[k] - L2 * p[k]), q[k] + STEP * (error * p[k] - L2 * q[k])


rng = np.random.default_rng(0)
users, items = np.nonzero(rng.random((USERS, ITEMS)) < 0.1)
truth = rng.standard_normal((USERS, RANK)) @ rng.standard_normal((RANK, ITEMS)) / 2
ratings = truth[users, items] + 0.3 * rng.standard_normal(len(users))
is_test = rng.random(len(users)) < 0.1

P, Q = rng.standard_normal((USERS, RANK)) / 4, rng.standard_normal((ITEMS, RANK)) / 4
shared = malt.vector(Q, kind="sparse", sync="bsp")  # Q itself, sent row by row
mine = users % malt.size() == malt.rank()  # users are dealt to ranks
trained, tested = np.flatnonzero(mine & ~is_test), np.flatnonzero(mine & is_test)
for epoch in range(EPOCHS):
    for part in np.array_split(rng.permutation(trained), PARTS):
        train(users[part], items[part], ratings[part], P, Q)
        shared.scatter()
        shared.gather(malt.AVG)

errors = ratings[tested] - np.sum(P[users[tested]] * Q[items[tested]], axis=1)
total = np.array([np.sum(errors**2), len(errors)])
malt.allreduce(total, op="sum")
if malt.lowest():
    print(f"test RMSE {np.sqrt(total[0] / total[1]):.4f}")
