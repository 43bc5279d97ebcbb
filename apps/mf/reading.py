"""Reads the files of apps.mf: ratings to train and to test on, a model to start from or to measure."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import fields
from typing import Any, Final

import numpy as np

import malt
from apps.harness import Measured, load_model
from apps.mf.planted import film, planted
from malt.kernels import compile_first
from malt.models import factors
from malt.models.factors import MAX_RANK, Model

PROBLEMS: Final = {"small": planted, "film": film}
"""The problems that are made of the seed, by the names of --problem."""
PROGRAM: Final = "apps.mf"
MAX_ID_NBYTES: Final = 256
_DTYPES: Final = {
    "users": "f4", "items": "f4", "mean": "f8", "spread": "f8", "low": "f8", "high": "f8", "biases": "b1",
}  # fmt: skip


def start(options: Namespace) -> Model | None:
    """The model of --model, or None. Local.

    OSError, ValueError: the model cannot be read, or does not go with the other options.
    """
    if options.rank and options.rank > MAX_RANK:
        raise ValueError(f"--rank must be at most {MAX_RANK}, got {options.rank}")
    if options.problem and (options.train or options.model):
        raise ValueError("--problem is a problem generated from the seed: use it without RATINGS and without --model")
    if options.model is None:
        return None
    found = load(options.model)
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
    compile_first(lambda: factors.train_kernel(model.rank))
    predicted = model.predict(test.user_ids[test.users], test.item_ids[test.items])
    rmse = float(np.sqrt(np.mean(np.square(predicted - test.ratings))))
    return Measured([model.users, model.items], {"train_rmse": None, "test_rmse": rmse})


def load(path: str) -> Model:
    """The model that apps.mf saved to `path`. OSError: it cannot be read. ValueError: it is not such a model."""
    found = load_model(path, PROGRAM)
    try:
        return _checked(found)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"{path}: not a model that {PROGRAM} has saved ({error})") from None


def _checked(found: dict[str, Any]) -> Model:
    for name, kind in _DTYPES.items():
        if found[name].dtype != np.dtype(kind) or found[name].ndim != (2 if kind == "f4" else 0):
            raise ValueError(f"{name} is not as it should be")
    arrays = {name: array if array.ndim else array.item() for name, array in found.items()}
    model = Model(**{field.name: arrays.pop(field.name) for field in fields(Model)})
    if arrays or not 1 <= model.rank <= MAX_RANK or model.users.shape[1] != model.items.shape[1]:
        raise ValueError("rows of users and of items do not match")
    for rows, ids in ((model.users, model.user_ids), (model.items, model.item_ids)):
        is_id = ids.ndim == 1 and (ids.dtype == np.int64 or ids.dtype.kind == "S")
        if not is_id or ids.dtype.itemsize > MAX_ID_NBYTES or len(ids) != len(rows) or (ids[1:] <= ids[:-1]).any():
            raise ValueError("rows and ids do not match")
        if not np.isfinite(rows).all():
            raise ValueError("a factor is not finite")
    numbers = (model.mean, model.spread, model.low, model.high)
    if not np.isfinite(numbers).all() or model.spread <= 0 or model.low > model.high:
        raise ValueError("mean, spread, low and high do not match")
    return model
