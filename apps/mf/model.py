"""The trained factorization: its predictions and its file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apps.mf import factors, kernels
from apps.mf.factors import Numbers, Rows
from malt import files

PROGRAM: Final = "apps.mf"
FORMAT: Final = 1
MAX_ID_NBYTES: Final = 256
_DTYPES: Final = {
    "users": "f4", "items": "f4", "mean": "f8", "spread": "f8", "low": "f8", "high": "f8", "biases": "b1",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Model:
    """A factorization. Its ratings are mean + spread (b_u + b_i + p_u . q_i), clipped to low and high. Local."""

    users: Rows
    """(users, rank + 1): p, and b in the last column."""
    items: Rows
    user_ids: NDArray[Any]
    """The id of each row of `users`, ascending: int64 or bytes."""
    item_ids: NDArray[Any]
    mean: float
    """The mean of the training ratings."""
    spread: float
    """The standard deviation of the training ratings."""
    low: float
    """The lowest training rating."""
    high: float
    """The highest training rating."""
    biases: bool
    """Whether users and items have biases. Otherwise the last columns are zeros."""

    @property
    def rank(self) -> int:
        """The length of p and q."""
        return int(self.items.shape[1]) - 1

    def predict(self, user_ids: NDArray[Any], item_ids: NDArray[Any]) -> NDArray[np.float64]:
        """The predicted rating of each pair of a user and an item, float64. Unknown ids add nothing to the mean."""
        whose, which = numbered(self.user_ids, user_ids), numbered(self.item_ids, item_ids)
        scaled = kernels.predict(kernels.kernels(self.rank), self.users, self.items, whose, which)
        return np.clip(self.mean + self.spread * scaled.astype(np.float64), self.low, self.high)

    def save(self, path: str) -> None:
        """Write the model as .npz, complete or not at all. OSError: the file cannot be written."""
        files.save_npz(path, program=PROGRAM, format=FORMAT, **vars(self))


def numbered(known: NDArray[Any], ids: NDArray[Any]) -> Numbers:
    """The index of each of `ids` in `known`, which is ascending; -1 for an id that is not there. int32. Local."""
    if known.dtype.kind != ids.dtype.kind:  # numbers in one, names in the other: compared as names
        names = known.astype("S")
        order = np.argsort(names)
        places = numbered(names[order], ids.astype("S"))
        return np.where(places < 0, -1, order[places]).astype(np.int32)
    if not known.size:
        return np.full(ids.shape, -1, np.int32)
    places = np.minimum(np.searchsorted(known, ids), known.size - 1)
    return np.where(known[places] == ids, places, -1).astype(np.int32)


def load(path: str) -> Model:
    """The model that `Model.save` wrote to `path`. OSError: it cannot be read. ValueError: it is not such a model."""
    try:
        found: dict[str, Any] = files.load_npz(path)
        if str(found.pop("program")) != PROGRAM or int(found.pop("format")) != FORMAT:
            raise ValueError("another program's, or another version's")
        return _checked(found)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        why = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: not a model that {PROGRAM} has saved ({why})") from None


def _checked(found: dict[str, Any]) -> Model:
    for name, kind in _DTYPES.items():
        if found[name].dtype != np.dtype(kind) or found[name].ndim != (2 if kind == "f4" else 0):
            raise ValueError(f"{name} is not as it should be")
    arrays = {name: array if array.ndim else array.item() for name, array in found.items()}
    model = Model(**{field.name: arrays.pop(field.name) for field in fields(Model)})
    if arrays or not 1 <= model.rank <= factors.MAX_RANK or model.users.shape[1] != model.items.shape[1]:
        raise ValueError("rows of users and of items do not go together")
    for rows, ids in ((model.users, model.user_ids), (model.items, model.item_ids)):
        is_id = ids.ndim == 1 and (ids.dtype == np.int64 or ids.dtype.kind == "S")
        if not is_id or ids.dtype.itemsize > MAX_ID_NBYTES or len(ids) != len(rows) or (ids[1:] <= ids[:-1]).any():
            raise ValueError("rows and ids do not go together")
        if not np.isfinite(rows).all():
            raise ValueError("a factor is not finite")
    numbers = (model.mean, model.spread, model.low, model.high)
    if not np.isfinite(numbers).all() or model.spread <= 0 or model.low > model.high:
        raise ValueError("mean, spread, low and high do not go together")
    return model
