"""malt.jax: pytrees that ranks exchange, simulated ones and those of this job."""

import numpy as np
import pytest
from ranks import on_all_ranks

import malt

jax = pytest.importorskip("jax", reason="needs JAX")
import jax.numpy as jnp  # noqa: E402


def tree(rank=0):
    """A pytree of all kinds of leaves, another one for each rank."""
    return {
        "w": jnp.arange(6.0).reshape(2, 3) + rank,
        "half": [jnp.ones(4, jnp.bfloat16) * (rank + 1)],
        "count": jnp.array(3 + rank, jnp.int32),
        "wave": jnp.full(2, rank + 1j),
        "few": jnp.array([1, 2], jnp.int4),
        "wide": np.full(1, np.longdouble(1 + 2**-40)),
        "key": jax.random.key(rank),
        "rate": 0.1,
        "is_frozen": jnp.array(rank == 0),
        "none": None,
    }


def numbers(params):
    return [np.asarray(params[name], np.float32).tolist() for name in ("w", "count")] + [
        np.asarray(params["half"][0], np.float32).tolist()
    ]


@on_all_ranks
def test_all_ranks_begin_with_rank_0_and_end_with_the_mean(rank):
    mine = tree(rank)
    replica = malt.jax.Replica(mine, every=1, sync="bsp", graph="all")
    params = replica.params
    assert numbers(params) == numbers(tree(0)) and numbers(mine) == numbers(tree(rank))
    kept = []
    for step in range(5):
        few = jnp.full(2, rank, jnp.int4)
        params = {**params, "w": params["w"] + rank + step, "count": params["count"] + rank, "few": few}
        params["wave"] += 1 - 2j * rank
        kept.append((params, numbers(params)))
        params = replica.step(params)
        kept.append((params, numbers(params)))
    mean = (malt.size() - 1) / 2
    np.testing.assert_allclose(params["w"], tree(0)["w"] + 10 + 5 * mean, rtol=1e-6)
    np.testing.assert_allclose(params["wave"], 5 + 1j - 10j * mean)
    params = replica.finish(params)
    assert params["wave"].dtype == jnp.complex64
    assert malt.allgather(np.asarray(params["w"]).tolist()) == [np.asarray(params["w"]).tolist()] * malt.size()
    assert int(params["count"]) == 3 + 5 * rank, "integers are this rank's own"
    assert params["half"][0].dtype == jnp.bfloat16 and params["rate"] == 0.1 and params["none"] is None
    assert jax.random.key_data(params["key"]).tolist() == jax.random.key_data(jax.random.key(rank)).tolist()
    assert bool(params["is_frozen"]) == (rank == 0)
    assert params["few"].tolist() == [rank, rank] and params["wide"].tolist() == [1 + 2**-40]
    assert [numbers(one) for one, _ in kept] == [seen for _, seen in kept], "arrays of JAX are not written into"
    assert replica.finish(params) is params


@on_all_ranks
def test_a_step_that_exchanges_nothing_returns_what_it_was_given(rank):
    replica = malt.jax.Replica({"w": jnp.zeros(3)}, every=3, average="delta")
    params = replica.params
    seen = []
    for _ in range(6):
        params = {"w": params["w"] + 1}
        found = replica.step(params)
        seen.append(found is params)
        params = found
    assert seen == [True, True, False, True, True, False] and replica.every == 3
    assert [vector.step for vector in replica.vectors] == [2]
    assert replica.statistics().every == 3
    params = replica.agree(params)
    np.testing.assert_allclose(params["w"], malt.allgather(np.asarray(params["w"]))[0])
    replica.close()


@on_all_ranks
def test_what_is_refused(rank):
    with pytest.raises(ValueError, match="no arrays of floating-point numbers"):
        malt.jax.Replica({"n": jnp.arange(3)})
    with pytest.raises(TypeError, match=r"outside jax\.jit"):
        jax.jit(lambda w: malt.jax.Replica({"w": w}).params)(jnp.ones(2))
    replica = malt.jax.Replica({"w": jnp.zeros(3) + rank})
    if rank:
        with pytest.raises(ValueError, match="begin with params = replica.params"):
            replica.step({"w": jnp.zeros(3) + rank})
    params = replica.params
    with pytest.raises(ValueError, match=r"params\['w'\] is float32 \[4\], and was float32 \[3\]"):
        replica.step({"w": jnp.zeros(4)})
    with pytest.raises(ValueError, match=r"other leaves than at the start: \['b'\] is new"):
        replica.step({**params, "b": jnp.zeros(3)})
    with pytest.raises(TypeError, match=r"outside jax\.jit"):
        jax.jit(replica.step)(params)
    replica.finish(replica.step(params))


@pytest.mark.serial
def test_states_of_optax_and_flax():
    """On rows of each of two ranks; both end at the minimum."""
    optax = pytest.importorskip("optax", reason="needs optax")
    nnx = pytest.importorskip("flax.nnx", reason="needs flax")
    x = np.random.default_rng(0).standard_normal((240, 3)).astype(np.float32)
    y = x @ np.float32([1, -2, 3])

    @nnx.jit  # once, and not by each of the simulated ranks
    def train_step(model, optimizer, x, y):
        loss, gradients = nnx.value_and_grad(lambda model: ((model(x)[:, 0] - y) ** 2).mean())(model)
        optimizer.update(model, gradients)
        return loss

    def train(rank):
        model = nnx.Sequential(nnx.Linear(3, 1, rngs=nnx.Rngs(0)), nnx.Dropout(0.0, rngs=nnx.Rngs(rank)))
        optimizer = nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)
        replica = malt.jax.Replica(nnx.state((model, optimizer)), every=4)
        nnx.update((model, optimizer), replica.params)

        for epoch in range(20):
            rows = malt.shard(len(x), shuffle=True, seed=epoch)
            for part in np.array_split(rows, 8):
                train_step(model, optimizer, x[part], y[part])
                nnx.update((model, optimizer), replica.step(nnx.state((model, optimizer))))
        nnx.update((model, optimizer), replica.finish(nnx.state((model, optimizer))))
        return np.asarray(model.layers[0].kernel[...])[:, 0]

    for weights in malt.simulate(train, 2):
        np.testing.assert_allclose(weights, [1, -2, 3], atol=0.1)


@on_all_ranks
def test_a_mean_that_is_rounded_to_the_old_values_is_not_warned_about(rank, capfd):
    params = jnp.ones(3, jnp.bfloat16)
    replica = malt.jax.Replica(params, every=1, sync="bsp")
    params = replica.step(params + jnp.bfloat16((rank > 0) / 128))
    replica.finish(params)
    assert "malt" not in capfd.readouterr().err
