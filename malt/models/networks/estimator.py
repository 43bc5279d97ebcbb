"""`malt.sklearn.MLPClassifier` and `MLPRegressor`: networks of dense layers that all ranks train."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dstorm.words import shown
from malt.models.networks import OPTIMIZERS, Network
from malt.models.networks.layers import Dense, Layers, train
from malt.models.rows import Rows, agreed, check_numbers, described, kept, labels, settings, united
from vol import arguments


class MultilayerPerceptron(BaseEstimator):
    """The base class of both estimators: parameters, training, and the outputs of the last layer."""

    n_iter_: int

    def __init__(
        self, hidden_layer_sizes: Any = (100,), *, solver: str = "adam", learning_rate_init: float | None = None,
        alpha: float = 1e-5, batch_size: int = 32, max_iter: int = 50, rows: str = "shard", every: int = 1000,
        graph: Any = "auto", sync: str = "asp", random_state: Any = None,
    ) -> None:  # fmt: skip
        self.hidden_layer_sizes, self.solver, self.learning_rate_init = hidden_layer_sizes, solver, learning_rate_init
        self.alpha, self.batch_size, self.max_iter = alpha, batch_size, max_iter
        self.rows, self.random_state = rows, random_state
        self.every, self.graph, self.sync = every, graph, sync

    @property
    def coefs_(self) -> list[NDArray[np.float32]]:
        """The weights of each layer, of shape (inputs, outputs): views."""
        return [layer[:-1] for layer in self._layers.weights]

    @property
    def intercepts_(self) -> list[NDArray[np.float32]]:
        """The biases of each layer, of shape (outputs,): views."""
        return [layer[-1] for layer in self._layers.weights]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_layers")

    # -- private ----------------------------------------------------------------------------------------------

    def _train(
        self, what: str, rows: Rows, X: Any, targets: NDArray[Any], outputs: int, loss: str, before: Layers | None
    ) -> None:  # fmt: skip
        """Train `before`, or new layers, on these rows. Collective."""
        name = f"{type(self).__name__}.{what}"
        if before is None:
            layers = Layers.first([X.shape[1], *self._hidden(), outputs], self.solver, rows.seed)
        else:
            layers = before.copy()
        step = OPTIMIZERS[self.solver].step if self.learning_rate_init is None else self.learning_rate_init
        network = Network(layers.weights, self.alpha, loss=loss)
        epochs = self.max_iter if what == "fit" else 1
        exchange = {"every": self.every, "graph": self.graph, "sync": self.sync}
        data, falls = Dense(X, targets), what == "fit"
        train(name, layers, network, data, rows, self.batch_size, epochs, float(step), falls, exchange)
        self._layers, self.n_iter_ = layers, epochs

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        """Return the outputs of the last layer, of shape (rows, outputs). Local."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self._layers.outputs(X)

    def _checked(self, X: Any, y: Any, weights: Any, is_numeric: bool, before: Layers | None) -> Any:
        """X, y and their weights; the parameters that all ranks have alike. Local."""
        self._check_parameters()
        X, y = validate_data(
            self, X, y, dtype=np.float32, order="C", y_numeric=is_numeric, multi_output=is_numeric, reset=before is None
        )
        if before is not None and list(self._hidden()) != before.sizes[1:-1]:
            raise ValueError(f"hidden_layer_sizes must stay {tuple(before.sizes[1:-1])}, as in the first call")
        if before is not None and self.solver != before.solver:
            raise ValueError(f"solver must stay {before.solver!r}, as in the first call")
        return *kept(X, y, weights), {
            **settings(self), "the examples of calls before": before.trained if before else 0
        }  # fmt: skip

    def _hidden(self) -> tuple[int, ...]:
        sizes = self.hidden_layer_sizes
        return tuple(sizes) if np.iterable(sizes) else (sizes,)

    def _check_parameters(self) -> None:
        """TypeError, ValueError: a parameter is not valid."""
        for size in self._hidden():
            arguments.whole("hidden_layer_sizes", size, 1)
        given = [] if self.learning_rate_init is None else ["learning_rate_init"]
        check_numbers(self, {"batch_size": 1, "max_iter": 1, "every": 1}, positive=given, least_0=("alpha",))
        if self.solver not in OPTIMIZERS:
            raise ValueError(f"solver must be {' or '.join(map(repr, OPTIMIZERS))}, got {shown(self.solver)}")


