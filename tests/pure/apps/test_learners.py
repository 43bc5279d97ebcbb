"""Tests of apps.svm.learners: epochs that come again."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest
from test_linear import some_rows

import malt
from apps.svm import linear
from apps.svm.learners import learner
from apps.svm.linear import Problem

pytestmark = [pytest.mark.serial, pytest.mark.single]


@pytest.mark.parametrize("average", ["model", "gradient"])
def test_an_epoch_that_comes_again_has_the_same_step_sizes(average):
    X, y = some_rows(np.random.default_rng(0))
    data, order = linear.examples(X, y), np.arange(len(y), dtype=np.int32)
    options = Namespace(average=average, vector="dense", graph="all", sync="asp")
    made = learner(Problem(), data, 20, 0.1, options)

    def counts():
        return made.state()["trained"], made.state().get("blended", 0)

    begun = []
    for place in range(4):
        made.begin_epoch(place)
        begun.append(counts())
        made.learn(order, True)
    assert len(set(begun)) == 4
    for place in (2, 3):
        made.begin_epoch(place)
        assert counts() == begun[place]
        made.learn(order, True)
    made.begin_epoch(1)
    assert counts() == begun[1]


@pytest.mark.parametrize("vector", ["dense", "sparse"])
@pytest.mark.parametrize(("sync", "counts"), [("asp", (20 + 4 * 80) / 2), ("notify-ack", 20)])
def test_a_rank_that_was_held_up_goes_on_with_the_step_sizes_of_the_others(vector, sync, counts):
    """It takes over their models. Its own step sizes, those of a beginning, would spoil them."""
    X, y = some_rows(np.random.default_rng(0))
    data, order = linear.examples(X, y), np.arange(20, dtype=np.int32)
    options = Namespace(average="model", vector=vector, graph="all", sync=sync)

    def train(rank):
        made = learner(Problem(), data, 20, 0.1, options)
        for _ in range(4 if rank and sync == "asp" else 1 if rank else 0):
            made.learn(np.tile(order, 4), True)
        malt.barrier()
        if rank == 0:
            made.learn(order, True)
        return made.state()["trained"]

    assert malt.simulate(train, 2)[0] == counts
