"""What ranks pass to the estimators of malt.sklearn by mistake: one error of one line on all of them, or one model."""

import numpy as np
import pytest
import scipy.sparse
from ranks import error_of_all
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression as TheirLogisticRegression
from sklearn.linear_model import SGDClassifier

import malt
from malt.sklearn import (
    GridSearchCV,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    LinearSVC,
    LogisticRegression,
    MLPClassifier,
    MLPRegressor,
    average,
)

pytestmark = pytest.mark.single

X, Y = make_classification(60, 6, random_state=0)
SMALL = {"max_iter": 2}
CLASSIFIERS = [LogisticRegression, LinearSVC, HistGradientBoostingClassifier, MLPClassifier]
REGRESSORS = [HistGradientBoostingRegressor, MLPRegressor]
CLASSIFIER = pytest.mark.parametrize("kind", CLASSIFIERS)
EVERY = pytest.mark.parametrize("kind", [*CLASSIFIERS, *REGRESSORS])


def message_of(kind, X_of=lambda rank: X, y_of=lambda rank: Y, rows="mine", **parameters):
    """The message with which fit is refused where rank 0 or 1 passes X_of(rank) and y_of(rank)."""
    message = error_of_all(lambda rank: kind(rows=rows, **SMALL, **parameters).fit(X_of(rank), y_of(rank)))
    assert message.startswith(f"{kind.__name__}.fit: ")
    return message


class Frame(np.ndarray):
    """Rows whose columns have names."""

    names = None


def framed(names):
    found = X.view(Frame)
    found.names = np.array(names, object)
    return found


@EVERY
def test_rows_that_one_rank_has_wrong(kind):
    assert "on rank 1: Found array with 0 sample(s)" in message_of(
        kind, lambda rank: X[: 60 - 60 * rank], lambda rank: Y[: 60 - 60 * rank]
    )
    assert "X and y" in message_of(kind, lambda rank: X[rank:], lambda rank: Y[rank:], rows="shard")
    assert "the number of features: rank 0 has 6, rank 1 has 5" in message_of(kind, lambda rank: X[:, rank:])
    assert "on rank 1: Input X contains infinity" in message_of(kind, lambda rank: np.where(rank, np.inf, X))
    assert "on rank 1: Input y contains NaN" in message_of(kind, y_of=lambda rank: np.where(rank, np.nan, Y))
    assert "on rank 1: Expected 2D array" in message_of(kind, lambda rank: X[:, 0] if rank else X)


@EVERY
def test_columns_in_another_order_are_refused(kind, monkeypatch):
    monkeypatch.setattr("sklearn.utils.validation._get_feature_names", lambda X: getattr(X, "names", None))
    names = ["a", "b", "c", "d", "e", "f"]
    message = message_of(kind, lambda rank: framed(names[::-1] if rank else names))
    assert "the names of features: rank 0 has 6 from 'a' to 'f'" in message
    assert "rank 1 has none" in message_of(kind, lambda rank: X if rank else framed(names))


@EVERY
def test_parameters_that_differ_are_named(kind):
    message = error_of_all(lambda rank: kind(max_iter=2 + rank).fit(X, Y))
    assert message == f"{kind.__name__}.fit: ranks disagree on the parameter max_iter: rank 0 has 2, rank 1 has 3"


@pytest.mark.parametrize(("kind", "wrong"), [
    *((LinearSVC, one) for one in [
        {"C": 0}, {"C": "1"}, {"tol": -1.0}, {"max_iter": 0}, {"every": 1.5}, {"rows": "all"}, {"solver": "dual"},
        {"loss": "log"}, {"loss": "hinge"}, {"sync": "ssp", "solver": "sgd"}, {"graph": "line", "solver": "sgd"},
    ]),
    *((MLPClassifier, one) for one in [
        {"hidden_layer_sizes": (0,)}, {"max_iter": 0}, {"batch_size": 1.5}, {"alpha": -1.0}, {"solver": "lbfgs"},
        {"learning_rate_init": 0.0}, {"rows": "all"}, {"every": 0},
    ]),
    *((HistGradientBoostingClassifier, one) for one in [
        {"learning_rate": 0}, {"max_iter": 0}, {"max_depth": 13}, {"max_bins": 256}, {"max_bins": 1},
        {"min_samples_leaf": 0}, {"l2_regularization": -1.0}, {"rows": "all"},
    ]),
], ids=str)  # fmt: skip
def test_wrong_parameters_are_refused(kind, wrong):
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        kind(**wrong).fit(X, Y)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_text_in_the_place_of_numbers(kind):
    assert "on rank 1: could not convert string" in message_of(kind, y_of=lambda rank: Y if rank == 0 else ["a"] * 60)


