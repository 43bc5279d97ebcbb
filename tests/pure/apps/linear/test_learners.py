"""Tests of learners of linear models: epochs that come again, and examples that count for those of all ranks."""

import numpy as np
import pytest
from few_rows import labelled_rows

import malt
from malt.models import Sharing, linear
from malt.models.linear import Problem, learner

pytestmark = [pytest.mark.serial, pytest.mark.single]


@pytest.mark.parametrize("average", ["model", "gradient"])
def test_an_epoch_that_comes_again_has_the_same_step_sizes(average):
    X, y = labelled_rows(np.random.default_rng(0))
    data, order = linear.examples(X, y), np.arange(len(y), dtype=np.int32)
    made = learner(Problem(), data, 20, 0.1, Sharing("all", "asp", 1), average)

    def counts():
        return made.state()["trained"], made.state().get("blended", 0)

    begun = []
    for place in range(4):
        made.begin_epoch(place)
        begun.append(counts())
        made.learn(order)
        made.exchange()
    assert len(set(begun)) == 4
    for place in (2, 3):
        made.begin_epoch(place)
        assert counts() == begun[place]
        made.learn(order)
        made.exchange()
    made.begin_epoch(1)
    assert counts() == begun[1]
    made.begin_epoch(7)  # others have trained those in between without this rank
    assert counts() == begun[1]
    made.learn(order)
    for place in (8, 7, 5):
        made.begin_epoch(place)
        assert (counts() == begun[1]) == (place < 8)
    made.begin_epoch(1)
    for _ in range(2):  # there are more rows by now: those of a rank that has failed
        made.learn(order)
        made.exchange()
    made.begin_epoch(2)
    assert counts() > begun[2]


def test_reweighted_averaging_goes_as_far_as_one_rank_in_an_exchange():
    """8 ranks, which exchange once an epoch, at the step size of one: each example counts 8 times on its rank."""
    X, y = labelled_rows(np.random.default_rng(0))
    problem, data = Problem(l2=1e-4), linear.examples(X, y)

    def trained(ranks, average):
        def on_rank(rank):
            mine = np.arange(rank, len(y), ranks).astype(np.int32)
            made = learner(problem, linear.examples(X, y, mine), 20, 0.01, Sharing("all", "bsp", 1), average)
            for place in range(3):
                made.begin_epoch(place)
                made.learn(np.arange(len(mine), dtype=np.int32))
                made.exchange()
            made.finish()
            return linear.objective(problem, data, made.model)

        return malt.simulate(on_rank, ranks)[0]

    alone, mean, reweighted = trained(1, "model"), trained(8, "model"), trained(8, "reweighted")
    assert reweighted - alone < 0.25 * (mean - alone)
