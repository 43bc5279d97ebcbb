"""malt.sklearn's linear classifiers: scikit-learn's checks, the minimum that it finds, and simulated ranks.

Also what all classifiers do: they can be cloned, pickled and searched.
"""

import pickle
import warnings
from functools import cache

import numpy as np
import pytest
from ranks import error_of_all, run_failing
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as TheirLogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC as TheirLinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import malt
from malt.sklearn import HistGradientBoostingClassifier, LinearSVC, LogisticRegression, MLPClassifier

pytestmark = [pytest.mark.single, pytest.mark.filterwarnings("default")]

BOTH = pytest.mark.parametrize("kind", [LinearSVC, LogisticRegression])


def unequal(estimator):
    """Why integers as weights are not rows repeated to a rounding error, but for LogisticRegression by L-BFGS."""
    names = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
    if estimator.solver == "sgd":
        return dict.fromkeys(names, "rows are drawn in proportion to their weights")
    if isinstance(estimator, LinearSVC):
        return dict.fromkeys(names, "scores at its minimum are known to 3e-6, and the check wants 1e-7")
    return {}


@pytest.mark.thorough
@parametrize_with_checks(
    [LinearSVC(), LogisticRegression(), LinearSVC(solver="sgd", loss="hinge", max_iter=5, tol=0.1)],
    expected_failed_checks=unequal,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@parametrize_with_checks([LogisticRegression(solver="sgd", max_iter=5, tol=0.1)], expected_failed_checks=unequal)
def test_scikit_learn_checks_of_few_epochs(estimator, check):
    check(estimator)


def objective(found, X, y):
    """|w|^2 / 2 + C (the sum of the losses), for two classes."""
    margins = np.where(y == found.classes_[1], 1, -1) * (X @ found.coef_[0] + found.intercept_[0])
    is_svm = type(found).__name__ == "LinearSVC"
    power = 1 if getattr(found, "loss", "") == "hinge" else 2
    losses = np.maximum(0, 1 - margins) ** power if is_svm else np.logaddexp(0, -margins)
    return found.coef_[0] @ found.coef_[0] / 2 + found.C * losses.sum()


@BOTH
def test_the_minimum_is_that_of_scikit_learn(kind):
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    theirs = TheirLinearSVC(intercept_scaling=1000, tol=1e-6, max_iter=100_000)
    theirs = (theirs if kind is LinearSVC else TheirLogisticRegression(tol=1e-8)).fit(X, y)
    ours = kind(tol=1e-6).fit(X, y)
    assert objective(ours, X, y) == pytest.approx(objective(theirs, X, y), rel=1e-4)
    assert np.mean(ours.predict(X) == theirs.predict(X)) >= 0.995


def test_features_of_different_scales_need_no_scaling():
    X, y = load_wine(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert LogisticRegression().fit(X, y).score(X, y) >= 0.97


def test_classes_against_the_rest():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    found = LinearSVC(C=10.0).fit(X, names)
    alone = LinearSVC(C=10.0).fit(X, names == "virginica")
    assert np.allclose(found.coef_[2], alone.coef_[0], rtol=0.05, atol=0.05)
    assert found.score(X, names) >= 0.95


@pytest.mark.thorough(but="load_iris-2-mine")
@pytest.mark.parametrize("rows", ["shard", "mine"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("load", [load_iris, load_digits])
def test_the_softmax_of_several_classes_is_that_of_scikit_learn(softmax_of_theirs, load, ranks, rows):
    X, y, theirs = softmax_of_theirs(load)

    def live(rank):
        mine = np.arange(len(y))[rank::ranks] if rows == "mine" else slice(None)
        return LogisticRegression(C=0.5, tol=1e-6, rows=rows, random_state=0).fit(X[mine], y[mine])

    found = malt.simulate(live, ranks)
    for one in found:
        assert one.coef_.tobytes() == found[0].coef_.tobytes()
    assert np.allclose(found[0].coef_, theirs.coef_, atol=1e-3)
    assert np.allclose(found[0].intercept_, theirs.intercept_, atol=1e-3)
    assert np.allclose(found[0].predict_proba(X), theirs.predict_proba(X), atol=1e-3)
    assert np.allclose(found[0].predict_log_proba(X), theirs.predict_log_proba(X), atol=0.05)


@pytest.fixture(scope="module")
def softmax_of_theirs():
    """softmax_of_theirs(load): scaled rows, labels, and scikit-learn's model of them; fitted once."""

    @cache
    def fitted(load):
        X, y = load(return_X_y=True)
        X = StandardScaler().fit_transform(X)
        return X, y, TheirLogisticRegression(C=0.5, tol=1e-8, max_iter=10_000).fit(X, y)

    return fitted


@pytest.mark.parametrize(("what", "ranks"), [("fit", 1), ("fit", 3), ("partial_fit", 1)])
def test_descent_and_partial_fit_train_the_softmax_too(what, ranks):
    X, y = make_classification(3000, 12, n_informative=8, n_classes=4, random_state=9)
    theirs = TheirLogisticRegression(C=0.05).fit(X, y)

    def live(rank):
        found = LogisticRegression(C=0.05, solver="sgd", every=200, random_state=0)
        if what == "fit":
            return found.fit(X, y)
        for _ in range(10):
            found.partial_fit(X, y, classes=range(4))
        return found

    for found in malt.simulate(live, ranks):  # each class against the rest is 0.028 away
        assert np.abs(found.predict_proba(X) - theirs.predict_proba(X)).mean() <= 0.018


def test_partial_fit_goes_on_from_the_softmax_of_fit():
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    found = LogisticRegression(tol=1e-6, random_state=0).fit(X, y)
    before = found.predict_proba(X)
    found.partial_fit(X, y)
    assert 0 < np.abs(found.predict_proba(X) - before).max() <= 0.1
    assert np.array_equal(found.fit(X, y).predict_proba(X), before)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_descent_comes_close_to_the_minimum(loss):
    X, y = make_classification(4000, 30, random_state=1)
    X = csr_array(StandardScaler().fit_transform(X))
    found = LinearSVC(C=0.01, loss=loss, solver="sgd", random_state=0).fit(X, y)
    theirs = TheirLinearSVC(C=0.01, loss=loss, intercept_scaling=100, max_iter=1_000_000).fit(X, y)
    assert objective(found, X, y) <= 1.01 * objective(theirs, X, y)


def test_weights_that_diverge_are_an_error():
    X, y = make_classification(4000, 5, random_state=7)
    X[2000:] *= 100  # the step size is chosen on fewer rows
    order = np.arange(4000)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(FloatingPointError, match="diverge"):
        patch.setattr("malt.models.rows.Rows.mine", lambda rows: order)
        LogisticRegression(solver="sgd", random_state=0).fit(X, y)


def test_partial_fit_goes_on_where_it_ended():
    X, y = make_classification(3000, 20, random_state=2)
    batches = np.array_split(np.arange(3000), 30)
    found = LogisticRegression(random_state=0)
    for batch in batches:
        found.partial_fit(X[batch], y[batch], classes=[0, 1])
    assert found.score(X, y) >= LogisticRegression().fit(X, y).score(X, y) - 0.02
    fitted = LogisticRegression(random_state=0).fit(X, y)
    before = fitted.coef_.copy()
    fitted.partial_fit(X[:100], y[:100])
    change = np.linalg.norm(fitted.coef_ - before) / np.linalg.norm(before)
    assert 0 < change < 0.2
    with pytest.raises(ValueError, match="not of the classes"):
        fitted.partial_fit(X[:2], [0, 7])


@pytest.mark.parametrize(("estimator", "name", "values"), [
    (LinearSVC(), "C", [1e-4, 1.0]), (LogisticRegression(), "C", [1e-4, 1.0]),
    (HistGradientBoostingClassifier(max_iter=3), "max_depth", [1, 3]),
    (MLPClassifier((8,), max_iter=3), "solver", ["adam", "momentum"]),
], ids=lambda one: type(one).__name__)  # fmt: skip
def test_clone_pickle_pipeline_and_search(estimator, name, values):
    X, y = make_classification(200, 10, random_state=3)
    steps = make_pipeline(StandardScaler(), estimator)
    search = GridSearchCV(steps, {f"{type(estimator).__name__.lower()}__{name}": values}, cv=2).fit(X, y)
    best, copy = search.best_estimator_[-1], pickle.loads(pickle.dumps(search.best_estimator_))
    for what in {"decision_function", "predict_proba"} & set(dir(estimator)):
        assert np.array_equal(getattr(copy, what)(X), getattr(search, what)(X))
    assert best.get_params()[name] in values and clone(best).get_params() == best.get_params()
    assert not hasattr(clone(best), "classes_")


@pytest.mark.parametrize("solver", ["lbfgs", "sgd"])
@pytest.mark.parametrize("rows", ["shard", "mine"])
def test_simulated_ranks_end_with_one_model(solver, rows):
    X, y = make_classification(900, 10, n_informative=6, n_classes=3, random_state=4)
    y = np.array(["a", "bb", "ccc"])[y]
    order = np.argsort(y, kind="stable")  # with rows="mine" ranks lack classes

    def live(rank):
        mine = np.array_split(order, 3)[rank] if rows == "mine" else order
        return LinearSVC(C=0.1, rows=rows, solver=solver, every=50, random_state=rank).fit(X[mine], y[mine])

    found = malt.simulate(live, 3)
    alone = LinearSVC(C=0.1, random_state=0).fit(X, y)
    for one in found:
        assert one.classes_.tolist() == ["a", "bb", "ccc"]
        assert one.coef_.tobytes() == found[0].coef_.tobytes()
        assert one.intercept_.tobytes() == found[0].intercept_.tobytes()
    if solver == "lbfgs":
        assert np.allclose(found[0].coef_, alone.coef_, atol=2e-3)
    elif rows == "shard":
        assert found[0].score(X, y) >= alone.score(X, y) - 0.02


def test_rows_of_a_rank_that_fails_count():
    X, y = make_classification(300, 8, random_state=8)
    order = np.argsort(y, kind="stable")
    found, failed = run_failing(
        3, 0, {1: 60}, lambda rank: LogisticRegression(tol=1e-6, random_state=0).fit(X[order], y[order])
    )
    assert failed == {1}
    alone = LogisticRegression(tol=1e-6).fit(X, y)
    for rank in (0, 2):
        assert np.allclose(found[rank].coef_, alone.coef_, atol=1e-4)


def test_labels_of_other_kinds_are_one_error_on_all_ranks():
    X, y = make_classification(100, 5, random_state=5)
    message = error_of_all(lambda rank: LinearSVC(rows="mine").fit(X, y + 0.5 * rank))
    assert "on rank 1: Unknown label type" in message