@CLASSIFIER
def test_labels_of_other_kinds(kind):
    assert "numbers on some ranks, and text on others" in message_of(
        kind, y_of=lambda rank: Y.astype(str) if rank else Y
    )
    assert "labels must be numbers or text" in message_of(kind, y_of=lambda rank: Y.astype("datetime64[D]"))
    assert "y has one class, 1: two" in message_of(kind, y_of=lambda rank: np.ones(60, int))
    dtypes = [np.int64, np.float64, np.bool_]
    short = {"tol": 1.0} if hasattr(kind(), "tol") else {"max_iter": 1}
    found = malt.simulate(lambda rank: kind(rows="mine", **short).fit(X, Y.astype(dtypes[rank])).classes_, 3)
    assert {one.dtype for one in found} == {np.dtype(float)} and {tuple(one) for one in found} == {(0.0, 1.0)}


def test_rows_of_another_dtype_are_said_to_be():
    message = message_of(HistGradientBoostingClassifier, lambda rank: X.astype([float, np.float32][rank]), rows="shard")
    assert "[60, 'float64'," in message and "[60, 'float32'," in message


def test_rows_and_labels_that_differ_are_refused():
    """Also rows whose values are all alike, and labels of other names in the same order."""
    ones = scipy.sparse.csr_array(np.where(X > 0, 1.0, 0.0))
    names = [np.array(["cat", "dog"]), np.array(["cat", "cow"], object)]
    for of in ({"X_of": lambda rank: ones[:: 1 - 2 * rank]}, {"y_of": lambda rank: names[rank][Y]}):
        assert "ranks disagree on X and y, as count" in message_of(LogisticRegression, rows="shard", **of)
    same = malt.simulate(lambda rank: LogisticRegression(tol=0.1).fit(X, names[0].astype([str, object][rank])[Y]), 2)
    assert all(one.classes_.tolist() == ["cat", "dog"] for one in same)


def test_searches_and_averages_whose_parameters_differ():
    def search(more=0.0, tol=1e-3, **parameters):
        return GridSearchCV(TheirLogisticRegression(tol=tol), {"C": [1.0, 2.0 + more]}, **parameters).fit(X, Y)

    scoring = ["accuracy", "neg_log_loss"]
    wrong = {
        "the parameter tol: rank 0 has 0.001, rank 1 has 0.002": lambda rank: search(tol=1e-3 * (1 + rank)),
        "the candidates of C: rank 0 has 1.0, 2.0, rank 1 has 1.0, 3.0": lambda rank: search(more=rank),
        "scoring: rank 0 has 'accuracy', rank 1 has 'neg_log_loss'": lambda rank: search(scoring=scoring[rank]),
        "refit: rank 0 has False, rank 1 has True": lambda rank: search(refit=rank == 1),
    }
    for message, call in wrong.items():
        assert message in error_of_all(call)
    assert "the parameter alpha" in error_of_all(lambda rank: average(SGDClassifier(alpha=0.1 + rank)))


@pytest.mark.parametrize("grid", [{"C": [1.0]}, {"rows": ["mine"]}])
def test_a_search_takes_no_rows_of_one_rank(grid):
    rows = "mine" if "C" in grid else "shard"
    assert "use rows='shard'" in error_of_all(lambda rank: GridSearchCV(LinearSVC(rows=rows), grid).fit(X, Y))
