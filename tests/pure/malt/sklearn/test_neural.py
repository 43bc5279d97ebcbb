"""malt.sklearn's networks: scikit-learn's checks, how well they learn, and simulated ranks."""

import pickle

import numpy as np
import pytest
from ranks import error_of_all, run_failing
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import malt
from malt.sklearn import MLPClassifier, MLPRegressor

pytestmark = [pytest.mark.single, pytest.mark.filterwarnings("default")]


@pytest.mark.thorough
@parametrize_with_checks(
    [MLPClassifier((20,), max_iter=30), MLPRegressor((20,), max_iter=30)],
    expected_failed_checks=lambda estimator: {
        "check_sample_weight_equivalence_on_dense_data": "rows are drawn in proportion to their weights"
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def digits(classes=10):
    X, y = load_digits(return_X_y=True)
    some = y < classes
    return X[some] / 16, np.array([f"digit {label}" for label in y[some]])


@pytest.mark.parametrize(("rows", "classes", "loss"), [
    ("shard", 10, 0.005), ("shard", 2, 0.005), pytest.param("mine", 10, 0.1, marks=pytest.mark.thorough),
])  # fmt: skip
def test_ranks_end_with_one_model_as_good_as_that_of_one(rows, classes, loss):
    X, y = digits(classes)
    train, test = np.arange(len(y)) % 3 != 0, np.arange(len(y)) % 3 == 0
    order = np.argsort(y[train], kind="stable")  # with rows="mine" each rank has other classes, which costs something

    def live(rank):
        mine = np.array_split(order, malt.size())[rank] if rows == "mine" else order
        found = MLPClassifier((32,), max_iter=60, rows=rows, random_state=rank, every=100, sync="bsp")
        found.fit(X[train][mine], y[train][mine])
        return found.score(X[test], y[test]), found.predict_proba(X)

    alone, chances = malt.simulate(live, 1)[0]
    assert alone > 0.95 and np.allclose(chances.sum(axis=1), 1)
    found = malt.simulate(live, 3)
    assert len({chances.tobytes() for _, chances in found}) == 1
    assert found[0][0] >= alone - loss


def test_numbers_are_learned_at_any_scale_and_several_at_once():
    X, y = load_diabetes(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    flat = MLPRegressor((16,), random_state=0).fit(X, y)
    wide = MLPRegressor((16,), random_state=0).fit(X, np.stack([1e6 + 1e3 * y, -y], axis=1))
    assert flat.predict(X).shape == y.shape and wide.predict(X).shape == (len(y), 2)
    assert flat.score(X, y) > 0.5 and wide.score(X, np.stack([1e6 + 1e3 * y, -y], axis=1)) > 0.5

    def live(rank):
        mine = np.array_split(np.arange(len(y)), 2)[rank]
        return MLPRegressor((16,), rows="mine", random_state=0).fit(X[mine], y[mine]).predict(X)

    one, other = malt.simulate(live, 2)
    assert one.tobytes() == other.tobytes() and np.corrcoef(one, y)[0, 1] > 0.7


@pytest.mark.parametrize("solver", ["adam", "momentum", "adagrad"])
def test_partial_fit_goes_on_with_the_state_of_the_optimizer(solver):
    X, y = digits()
    classes = np.unique(y)
    steps = {"solver": solver, "random_state": 0, "every": 10**6, "alpha": 0.0}
    some, whole = MLPClassifier((16,), **steps), MLPClassifier((16,), **steps)
    for start in [*range(0, 320, 32)] * 3:
        some.partial_fit(X[start : start + 32], y[start : start + 32], classes)
    assert some.n_iter_ == 1 and some.score(X[:320], y[:320]) > 0.5
    for start in [*range(0, 320, 32)] * 3:  # the same steps, each without what the last ones have left
        whole.partial_fit(X[start : start + 32], y[start : start + 32], classes)
        whole._layers.state = [{name: 0 * value for name, value in one.items()} for one in whole._layers.state]
    assert not np.allclose(whole.coefs_[0], some.coefs_[0], atol=1e-3)
    copy = pickle.loads(pickle.dumps(some)).partial_fit(X[320:352], y[320:352])
    some.partial_fit(X[320:352], y[320:352])
    assert copy.predict_proba(X).tobytes() == some.predict_proba(X).tobytes()


def test_ranks_make_as_many_steps_as_one_and_go_on_from_the_same_state():
    X, y = digits()

    def live(rank):
        (first, *_) = MLPClassifier((8,), solver="momentum", max_iter=2, random_state=0).fit(X, y)._layers.state
        return first["updates"], first["velocity"].tobytes()

    ((steps, _),) = malt.simulate(live, 1)
    for ranks in (2, 3):
        found = malt.simulate(live, ranks)
        assert found == [found[0]] * ranks and found[0][0] == pytest.approx(steps, rel=0.05)


def test_rows_of_a_rank_that_fails_are_trained_by_the_others():
    X, y = digits()

    def live(rank):
        return MLPClassifier((16,), max_iter=10, random_state=0, every=100).fit(X, y)

    found, failed = run_failing(3, 0, {1: 40}, live)
    assert failed == {1} and found[0].predict_proba(X).tobytes() == found[2].predict_proba(X).tobytes()
    assert found[0].score(X, y) > 0.9


def test_arguments_that_differ_are_one_error_on_all_ranks():
    X, y = digits(3)
    assert "numbers of a row" in error_of_all(lambda rank: MLPRegressor(rows="mine").fit(X, X[:, : 1 + rank]))
    diverging = MLPClassifier((8,), solver="momentum", learning_rate_init=1e12, max_iter=2)
    assert "diverge" in error_of_all(lambda rank: clone(diverging).fit(X, y))


def test_what_does_not_fit_the_calls_before_is_refused():
    X, y = digits(2)
    model = MLPClassifier((4,)).partial_fit(X, y, np.unique(y))
    for wrong in ({"hidden_layer_sizes": (5,)}, {"solver": "momentum"}):
        with pytest.raises(ValueError, match="must stay"):
            pickle.loads(pickle.dumps(model)).set_params(**wrong).partial_fit(X, y)
    with pytest.raises(ValueError, match="not of the classes"):
        model.partial_fit(X, ["digit 7"] * len(y))
