"""The state that ranks exchange of an estimator, as one flat array; estimators that have none, and why."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from dstorm.words import shown
from vol.update import Array

_LIGHT: Final = 2.0**-20
"""The weight of a centre to which no row was assigned, in rows: it moves only where no rank has assigned one."""

_FACTORIZED: Final = "its components factorize the rows it has seen, and a mean of them does not"
_SUMMED: Final = "its state is sums or extremes of the rows it has seen, which are no mean"
_NESTED: Final = "it holds estimators of its own"
_NO_MEAN: Final = {
    **dict.fromkeys(("IncrementalPCA", "MiniBatchDictionaryLearning", "MiniBatchNMF"), _FACTORIZED),
    **dict.fromkeys(("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "LatentDirichletAllocation"), _SUMMED),
    "GaussianNB": _SUMMED,
    **dict.fromkeys(("OneVsRestClassifier", "OneVsOneClassifier", "MultiOutputClassifier"), _NESTED),
    **dict.fromkeys(("MultiOutputRegressor", "SelectFromModel"), _NESTED),
    "Birch": "its state is a tree of the rows it has seen, and two trees have no mean",
}
"""Estimators with partial_fit that are refused, and why, by the name of a class of scikit-learn."""


class State:
    """The state of an estimator that is a mean, as one flat array of the dtype of its coefficients. Local."""

    counter = "t_"
    """The attribute that counts what the estimator was trained on."""
    counts_from: float = 0
    """What it is before that."""
    begins_alike = True
    """Whether estimators with the parameters of `start` begin at the same state, whatever their rows are."""

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self.calls = 0
        """The calls of partial_fit on this rank."""
        self.is_common = False
        """Whether what is put is the state of all ranks, which each rounds as the others do."""
        self._taken: Array | None = None

    @property
    def arrays(self) -> list[Array]:
        """The arrays themselves; none, where the estimator is not fitted."""
        raise NotImplementedError

    def take(self) -> Array:
        """A copy of the state."""
        parts = self._parts()
        self._taken = np.concatenate(parts, dtype=parts[0].dtype, casting="same_kind")
        return self._taken.copy()

    def put(self, flat: Array) -> None:
        """Write a state into the arrays, in place: scikit-learn has several names for the same memory.

        What was taken last is there already: to write it again would only round.
        """
        if self.is_common or self._taken is None or not np.array_equal(flat, self._taken):
            self._write(flat)

    def seed(self) -> int | None:
        """A seed for the first call of partial_fit on all ranks. None: it needs none."""
        return None

    def start(self, seed: int | None, told: Mapping[str, Any] | None) -> dict[str, Any]:
        """The parameters for the first call of partial_fit. `told`: what the first rank to be trained has told."""
        return {}

    def tell(self, y: Any) -> dict[str, Any]:
        """Return what ranks need to begin in the same way as this one. `y`: its labels or targets."""
        shape = list(np.shape(y)[1:])
        return {"features": int(self.estimator.n_features_in_), "dtype": self.arrays[0].dtype.str, "y": shape}

    def blank(self, told: Mapping[str, Any], classes: Array | None) -> tuple[Array, Array | None]:
        """Rows and labels or targets for a rank without any, which give its estimator the attributes of the others."""
        rows = np.zeros((1, told["features"]), told["dtype"])
        one_class = classes is not None and told["y"] in ([], [1])
        return rows, classes[:1] if classes is not None and one_class else np.zeros((1, *told["y"]), int)

    def rescale(self, ranks: int) -> None:
        """Scale up what is the mean of `ranks` ranks and should be their sum."""

    def _parts(self) -> list[Array]:
        return [array.reshape(-1) for array in self.arrays]

    def _write(self, flat: Array) -> None:
        start = 0
        for array in self.arrays:
            array[...] = flat[start : start + array.size].reshape(array.shape)
            start += array.size


class Linear(State):
    """Linear models trained by SGD. Coefficients begin at 0. With `average` there are means over steps, too."""

    _NAMES: Final = (
        "coef_", "intercept_", "offset_", "_standard_coef", "_standard_intercept", "_average_coef",
        "_average_intercept",
    )  # fmt: skip

    counts_from = 1.0

    @property
    def arrays(self) -> list[Array]:
        return self._found(self._NAMES)

    def _found(self, names: Sequence[str]) -> list[Array]:
        return [array for name in names if (array := vars(self.estimator).get(name)) is not None]

    @property
    def _means(self) -> list[Array]:
        """The means over steps, the last of `arrays`. None without `average`."""
        return self._found(self._NAMES[-2:])

    @property
    def _has_begun(self) -> bool:
        """True if the means over steps have begun on this rank: `average` may be the number of rows before that."""
        return bool(self.estimator.average <= self.estimator.t_ - 1)

    def _parts(self) -> list[Array]:
        """The arrays. Means over steps have the weight 1, or 0 where they have not begun; it is one more element."""
        parts, count = super()._parts(), len(self._means)
        if count:
            weight = np.array([self._has_begun], parts[0].dtype)
            parts[-count:] = [*(mean * weight for mean in parts[-count:]), weight]
        return parts

    def _write(self, flat: Array) -> None:
        super()._write(flat)
        means, weight = self._means, flat[-1]
        for mean in means:
            if weight and (self.is_common or self._has_begun):
                mean /= weight
            else:
                mean[...] = 0
        if means and self.is_common:
            self._show("average" if weight else "standard")

    def _show(self, kind: str) -> None:
        """Have all ranks predict by the means over steps, or by the last step, no matter how many rows each had."""
        one = self.estimator
        intercept = vars(one)[f"_{kind}_intercept"]
        one.coef_ = vars(one)[f"_{kind}_coef"].reshape(one.coef_.shape)
        if hasattr(one, "offset_"):
            one.offset_ = 1 - intercept
        else:
            one.intercept_ = intercept


class Network(State):
    """Neural networks. What their optimizers keep stays each rank's own."""

    @property
    def arrays(self) -> list[Array]:
        return [*getattr(self.estimator, "coefs_", ()), *getattr(self.estimator, "intercepts_", ())]

    def seed(self) -> int:
        """That of the estimator where it is a number, or else one that its generator draws."""
        from sklearn.utils import check_random_state

        seed = self.estimator.random_state
        if isinstance(seed, (int, np.integer)):
            return int(seed)
        return int(check_random_state(seed).randint(2**31 - 1))

    def start(self, seed: int | None, told: Mapping[str, Any] | None) -> dict[str, Any]:
        return {} if seed is None else {"random_state": seed}


