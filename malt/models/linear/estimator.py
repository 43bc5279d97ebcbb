"""`malt.sklearn.LinearSVC` and `LogisticRegression`: linear classifiers by stochastic gradient descent."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import log_expit, log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from dstorm.words import shown
from malt.models import Sharing, linear
from malt.models.linear.averaged import Descent, Model
from malt.models.linear.batch import CURVATURES, Batch
from malt.models.linear.descent import KINDS
from malt.models.rows import Rows, agreed, check_numbers, described, kept, labels, settings, united
from malt.session.collectives import broadcast
from malt.session.session import alive, size


class LinearClassifier(ClassifierMixin, BaseEstimator):
    """The base class of linear classifiers: fit, partial_fit, predict and decision_function."""

    @abstractmethod
    def _loss_name(self) -> str:
        """The name of the loss in malt.models.linear."""

    _is_multinomial = False
    """Whether several classes are trained together, by the softmax, or each against the rest."""
    classes_: NDArray[Any]
    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]
    n_iter_: int

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train on rows X with the labels y, from zeros. Returns self. Collective.

        `X`: an array, sparse matrix or data frame of shape (rows, features), which is trained on as float32. `y`:
        labels of any kind, of shape (rows,). `sample_weight`: of shape (rows,); None: 1 for each row. On all ranks, or
        on none.

        ValueError, the same on all ranks: an argument or parameter is wrong on one of them; with rows="shard" X or y
        differ; there is one class; for "sgd" the features are out of scale. FloatingPointError: the weights diverge. A
        ConvergenceWarning says that `max_iter` was too small.
        """
        self._learn("fit", X, y, None, None, sample_weight)
        if self.n_iter_ >= self.max_iter:
            warnings.warn(f"max_iter={self.max_iter} is too small to converge", ConvergenceWarning, stacklevel=2)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        """Train on each row once by "sgd", from where the last call of fit or partial_fit ended. Collective.

        All ranks make the same number of calls, and end each with the same model. `classes`: all labels, in the first
        call. In the penalty 1 / (C n), n is the number of rows of all ranks in all calls, or the sum of their weights.
        Returns self.

        Errors: as `fit`.
        """
        self._learn("partial_fit", X, y, classes, getattr(self, "_model", None), sample_weight)
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The score of each row: w . x + b, of shape (rows,); with several classes (rows, classes). Local."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        scores: NDArray[np.float64] = safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of the highest score of each row, of shape (rows,). Local."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- private ----------------------------------------------------------------------------------------------

    def _learn(self, what: str, X: Any, y: Any, classes: Any, before: Model | None, weights: Any) -> None:
        """Train `before`, or a model of zeros, on these rows. Collective."""
        name = f"{type(self).__name__}.{what}"
        (X, y, own, weights), reports = agreed(name, lambda: self._checked(what, X, y, classes, before, weights))
        known = united(name, own, reports) if before is None else self.classes_
        rows = Rows(self.rows, reports, weights)
        model = Model.of_zeros(len(known), X.shape[1]) if before is None else before.copy()
        model.rows += rows.weight
        problem = linear.Problem(self._loss_name(), 1 / (self.C * model.rows), self.fit_intercept)
        data = rows, csr_matrix(X), np.searchsorted(known, y)
        is_softmax = self._is_multinomial and len(known) > 2
        if what == "fit" and self.solver == "lbfgs":
            trained, self.n_iter_ = self._minimize(model, Batch(problem, is_softmax, len(known), *data))
        else:
            descent = Descent(name, model, problem, KINDS[is_softmax], *data)
            epochs, tol = (self.max_iter, self.tol) if what == "fit" else (1, 0.0)
            self.n_iter_ = descent.train(epochs, tol, Sharing(self.graph, self.sync, self.every))
            trained = model.params.astype(np.float64)
        self.classes_, self._model = known, model
        self.coef_, self.intercept_ = trained[:, :-1].copy(), trained[:, -1].copy()

    def _minimize(self, model: Model, batch: Batch) -> tuple[NDArray[np.float64], int]:
        """The weights at the minimum, by class, which `model` takes, and the iterations. Collective."""
        weights, result = batch.minimize(self.tol, self.max_iter)
        weights = np.ascontiguousarray(np.atleast_2d(weights.T))
        broadcast(weights, alive()[0])  # hosts of different kinds may round differently
        model.params[...] = weights
        model.trained = result.evaluations * model.rows / size()  # partial_fit goes on with small steps
        return weights, max(result.iterations, 1)

    def _checked(self, what: str, X: Any, y: Any, classes: Any, before: Model | None, weights: Any) -> Any:
        """X, y, the classes that this rank knows, and weights; what ranks compare. Local."""
        self._check_parameters()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32, order="C", reset=before is None)
        X, y, weights = kept(X, y, weights)
        known = labels(what, y, classes, None if before is None else self.classes_)
        return (X, y, known, weights), {
            **settings(self),
            "the rows of calls before": 0 if before is None else before.rows,
            **described(self.rows, X, y, known, self.random_state, weights),
        }

    def _check_parameters(self) -> None:
        """TypeError, ValueError: a parameter is not valid."""
        check_numbers(self, {"max_iter": 1, "every": 1}, positive=("C",), least_0=("tol",))
        if self.solver not in ("lbfgs", "sgd"):
            raise ValueError(f"solver must be 'lbfgs' or 'sgd', got {shown(self.solver)}")
        if self.solver == "lbfgs" and self._loss_name() not in CURVATURES:
            raise ValueError("loss='hinge' has no gradient everywhere: it needs solver='sgd'")


