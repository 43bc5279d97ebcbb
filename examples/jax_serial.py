"""A network of JAX that tells the arms of a noisy spiral apart."""

import jax
import jax.numpy as jnp
import numpy as np

ROWS, TRAINED, HIDDEN, BATCH, STEP, EPOCHS = 21000, 20000, 256, 100, 0.2, 25

rng = np.random.default_rng(0)
y = rng.integers(3, size=ROWS)
radius = rng.random(ROWS)
angle = 4 * radius + y * 2 * np.pi / 3 + 0.4 * rng.standard_normal(ROWS)
X = np.float32(radius[:, np.newaxis] * np.stack((np.sin(angle), np.cos(angle)), axis=1))
y = np.where(rng.random(ROWS) < 1 / 3, rng.integers(3, size=ROWS), y)


def layer(key, inputs, outputs):
    return {"w": jax.random.normal(key, (inputs, outputs)) * np.sqrt(2 / inputs), "b": jnp.zeros(outputs)}


def loss(params, x, y):
    for one in params[:-1]:
        x = jax.nn.relu(x @ one["w"] + one["b"])
    scores = jax.nn.log_softmax(x @ params[-1]["w"] + params[-1]["b"])
    return -jnp.take_along_axis(scores, y[:, None], 1).mean()


@jax.jit
def train_step(params, x, y):
    return jax.tree.map(lambda one, gradient: one - STEP * gradient, params, jax.grad(loss)(params, x, y))


keys = jax.random.split(jax.random.key(0), 3)
params = [layer(keys[0], 2, HIDDEN), layer(keys[1], HIDDEN, HIDDEN), layer(keys[2], HIDDEN, 3)]
for epoch in range(EPOCHS):
    order = rng.permutation(TRAINED)
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        params = train_step(params, X[rows], y[rows])

print(f"test loss {loss(params, X[TRAINED:], y[TRAINED:]):.4f}")
