"""The rows that a rank trains an estimator on, and what all ranks know of all rows."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from dstorm.words import shown
from malt.data.shards import shard
from malt.files.checksum import checksum
from malt.models.common import gathered
from malt.models.weights import Floats, Weights, compared
from malt.session import session
from malt.session.collectives import allreduce
from malt.session.world.agreement import Checked, Description

ROWS: Final = ("shard", "mine")
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