class Clusters(State):
    """Centres, weighted by the rows that were assigned to them: sums of rows and their weights are means."""

    counter = "n_steps_"
    begins_alike = False

    @property
    def arrays(self) -> list[Array]:
        one = self.estimator
        return [one.cluster_centers_, one._counts] if hasattr(one, "cluster_centers_") else []

    def start(self, seed: int | None, told: Mapping[str, Any] | None) -> dict[str, Any]:
        return {} if told is None else {"init": self._centres(told), "n_init": 1}

    def tell(self, y: Any) -> dict[str, Any]:
        return {**super().tell(y), "centres": self.estimator.cluster_centers_}

    def blank(self, told: Mapping[str, Any], classes: Array | None) -> tuple[Array, Array | None]:
        return self._centres(told), None

    def _centres(self, told: Mapping[str, Any]) -> Array:
        """Those that are told of; others, where a rank comes that will be given them."""
        shape = self.estimator.n_clusters, told["features"]
        return np.array(told["centres"] if "centres" in told else np.indices(shape, told["dtype"])[0])

    def rescale(self, ranks: int) -> None:
        self.estimator._counts *= ranks

    def _parts(self) -> list[Array]:
        centres, counts = self.arrays
        weights = counts + centres.dtype.type(_LIGHT)
        return [(centres * weights[:, None]).reshape(-1), weights]

    def _write(self, flat: Array) -> None:
        centres, counts = self.arrays
        sums, weights = flat[: centres.size].reshape(centres.shape), flat[centres.size :]
        np.divide(sums, weights[:, None], out=centres)
        np.maximum(weights - weights.dtype.type(_LIGHT), 0, out=counts)


