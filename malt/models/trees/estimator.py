"""`malt.sklearn.HistGradientBoostingClassifier` and `HistGradientBoostingRegressor`: gradient-boosted trees."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from malt.kernels import compile_first
from malt.models import trees
from malt.models.common import gathered
from malt.models.rows import Rows, agreed, check_numbers, described, kept, settings, united

Floats = NDArray[np.float64]


class HistGradientBoosting(BaseEstimator):
    """The base class of both estimators: parameters, fit, and the scores of rows."""

    n_iter_: int

    def __init__(
        self, *, learning_rate: float = 0.1, max_iter: int = 100, max_depth: int = 6, min_samples_leaf: int = 20,
        l2_regularization: float = 0.0, max_bins: int = 255, rows: str = "shard", random_state: Any = None,
    ) -> None:  # fmt: skip
        self.learning_rate, self.max_iter, self.max_depth = learning_rate, max_iter, max_depth
        self.min_samples_leaf, self.l2_regularization, self.max_bins = min_samples_leaf, l2_regularization, max_bins
        self.rows, self.random_state = rows, random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # -- private ----------------------------------------------------------------------------------------------

    def _train(self, loss: str, rows: Rows, X: Any, targets: NDArray[np.float32], baselines: Floats) -> None:
        """Grow the trees of each row of `targets`, from scores that begin at `baselines`. Collective."""
        growth = trees.Growth(loss, self.max_depth, self.learning_rate, self.l2_regularization, self.min_samples_leaf)
        compile_first(trees.compile_kernels)
        binning = trees.bins_of(rows.sample(X, trees.SAMPLE_ROWS), self.max_bins, True, rows.seed)
        made = [trees.Trees(baseline, {}) for baseline in baselines.tolist()]
        train = trees.Scored(X, targets, rows.mine, binning, made, rows.weights)
        rounds = trees.Rounds(growth, made, train, partial(_dealt, rows, train))
        for _ in range(self.max_iter):
            rounds.grow()
        self._binning, self._trees, self.n_iter_ = binning, made, self.max_iter

    def _scores(self, X: Any) -> Floats:
        """The score of each row by each kind of tree, of shape (kinds, rows). Local."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", reset=False)
        trees.compile_kernels()
        bins = self._binning.bins(X)
        return np.array([one.scores(bins, self._binning.missing) for one in self._trees])

    def _checked(self, X: Any, y: Any, weights: Any, is_numeric: bool) -> Any:
        """X, y, the classes that this rank knows, and weights; what ranks compare. Local."""
        self._check_parameters()
        X, y = validate_data(
            self, X, y, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", y_numeric=is_numeric
        )
        X, y, weights = kept(X, y, weights)
        if len(y) > trees.MOST_ROWS:
            raise ValueError(f"{len(y):,} rows, and {trees.MOST_ROWS:,} are the most")
        if is_numeric:
            y = np.asarray(y, np.float64)
        else:
            check_classification_targets(y)
        known = np.unique(y[:0] if is_numeric else y)
        same = described(self.rows, X, y, known, self.random_state, weights)
        return (X, y, known, weights), {**settings(self), **same}

    def _check_parameters(self) -> None:
        """TypeError, ValueError: a parameter is not valid."""
        whole = {"max_iter": 1, "max_depth": 1, "min_samples_leaf": 1, "max_bins": 2}
        check_numbers(self, whole, positive=("learning_rate",), least_0=("l2_regularization",))
        for name, most in (("max_depth", trees.MOST_DEPTH), ("max_bins", trees.MOST_BINS)):
            if getattr(self, name) > most:
                raise ValueError(f"{name} must be at most {most}, got {getattr(self, name)}")


