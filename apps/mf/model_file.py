"""The file of a trained factorization."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import numpy as np

from apps.harness import load_model, save_model
from malt.models.factors import MAX_RANK, Model

PROGRAM: Final = "apps.mf"
MAX_ID_NBYTES: Final = 256
_DTYPES: Final = {
    "users": "f4", "items": "f4", "mean": "f8", "spread": "f8", "low": "f8", "high": "f8", "biases": "b1",
}  # fmt: skip


def save(model: Model, path: str) -> None:
    """Write the model as .npz, complete or not at all. OSError: the file cannot be written."""
    save_model(path, PROGRAM, **vars(model))


def load(path: str) -> Model:
    """The model that `save` wrote to `path`. OSError: it cannot be read. ValueError: it is not such a model."""
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
