"""Reads the files of apps.mf: ratings to train and to test on, a model to start from or to measure."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

import numpy as np

import malt
from apps.harness import Measured
from apps.mf import model_file
from apps.mf.planted import film, planted
from malt.kernels import compile_first
from malt.models import factors
from malt.models.factors import Model

PROBLEMS: Final = {"small": planted, "film": film}
"""The problems that are made of the seed, by the names of --problem."""


def start(options: Namespace) -> Model | None:
    """The model of --model, or None. Local.

    OSError, ValueError: the model cannot be read, or does not go with the other options.
    """
    if options.rank and options.rank > factors.MAX_RANK:
        raise ValueError(f"--rank must be at most {factors.MAX_RANK}, got {options.rank}")
    if options.problem and (options.train or options.model):
        raise ValueError("--problem is a problem generated from the seed: use it without RATINGS and without --model")
    if options.model is None:
        return None
    found = model_file.load(options.model)
    if options.rank not in (None, found.rank):
        raise ValueError(f"{options.model} has rank {found.rank}, so --rank {options.rank} does not match")
    if options.train is None and options.test is None:
        raise ValueError("--model without RATINGS to train on needs --test, to measure it on")
    if options.train is None and options.checkpoint:
        raise ValueError("--checkpoint is for training: --model without RATINGS is measured")
    return found


def ratings(options: Namespace) -> tuple[malt.Ratings, malt.Ratings | None]:
    """The training ratings, and the test ratings or None. Collective. OSError, ValueError: a file cannot be read."""
    if options.train is None:
        train, test = PROBLEMS[options.problem or "small"](options.seed)
        return train, malt.open_ratings(options.test) if options.test else test
    return malt.open_ratings(options.train), malt.open_ratings(options.test) if options.test else None


def measured(options: Namespace, model: Model) -> Measured:
    """The saved model, and its error on the test ratings. Collective."""
    test = malt.open_ratings(options.test)
    compile_first(lambda: factors.kernels(model.rank))
    predicted = model.predict(test.user_ids[test.users], test.item_ids[test.items])
    rmse = float(np.sqrt(np.mean(np.square(predicted - test.ratings))))
    return Measured([model.users, model.items], {"train_rmse": None, "test_rmse": rmse})
