"""malt.sklearn's boosted trees: scikit-learn's checks, the trees that it grows, and simulated ranks."""

import re

import numpy as np
import pytest
import sklearn
from ranks import run_failing
from sklearn import ensemble
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, make_classification
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version

import malt
from malt.sklearn import HistGradientBoostingClassifier, HistGradientBoostingRegressor

pytestmark = [pytest.mark.single, pytest.mark.filterwarnings("default")]

ALIKE = {"max_iter": 10, "max_depth": 5, "min_samples_leaf": 5}


@pytest.mark.thorough
@parametrize_with_checks([
    HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=1),
    HistGradientBoostingRegressor(max_iter=10, min_samples_leaf=1),
])  # fmt: skip
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("kind", "load"), [
    (HistGradientBoostingClassifier, load_breast_cancer), (HistGradientBoostingRegressor, load_diabetes),
    pytest.param(HistGradientBoostingClassifier, load_digits, marks=pytest.mark.thorough),
])  # fmt: skip
@pytest.mark.skipif(parse_version(sklearn.__version__) < parse_version("1.9"), reason="its bins were others before")
def test_predictions_are_those_of_scikit_learn(kind, load):
    X, y = load(return_X_y=True)
    X[::7, 2] = np.nan
    same = {"max_iter": 10, "max_depth": 4}
    theirs = getattr(ensemble, kind.__name__)(max_leaf_nodes=None, early_stopping=False, **same).fit(X, y)
    ours = kind(**same).fit(X, y)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), rel=0.005)
    if load is not load_digits:  # of which many splits are equal, and the one or the other is taken
        what = "predict" if kind is HistGradientBoostingRegressor else "predict_proba"
        assert np.allclose(getattr(ours, what)(X), getattr(theirs, what)(X), rtol=1e-6)


def blobs(classes):
    """Rows with missing values, and labels as text."""
    X, y = make_classification(400, 6, n_informative=5, n_redundant=0, n_classes=classes, random_state=4)
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    return X, np.array(["a", "bb", "ccc"])[y]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("rows", ["shard", "mine"])
def test_simulated_ranks_end_with_one_model(rows, classes):
    X, y = blobs(classes)
    order = np.argsort(y, kind="stable")  # with rows="mine" ranks lack classes

    def live(rank):
        mine = np.array_split(order, 3)[rank] if rows == "mine" else order
        found = HistGradientBoostingClassifier(rows=rows, random_state=rank, **ALIKE).fit(X[mine], y[mine])
        return found.classes_.tolist(), found.decision_function(X)

    alone = HistGradientBoostingClassifier(**ALIKE).fit(X, y).decision_function(X)
    for known, scores in malt.simulate(live, 3):
        assert known == ["a", "bb", "ccc"][:classes]
        assert scores.tobytes() == alone.tobytes()  # all rows are in the sample of "mine"


def test_numbers_of_simulated_ranks():
    X, y = load_diabetes(return_X_y=True)

    def live(rank):
        some = np.array_split(np.arange(len(y)), 3)[rank]
        mine = HistGradientBoostingRegressor(rows="mine", **ALIKE).fit(X[some], y[some] + 1e6)
        return HistGradientBoostingRegressor(**ALIKE).fit(X, y).predict(X), mine.predict(X) - 1e6

    alone = HistGradientBoostingRegressor(**ALIKE).fit(X, y).predict(X)
    for shard, mine in malt.simulate(live, 3):
        assert shard.tobytes() == alone.tobytes()
        assert np.allclose(mine, alone, atol=1e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("at", [40, 56, 192, 210, 216])
def test_rows_of_a_rank_that_fails_count(at):
    """It fails in the search of bins, or of bundles; in the midst of a later round as small histograms are added up, as
    large ones are, or as the best splits of these are compared."""
    X, y = blobs(3)
    found, failed = run_failing(3, 0, {1: at}, lambda rank: HistGradientBoostingClassifier(**ALIKE).fit(X, y))
    assert failed == {1}
    alone = HistGradientBoostingClassifier(**ALIKE).fit(X, y).decision_function(X)
    for rank in (0, 2):
        assert found[rank].decision_function(X).tobytes() == alone.tobytes()


@pytest.mark.parametrize(("kind", "rate", "trees"), [
    (HistGradientBoostingRegressor, 10.0, 1000), (HistGradientBoostingRegressor, 1e308, 3),
    (HistGradientBoostingClassifier, 1e308, 3),
])  # fmt: skip
def test_trees_that_diverge_are_an_error(kind, rate, trees):
    """Once scores were infinite a round began again for ever, as if a rank had failed with its rows."""
    X = np.arange(60.0).reshape(-1, 1)
    model = kind(learning_rate=rate, max_iter=trees, min_samples_leaf=5, max_depth=2)
    with pytest.raises(FloatingPointError, match=re.escape(f"the learning rate, {rate:g}, is too large")):
        model.fit(X, X[:, 0] // 20)
