"""The rows that a rank trains an estimator on, their sample weights, and what all ranks know of all rows."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from dstorm.words import shown
from malt.data.shards import shard
from malt.files.checksum import checksum
from malt.models.common import gathered
from malt.session import session
from malt.session.collectives import allreduce
from malt.session.world.agreement import Checked, Description
from vol import arguments

ROWS: Final = ("shard", "mine")
Floats = NDArray[np.float64]
_LARGEST_SEED: Final = 2**31 - 1


def agreed(what: str, check: Callable[[], tuple[Checked, Description]]) -> tuple[Checked, Mapping[int, Any]]:
    """Agree on check() across ranks: its result, and the descriptions of all ranks. Collective.

    On one rank it is check() alone, with its own errors. Of an error of several lines, as scikit-learn has them, ranks
    exchange the first.
    """
    world = session.world()
    if world.size == 1:
        checked, description = check()
        return checked, {world.rank: description}

    def checked_in_a_line() -> tuple[Checked, Description]:
        try:
            return check()
        except ValueError as error:
            raise ValueError(str(error).partition("\n")[0].rstrip(":")) from error

    return world.notes.agree(world.transport, what, checked_in_a_line)


def settings(estimator: Any) -> Description:
    """Return what ranks compare of an estimator: its parameters, and the names of its features. Local."""
    found = {
        f"the parameter {name}": repr(value) for name, value in estimator.get_params().items() if name != "random_state"
    }
    names = [str(name) for name in getattr(estimator, "feature_names_in_", ())]
    found["the names of features"] = (
        f"{len(names)} from {names[0]!r} to {names[-1]!r}, checksum {zlib.crc32(repr(names).encode()):08x}"
        if names
        else "none"
    )
    return found


def check_numbers(
    estimator: Any, whole: Mapping[str, int], positive: Collection[str] = (), least_0: Collection[str] = ()
) -> None:  # fmt: skip
    """Check parameters of an estimator: integers, by name with the least value, and finite numbers. Local.

    TypeError, ValueError: one is not valid.
    """
    for name, least in whole.items():
        arguments.whole(name, getattr(estimator, name), least)
    for name in (*positive, *least_0):
        value = arguments.real(name, getattr(estimator, name))
        if not 0 <= value < math.inf or (name in positive and not value):
            kind = "a positive number" if name in positive else "a number of at least 0"
            raise ValueError(f"{name} must be {kind}, got {shown(value)}")


def described(
    kind: str, X: Any, y: NDArray[Any], classes: Any, random_state: Any, weights: Floats | None = None
) -> Description:  # fmt: skip
    """Return what ranks compare of the rows of an estimator whose `rows` is `kind`. Local.

    ValueError: `kind` is not valid, or a class is neither a number nor text.
    """
    if kind not in ROWS:
        raise ValueError(f"rows must be 'shard' or 'mine', got {shown(kind)}")
    classes = np.asarray(classes)
    for name in classes.tolist():
        if not isinstance(name, (str, bool, int, float)):
            raise ValueError(f"labels must be numbers or text, got {shown(name)}")
    found: dict[str, Any] = {
        "rows": kind,
        "the number of features": X.shape[1],
        "_count": X.shape[0],
        "_classes": classes.tolist(),
        "_dtype": classes.dtype.str,
        "_seed": int(check_random_state(random_state).randint(_LARGEST_SEED)),
        **compared(kind, weights),
    }
    if kind == "shard":  # without it ranks of different rows would train on a part of theirs
        is_text = y.dtype.kind in "OSU"  # on one rank as objects, maybe
        names, places = np.unique(y, return_inverse=True) if is_text else (np.empty(0), y)
        found['X and y, as count, dtypes and checksums (rows="mine": each rank has rows of its own)'] = [
            X.shape[0], str(X.dtype), checksum(X), str(places.dtype), checksum([names.tolist(), places])
        ]  # fmt: skip
    return found


def labels(what: str, y: Any, classes: Any, known: NDArray[Any] | None) -> NDArray[Any]:
    """The classes that this rank knows: those of y, or `classes`, or `known`, those of the calls before. Local.

    ValueError: y or `classes` are not labels, or do not fit `known`; the first partial_fit is not given `classes`.
    """
    check_classification_targets(y)
    if known is None and what == "partial_fit" and classes is None:
        raise ValueError("classes must be passed on the first call to partial_fit.")
    named = np.unique(y if classes is None else classes)
    known = named if known is None else known
    if not np.isin(y, known).all() or (classes is not None and not np.array_equal(named, known)):
        raise ValueError(f"y or classes are not of the classes {known.tolist()}")
    return known


def united(what: str, classes: NDArray[Any], reports: Mapping[int, Any]) -> NDArray[Any]:
    """The classes of all ranks, ascending, the same on all. `classes`: those of this rank. Local.

    Their dtype is that of all ranks, or where these differ one that has them all. ValueError: there is one class; some
    are numbers and some are text.
    """
    names = [name for one in reports.values() for name in one["_classes"]]
    if len({isinstance(name, str) for name in names}) > 1:
        raise ValueError(f"{what}: labels are numbers on some ranks, and text on others")
    is_same = len({one["_dtype"] for one in reports.values()}) == 1
    known = np.unique(np.array(names, classes.dtype if is_same else None))
    if len(known) < 2:
        raise ValueError(f"{what}: y has one class, {names[0]!r}: two are needed")
    return known


class Rows:
    """The rows that this rank was given, of which it trains on all, or on its shard. Local.

    `reports`: what all ranks have `described`, by rank. `weights`: of the rows of this rank.
    """

    def __init__(self, kind: str, reports: Mapping[int, Any], weights: Floats | None = None) -> None:
        self._count, self._deals = reports[session.rank()]["_count"], kind == "shard"
        self.seed: int = reports[min(reports)]["_seed"]
        """The same number on all ranks."""
        self.total: int = self._count if self._deals else sum(one["_count"] for one in reports.values())
        """The rows of all ranks."""
        self.weights: Weights | None = None
        if weights is not None:
            self.weights = Weights(weights, self._deals, reports, session.rank(), self.total)
        # A permutation, as rows may be sorted by label, and each rank needs all labels.
        place = 0 if self._deals else session.rank()
        self._order = np.random.default_rng([self.seed, place]).permutation(self._count)

    @property
    def weight(self) -> float:
        """The sum of the weights of the rows of all ranks; without weights their number."""
        return self.total if self.weights is None else self.weights.sum

    def mine(self) -> NDArray[np.intp]:
        """The numbers of the rows that this rank trains on, in random order; more once another rank has failed."""
        return self._order[shard(self._count)] if self._deals else self._order

    def summed(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sums over the rows of all ranks, of those over the rows that this rank was given. Collective."""
        if not self._deals:
            allreduce(sums, "sum")
        return sums

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean of the rows of `values` over all ranks, by their weights. Collective."""
        some = values if self.weights is None else values * self.weights.relative[:, None]
        return self.summed(some.sum(axis=0)) / self.total

    def sample(self, X: NDArray[Any], most: int) -> NDArray[Any]:
        """Rows that are the same on all ranks: all of them for "shard"; else at most so many, at random. Collective."""
        if self._deals:
            return X
        share = min(most * self._count // self.total, self._count)
        return np.concatenate([*gathered(X[self._order[:share]].astype(np.float64)).values()])

    def are_all(self, count: int) -> bool:
        """Return whether `count`, over all ranks, is the number of all rows: a rank may have failed with its shard."""
        return not self._deals or count == self.total

    def generator(self) -> np.random.Generator:
        """A generator of random numbers for this rank."""
        return np.random.default_rng([self.seed, session.rank(), 1])


def kept(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Floats | None]:
    """X, y and their weights without the rows of weight 0; without weights X and y themselves. Local.

    ValueError: the weights are no numbers of at least 0, one for each row, or all are 0.
    """
    if sample_weight is None:
        return X, y, None
    weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
    rows = np.flatnonzero(weights)
    if not len(rows):
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return X[rows], y[rows], weights[rows]


def compared(kind: str, weights: Floats | None) -> dict[str, Any]:
    """Return what ranks compare, and what they send, of the weights of an estimator whose `rows` is `kind`. Local."""
    if weights is None:
        return {"sample_weight": "not given"}
    same = {"the checksum of sample_weight": checksum(weights)} if kind == "shard" else {}
    return {"sample_weight": "given", **same, "_weight": float(weights.sum()), "_heaviest": float(weights.max())}


class Weights:
    """The weights of the rows that this rank was given. Local. `reports`: by rank, what they tell. `total`: of rows."""

    def __init__(self, given: Floats, deals: bool, reports: Mapping[int, Any], own: int, total: int) -> None:
        self.given = given
        self.sum: float = reports[own]["_weight"] if deals else sum(one["_weight"] for one in reports.values())
        """Of the rows of all ranks."""
        self.heaviest: float = max(one["_heaviest"] for one in reports.values())
        self.relative = given * (total / self.sum)
        """The mean over the rows of all ranks is 1."""

    def drawn(
        self, order: NDArray[np.integer[Any]], rows: NDArray[np.intp], generator: np.random.Generator
    ) -> NDArray[Any]:  # fmt: skip
        """Places of `rows`, drawn from those in `order`, each about as often as its relative weight says.

        A row of relative weight 2.3 is there two or three times: so steps stay of one size, and the mean over many
        epochs is exact. Rows are shuffled: those that are there more than once stand apart.
        """
        ends = np.cumsum(self.relative[rows[order]])
        points = np.arange(generator.random(), ends[-1] if len(ends) else 0.0)
        return generator.permutation(order[np.searchsorted(ends, points, side="right")])