class LinearSVC(LinearClassifier):
    """A linear support vector classifier like sklearn.svm.LinearSVC, trained by all ranks together.

        classifier = malt.sklearn.LinearSVC().fit(X, y)

        |w|^2 / 2 + C (the sum over rows of loss(y (x . w + b)))        is minimized, for each class against the rest

    All ranks end with the same model, bit for bit. With sample weights the loss of a row counts so many times: with
    "lbfgs" and integers that is the minimum of the rows repeated as often; "sgd" draws rows in proportion to their
    weights. A row of weight 0 counts as one that is not there. Class weights are not supported.

    `C`: the inverse of the strength of the penalty. `loss`: "squared_hinge", or "hinge", for solver="sgd".
    `fit_intercept`: whether there is a b, which is not penalized. `rows`: "shard": all ranks pass the same rows, and
    each trains on its shard of them; "mine": each rank passes rows of its own, one at least.

    `solver`: "lbfgs": ranks add up the gradients of their rows, and converge to the minimum, on any number of ranks.
    "sgd": each rank trains on one row after the other, and averages its model with those of its peers. This takes less
    time for many sparse rows, and comes close to the minimum if all features have about the same scale. `every`,
    `graph`, `sync`: for "sgd" and partial_fit, as for malt.Replica.

    `tol`, `max_iter`: `fit` stops when the norm of the gradient is `tol` times that at zeros ("lbfgs"), or after two
    epochs that improve the objective by less than the fraction `tol` ("sgd"); at the latest after `max_iter` iterations
    or epochs.
    `random_state`: the order of rows; that of the lowest rank counts.

    `coef_`: the weights, of shape (1 or classes, features), and `intercept_`, float64. `classes_`: the labels,
    ascending. `n_iter_`: the iterations or epochs of the last call. `n_features_in_`, `feature_names_in_`: as in
    scikit-learn.
    """

    def __init__(
        self, C: float = 1.0, *, loss: str = "squared_hinge", fit_intercept: bool = True, tol: float = 1e-4,
        max_iter: int = 1000, solver: str = "lbfgs", rows: str = "shard", every: int = 1000, graph: Any = "auto",
        sync: str = "asp", random_state: Any = None,
    ) -> None:  # fmt: skip
        self.C, self.loss, self.fit_intercept, self.tol, self.max_iter = C, loss, fit_intercept, tol, max_iter
        self.solver, self.rows, self.random_state = solver, rows, random_state
        self.every, self.graph, self.sync = every, graph, sync

    def _loss_name(self) -> str:
        if self.loss not in ("squared_hinge", "hinge"):
            raise ValueError(f"loss must be 'squared_hinge' or 'hinge', got {shown(self.loss)}")
        return self.loss.replace("_", "-")


class LogisticRegression(LinearClassifier):
    """Logistic regression like sklearn.linear_model.LogisticRegression, trained by all ranks together.

    With several classes the probability of a class is the softmax of the scores x . w_c + b_c, and

        |w|^2 / 2 + C (the sum over rows of log(sum over c of exp(x . w_c + b_c)) - (x . w_y + b_y))

    is minimized, by "sgd" and partial_fit too. With two classes the loss is log(1 + exp(-y (x . w + b))). Everything
    else is as in `LinearSVC`.
    """

    _is_multinomial = True

    def __init__(
        self, C: float = 1.0, *, fit_intercept: bool = True, tol: float = 1e-4, max_iter: int = 1000,
        solver: str = "lbfgs", rows: str = "shard", every: int = 1000, graph: Any = "auto", sync: str = "asp",
        random_state: Any = None,
    ) -> None:  # fmt: skip
        self.C, self.fit_intercept, self.tol, self.max_iter = C, fit_intercept, tol, max_iter
        self.solver, self.rows, self.random_state = solver, rows, random_state
        self.every, self.graph, self.sync = every, graph, sync

    def _loss_name(self) -> str:
        return "logistic"

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, of shape (rows, classes). Local."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithms of `predict_proba`, also of probabilities that float64 cannot hold. Local."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.stack([log_expit(-scores), log_expit(scores)], axis=1)
        return np.asarray(log_softmax(scores, axis=1))