class HistGradientBoostingClassifier(ClassifierMixin, HistGradientBoosting):
    """Gradient-boosted trees like scikit-learn's HistGradientBoostingClassifier, grown by all ranks together.

        classifier = malt.sklearn.HistGradientBoostingClassifier().fit(X, y)

    Ranks add up integer histograms of their rows: all ranks end with the same trees, bit for bit, and with rows="shard"
    with those of a single rank. With several classes an iteration grows one tree per class, from the gradients of the
    softmax. NaN is a missing value. A sample weight multiplies the gradient and the Hessian of a row; a row of weight 0
    counts as one that is not there. As in scikit-learn, `min_samples_leaf` counts rows, whatever they weigh, and so do
    the bins. Class weights are not supported.

    `learning_rate`: the fraction of each tree that is added. `max_iter`: the number of iterations. `max_depth`: of a
    tree, at most 12; trees grow level by level. `min_samples_leaf`: the minimum number of rows per leaf.
    `l2_regularization`: the penalty on leaf values. `max_bins`: bins per feature, up to 255, plus one for missing
    values. `rows`:
    "shard": all ranks pass the same rows, and each trains on its shard of them; "mine": each rank passes its own.
    `random_state`: the rows of which bins are found where there are more than 200,000; that of the lowest rank counts.

    `classes_`: the labels, ascending. `n_iter_`: the iterations. `n_features_in_`, `feature_names_in_`: as in
    scikit-learn.
    """

    classes_: NDArray[Any]

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train on rows X with the labels y. Returns self. Collective.

        `X`: an array or data frame of shape (rows, features). `y`: labels of any kind, of shape (rows,).
        `sample_weight`: of shape (rows,); None: 1 for each row. On all ranks, or on none.

        ValueError, the same on all ranks: an argument or parameter is wrong on one of them; with rows="shard" X or y
        differ; there is one class. FloatingPointError, on all: the trees diverge.
        """
        name = f"{type(self).__name__}.fit"
        (X, y, own, weights), reports = agreed(name, lambda: self._checked(X, y, sample_weight, is_numeric=False))
        known = united(name, own, reports)
        rows, codes = Rows(self.rows, reports, weights), np.searchsorted(known, y)
        counts = rows.summed(np.bincount(codes, weights, minlength=len(known)).astype(np.float64))
        if len(known) == 2:
            loss, kinds, baselines = "logistic", np.arange(1, 2), np.log(counts[1:] / counts[:1])
        else:
            loss, kinds, baselines = "softmax", np.arange(len(known)), np.log(counts / counts.sum())
        self._train(loss, rows, X, np.where(codes == kinds[:, np.newaxis], 1, -1).astype(np.float32), baselines)
        self.classes_ = known
        return self

    def decision_function(self, X: Any) -> Floats:
        """The score of each row, of shape (rows,); with several classes (rows, classes). Local."""
        scores = self._scores(X)
        return scores[0] if len(scores) == 1 else scores.T

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class, of shape (rows, classes). Local."""
        scores = self._scores(X)
        if len(scores) == 1:
            return np.stack([expit(-scores[0]), expit(scores[0])], axis=1)
        return np.asarray(trees.softmax(scores).T)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, of shape (rows,). Local."""
        scores = self._scores(X)
        return np.asarray(self.classes_[(scores[0] > 0).astype(np.intp) if len(scores) == 1 else scores.argmax(axis=0)])


class HistGradientBoostingRegressor(RegressorMixin, HistGradientBoosting):
    """Gradient-boosted trees of the squared error, as scikit-learn's HistGradientBoostingRegressor.

    Everything else is as in `HistGradientBoostingClassifier`.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train on rows X with the numbers y. Returns self. Collective.

        `X`: an array or data frame of shape (rows, features). `y`: of shape (rows,). `sample_weight`: as of
        `HistGradientBoostingClassifier.fit`.

        ValueError, the same on all ranks: an argument or parameter is wrong on one of them; with rows="shard" X or y
        differ. FloatingPointError, on all: the trees diverge.
        """
        name = f"{type(self).__name__}.fit"
        (X, y, _, weights), reports = agreed(name, lambda: self._checked(X, y, sample_weight, is_numeric=True))
        rows = Rows(self.rows, reports, weights)
        weighed = y if rows.weights is None else y * rows.weights.relative
        self._mean = float(rows.summed(np.array([weighed.sum()]))[0]) / rows.total
        self._train("squared", rows, X, (y - self._mean).astype(np.float32)[np.newaxis], np.zeros(1))
        return self

    def predict(self, X: Any) -> Floats:
        """The number of each row, of shape (rows,). Local."""
        scores = self._scores(X)[0]
        return np.asarray(self._mean + scores)


def _dealt(rows: Rows, train: trees.Scored) -> int:
    """Take the rows that this rank has from here on. Return those of all ranks. Collective."""
    while True:
        train.take()
        count = int(sum(gathered(train.y.shape[1]).values()))
        if rows.are_all(count):
            return count