class MLPClassifier(ClassifierMixin, MultilayerPerceptron):
    """A network of dense layers with ReLU like sklearn.neural_network.MLPClassifier, trained by all ranks together.

        classifier = malt.sklearn.MLPClassifier((64,)).fit(X, y)

    Each rank trains on batches of its rows, and averages its model with those of its peers. All ranks end with the same
    model, bit for bit. The mean cross-entropy + alpha / 2 |W|^2 is minimized, in float32. Scale the features first.
    With sample weights rows are drawn in proportion to them: a row of weight 0 counts as one that is not there, and a
    weight of 2 is like a row that is there twice, but not bit for bit.

    `hidden_layer_sizes`: the neurons of each hidden layer. `solver`: "adam", "momentum" or "adagrad".
    `learning_rate_init`: the first step size, which falls linearly to 0 within `fit`; None: 0.005, 0.1, 0.05 of
    these. `alpha`: the weight of the penalty. `batch_size`: the rows per step, of all ranks together. `max_iter`: the
    epochs. `rows`: "shard": all ranks pass the same rows, and each trains on its shard of them; "mine": each rank
    passes rows of its own, best of all classes. `every`, `graph`, `sync`: as for malt.Replica; `every` counts rows.
    `random_state`: the first weights and the order of rows; that of the lowest rank counts.

    `classes_`: the labels, ascending. `coefs_`, `intercepts_`: the weights and biases of each layer, float32: views.
    `n_iter_`: the epochs of the last call. `n_features_in_`, `feature_names_in_`: as in scikit-learn.
    """

    classes_: NDArray[Any]

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train on rows X with the labels y, from random weights. Returns self. Collective.

        `X`: an array or data frame of shape (rows, features), which is trained on as float32. `y`: labels of any kind,
        of shape (rows,). `sample_weight`: of shape (rows,); None: 1 for each row. On all ranks, or on none.

        ValueError, the same on all ranks: an argument or parameter is wrong on one of them; with rows="shard" X or y
        differ; there is one class. FloatingPointError, on all: the weights diverge.
        """
        return self._learn("fit", X, y, None, None, sample_weight)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        """Train on each row once, from where the last call of fit or partial_fit ended. Returns self. Collective.

        All ranks make the same number of calls, and end each with the same model. The step size is constant.
        `classes`: all labels, in the first call. Errors: as `fit`.
        """
        return self._learn("partial_fit", X, y, classes, getattr(self, "_layers", None), sample_weight)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, of shape (rows, classes). Local."""
        found = self._outputs(X)
        if found.shape[1] > 1:
            return np.asarray(softmax(found, axis=1))
        return np.concatenate([expit(-found), expit(found)], axis=1)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithms of `predict_proba`. Local."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, of shape (rows,). Local."""
        found = self._outputs(X)
        return np.asarray(self.classes_[found.argmax(axis=1) if found.shape[1] > 1 else (found[:, 0] > 0).astype(int)])

    # -- private ----------------------------------------------------------------------------------------------

    def _learn(self, what: str, X: Any, y: Any, classes: Any, before: Layers | None, weights: Any) -> Any:
        name = f"{type(self).__name__}.{what}"
        (X, y, own, weights), reports = agreed(name, lambda: self._labelled(what, X, y, classes, before, weights))
        known = united(name, own, reports) if before is None else self.classes_
        codes, rows = np.searchsorted(known, y), Rows(self.rows, reports, weights)
        self._train(what, rows, X, codes, len(known) if len(known) > 2 else 1, "cross-entropy", before)
        self.classes_ = known
        return self

    def _labelled(self, what: str, X: Any, y: Any, classes: Any, before: Layers | None, weights: Any) -> Any:
        """X, y, the classes that this rank knows, and weights; what ranks compare. Local."""
        X, y, weights, same = self._checked(X, y, weights, False, before)
        known = labels(what, y, classes, None if before is None else self.classes_)
        return (X, y, known, weights), {**same, **described(self.rows, X, y, known, self.random_state, weights)}


class MLPRegressor(RegressorMixin, MultilayerPerceptron):
    """A network of dense layers for regression like sklearn.neural_network.MLPRegressor, trained by all ranks.

    Half of the mean squared error + alpha / 2 |W|^2 is minimized, for targets standardized with the mean and the
    standard deviation of the first call. Everything else is as in `MLPClassifier`.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train on rows X with the numbers y, from random weights. Returns self. Collective.

        `X`: an array or data frame of shape (rows, features), which is trained on as float32. `y`: of shape (rows,) or
        (rows, numbers). `sample_weight`: as of `MLPClassifier.fit`.

        ValueError, the same on all ranks: an argument or parameter is wrong on one of them; with rows="shard" X or y
        differ. FloatingPointError, on all: the weights diverge.
        """
        return self._learn("fit", X, y, None, sample_weight)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train on each row once, from where the last call of fit or partial_fit ended. Returns self. Collective.

        All ranks make the same number of calls, and end each with the same model. The step size is constant. Errors:
        as `fit`.
        """
        return self._learn("partial_fit", X, y, getattr(self, "_layers", None), sample_weight)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The numbers of each row, of shape (rows,) or (rows, numbers). Local."""
        found = self._outputs(X) * self._spread + self._mean
        return np.asarray(found[:, 0] if self._is_flat else found)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # -- private ----------------------------------------------------------------------------------------------

    def _learn(self, what: str, X: Any, y: Any, before: Layers | None, weights: Any) -> Any:
        name = f"{type(self).__name__}.{what}"
        (X, y, weights), reports = agreed(name, lambda: self._numbered(X, y, before, weights))
        columns, rows = y.reshape(len(y), -1), Rows(self.rows, reports, weights)
        if before is None:
            self._mean = rows.mean(columns)
            spread = np.sqrt(rows.mean(np.square(columns - self._mean)))
            self._spread = np.where(spread > 0, spread, 1.0)
            self._is_flat = y.ndim == 1
        targets = ((columns - self._mean) / self._spread).astype(np.float32)
        self._train(what, rows, X, targets, columns.shape[1], "squared", before)
        return self

    def _numbered(self, X: Any, y: Any, before: Layers | None, weights: Any) -> Any:
        """X, y and their weights; what ranks compare. Local."""
        X, y, weights, same = self._checked(X, y, weights, True, before)
        y = np.asarray(y, np.float64)
        outputs = 1 if y.ndim == 1 else y.shape[1]
        if before is not None and outputs != before.sizes[-1]:
            raise ValueError(f"y must have {before.sizes[-1]} numbers a row, as in the first call")
        same["the numbers of a row of y"] = outputs
        return (X, y, weights), {**same, **described(self.rows, X, y, (), self.random_state, weights)}
