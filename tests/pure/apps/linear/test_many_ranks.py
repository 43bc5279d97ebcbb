"""The training loop of apps.svm on many simulated ranks, each of which sends to all others, takes no long time."""

import time

import numpy as np
import pytest

import malt
from apps.linear import reading
from malt.models import Sharing, linear

pytestmark = pytest.mark.serial
PROBLEM = linear.Problem("hinge", 1e-4, True)
EVERY, EXCHANGES, COMPUTE_S = 50, 2, 1e-4


def trained(ranks, network):
    """By rank, the messages that it has sent and gathered, and its model."""
    data = malt.open_svmlight(reading.EMBEDDED / "train.svm.xz")

    def live(rank):
        mine = linear.examples(data.X, data.y, malt.shard(len(data.y)))
        learner = linear.learner(PROBLEM, mine, data.X.shape[1], 0.01, Sharing("all", "bsp", 1))
        order = linear.visiting_order(len(mine.labels), np.random.default_rng(rank))
        for number in range(EXCHANGES):
            malt.compute(COMPUTE_S)
            learner.learn(order[number * EVERY : (number + 1) * EVERY])
            learner.exchange()
        learner.finish()
        counts = learner.vectors[0].statistics()
        return counts.sent, counts.gathered, learner.model.tobytes()

    return malt.simulate(live, ranks, network=network)


def test_many_ranks_take_no_long_time():
    ranks, limit_s = 48, 6.0
    network = malt.Network(latency_s=25e-6, bandwidth=1.25e9)
    linear.compile_kernels()
    start = time.process_time()
    ended = trained(ranks, network)
    took_s = time.process_time() - start
    messages = EXCHANGES * (ranks - 1)
    assert {one[:2] for one in ended} == {(messages, messages)} and len({model for *_, model in ended}) == 1
    assert network.totals.time_s > EXCHANGES * COMPUTE_S
    assert took_s <= limit_s
