"""Tests of apps.svm.learners: epochs that come again."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest
from test_linear import some_rows

from apps.svm.learners import learner
from malt.kernels import linear
from malt.kernels.linear import Problem

pytestmark = [pytest.mark.serial, pytest.mark.single]


@pytest.mark.parametrize("average", ["model", "gradient"])
def test_an_epoch_that_comes_again_has_the_same_step_sizes(average):
    X, y = some_rows(np.random.default_rng(0))
    data, order = linear.examples(X, y), np.arange(len(y), dtype=np.int32)
    options = Namespace(average=average, vector="dense", graph="all", degree=None, sync="asp")
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