class Counts(State):
    """Naive Bayes of counts: of classes, and by class of features or categories. agree and finish add them up."""

    _NAMES: Final = ("class_count_", "feature_count_", "category_count_")
    _before: Sequence[Array] = ()

    @property
    def arrays(self) -> list[Array]:
        return [array for _, array in self.counted()]

    def counted(self) -> list[tuple[str, Array]]:
        """The arrays, and the attributes that they are of."""
        found = [(name, vars(self.estimator).get(name, [])) for name in self._NAMES]
        return [(name, array) for name, one in found for array in (one if isinstance(one, list) else [one])]

    def begin(self, counts: Sequence[Array] | None) -> None:
        """Count on from these, which all ranks have; None: from nothing."""
        self._before = [0 * array for array in self.arrays] if counts is None else counts
        if counts is not None:
            self.count_on([])

    def count_on(self, others: Sequence[Sequence[Array]]) -> None:
        """Replace the counts by those of all ranks that have counted since the beginning, in their order."""
        sums = [_counted_on(*each) for each in zip(self._before, *others, strict=True)]
        found: dict[str, Any] = {}
        for (name, _), array in zip(self.counted(), sums, strict=True):
            found.setdefault(name, []).append(array)
        lists = {"category_count_"}
        vars(self.estimator).update({name: one if name in lists else one[0] for name, one in found.items()})
        self._follow()
        self._before = [array.copy() for array in self.arrays]

    def _follow(self) -> None:
        """Have the estimator make anew what follows from its counts: by a row of a weight that changes none of them."""
        one, most = self.estimator, int(self.estimator.class_count_.argmax())
        kept = [array.copy() for array in getattr(one, "category_count_", [])]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # classes without rows
            weight = np.full(1, np.nextafter(0, 1))  # scikit-learn refuses 0
            one.partial_fit(np.zeros((1, one.n_features_in_)), one.classes_[most : most + 1], sample_weight=weight)
        if kept:  # its categories were counted, too
            one.category_count_, one.n_categories_ = kept, np.array([array.shape[1] for array in kept])


def _counted_on(before: Array, *others: Array) -> Array:
    """`before`, and what each of the others has more. Categories that one of them does not know have zeros."""
    shape = np.max([one.shape for one in (before, *others)], axis=0)
    start, *ends = (np.pad(one, [(0, more) for more in shape - one.shape]) for one in (before, *others))
    return np.asarray(start + sum(end - start for end in ends))


_STATES: Final[dict[str, type[State]]] = {
    **dict.fromkeys(("SGDClassifier", "SGDRegressor", "SGDOneClassSVM", "Perceptron"), Linear),
    **dict.fromkeys(("PassiveAggressiveClassifier", "PassiveAggressiveRegressor"), Linear),
    **dict.fromkeys(("MLPClassifier", "MLPRegressor"), Network),
    **dict.fromkeys(("MultinomialNB", "ComplementNB", "BernoulliNB", "CategoricalNB"), Counts),
    "MiniBatchKMeans": Clusters,
}
"""What is known of estimators, by the name of a class of scikit-learn."""


def state_of(estimator: Any) -> State:
    """The state of `estimator`. TypeError: it is no estimator. ValueError: its state is no mean."""
    name = type(estimator).__name__
    if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
        raise TypeError(f"estimator must be an estimator of scikit-learn, got {shown(estimator)}")
    if not hasattr(estimator, "partial_fit"):
        raise ValueError(f"{name} has no partial_fit with these parameters")
    names = [one.__name__ for one in type(estimator).__mro__ if one.__module__.startswith("sklearn.")]
    for one in names:
        if one in _STATES:
            return _STATES[one](estimator)
    why = next((_NO_MEAN[one] for one in names if one in _NO_MEAN), "which of its state is a mean is not known")
    raise ValueError(f"{name} cannot be averaged: {why}")
