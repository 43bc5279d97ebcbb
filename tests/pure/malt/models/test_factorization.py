"""malt.sklearn.MatrixFactorization: scikit-learn's checks, new users and items, and simulated ranks."""

import pickle

import numpy as np
import pytest
from ranks import error_of_all, run_failing
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import malt
from apps.mf.planted import planted
from malt.models.factors import estimator as factorization
from malt.sklearn import MatrixFactorization

pytestmark = [pytest.mark.single, pytest.mark.filterwarnings("default")]


def ratings(users, items):
    """Pairs and ratings of so many users and items to train on, and those to test on."""
    found = []
    for one in planted(0):
        few = (one.users < users) & (one.items < items)
        found += [np.stack([one.users[few], one.items[few]], axis=1), one.ratings[few].astype(np.float64)]
    return found


@pytest.fixture(scope="module")
def data():
    return ratings(400, 300)


def rmse(model, X, y):
    return np.sqrt(np.mean((model.predict(X) - y) ** 2))


def state(model, X):
    """All that is the same on all ranks."""
    arrays = model.user_ids_, model.item_ids_, model.user_factors_, model.user_biases_, model.item_factors_
    return pickle.dumps([one.tobytes() for one in (*arrays, model.item_biases_, model.predict(X))])


def test_scikit_learn_checks_of_two_features(monkeypatch):
    """All pass where pairs are made of two features of the rows."""
    read, ids = factorization.read, factorization.ids

    def pairs(X):
        return np.round(X[:, [0, -1]].astype(float)) if X.shape[1] > 2 else X

    monkeypatch.setattr(factorization, "read", lambda X, y: read(pairs(X), y))
    monkeypatch.setattr(factorization, "ids", lambda X: ids(pairs(X)))
    check_estimator(MatrixFactorization(max_iter=3), on_skip=None)


@pytest.mark.parametrize("rows", ["shard", "mine"])
def test_ranks_end_with_one_model(data, rows):
    """With rows="mine" some users have ratings on several ranks, and text ids are longer on some of them."""
    X, y, test_X, test_y = data

    def live(rank):
        pairs, mine = X, slice(None)
        if rows == "mine":
            pairs = X.astype(str)
            is_short = (X < 10).all(axis=1)
            mine = is_short if rank == 0 else ~is_short & ((X[:, 0] % 3 + X[:, 1] % 2 > 1) == rank - 1)
        found = MatrixFactorization(rows=rows, random_state=rank).fit(pairs[mine], y[mine])
        tests = test_X.astype(pairs.dtype)
        return rmse(found, tests, test_y), state(found, tests)

    errors, states = zip(*malt.simulate(live, 3), strict=True)
    alone = MatrixFactorization(random_state=0).fit(X, y)
    assert len(set(states)) == 1
    assert errors[0] == pytest.approx(rmse(alone, test_X, test_y), rel=0.015)


@pytest.mark.parametrize("rows", ["shard", "mine"])
def test_partial_fit_has_rows_for_new_users_and_items(data, rows):
    X, y, test_X, test_y = data
    old = (X[:, 0] < 300) & (X[:, 1] < 200)

    def live(rank):
        mine = np.arange(len(y)) % 2 == rank if rows == "mine" else np.ones(len(y), bool)
        found = MatrixFactorization(rows=rows, random_state=0).fit(X[mine & old], y[mine & old])
        first = rmse(found, test_X, test_y), found.predict([[0, 0], [399, 0], [0, 299], [399, 299]])
        before = found.user_factors_[:3].copy()
        for _ in range(5):
            found.partial_fit(X[mine & ~old], y[mine & ~old])
        assert found.user_ids_.tolist() == list(range(400)) and found.item_ids_.tolist() == list(range(300))
        assert 0 < np.abs(found.user_factors_[:3] - before).max() < 0.5
        return first, rmse(found, test_X, test_y), state(found, test_X)

    (first, second, mine), (*_, theirs) = malt.simulate(live, 2)
    assert mine == theirs
    error, (_, new_user, new_item, new_both) = first
    assert new_both == pytest.approx(y[old].mean(), abs=1e-4)
    assert abs(new_user + new_item - 2 * new_both) > 0.01  # biases
    assert second < 0.8 * error


def test_partial_fit_alone_learns_and_goes_on(data):
    X, y, test_X, test_y = data
    found = MatrixFactorization(random_state=0)
    for _ in range(10):
        found.partial_fit(X, y)
    fitted = MatrixFactorization(random_state=0).fit(X, y)
    before = rmse(fitted, test_X, test_y)
    assert rmse(found, test_X, test_y) < 1.1 * before
    assert rmse(fitted.partial_fit(X[:100], y[:100]), test_X, test_y) < 1.02 * before
    with pytest.raises(ValueError, match="ids must stay"):
        fitted.partial_fit(X[:5].astype(str), y[:5])
    with pytest.raises(ValueError, match="n_factors and biases must stay 16 and True"):
        fitted.set_params(n_factors=8).partial_fit(X[:5], y[:5])


def test_the_penalty_counts_the_ratings_of_all_calls(data):
    """A user with one rating in each call is held back less and less."""
    found = MatrixFactorization(alpha=1.0, learning_rate=0.1, random_state=0)
    X, y = np.array([[0, 0], [1, 0], [0, 1], [1, 1]]), [5.0, 1.0, 5.0, 1.0]
    for _ in range(100):
        found.partial_fit(X, y)
    assert found.user_biases_[0] > 0.25  # 2 ratings: 1 / (1 + 30 / 2) / 2 at most


@pytest.mark.parametrize(("users", "kind"), [
    (["zoë", "ann", "zoë"], "U"), (np.array(["b", "a", "b"], object), "U"), (np.array([7, 3, 7], object), "i"),
    (np.array([7.0, 3.0, 7.0]), "i"), (np.array([7, 3, 7], np.uint8), "i"), ([b"z", b"a", b"z"], "U"),
], ids=str)  # fmt: skip
def test_ids(users, kind):
    X = np.empty((3, 2), object)
    X[:, 0], X[:, 1] = list(users), [1, 2, 2]
    found = MatrixFactorization(random_state=0).fit(X, [1.0, 2.0, 3.0])
    names = [name.decode() if isinstance(name, bytes) else name for name in users]
    assert found.user_ids_.tolist() == sorted(set(names)) and found.user_ids_.dtype.kind == kind
    assert found.item_ids_.tolist() == [1, 2]
    expected = found.mean_ + found.spread_ * (
        found.user_biases_[0] + found.item_biases_ + found.item_factors_ @ found.user_factors_[0]
    )
    X[:2, 0], X[:2, 1] = users[1], [1, 2]
    assert found.predict(X[:2]) == pytest.approx(np.clip(expected, 1, 3), rel=1e-5)


@pytest.mark.parametrize(("X", "y", "message"), [
    ([[1, 2, 3]], [1.0], "got n_features=3"), ([1, 2], [1.0, 2.0], "Expected 2D"),
    ([[1, 2]], [1.0, 2.0], "inconsistent"),
    ([[1, 2.5]], [1.0], "those of items are object"), ([[1, None]], [1.0], "object"),
    ([[2**63, 1]], [1.0], "of users"),
    ([[(1, 2), (3, 4)]], [1.0], "integers"), ([[1, 2]], ["good"], "numbers"), ([[1, 2]], [np.inf], "infinity"),
    ([[1, 2]], [1e300], "float32"), ([[1, 2]], [1j], "Complex"), ([[1, 2]], [[1.0, 2.0]], "1d array"),
], ids=str)  # fmt: skip
def test_wrong_pairs_and_ratings_are_refused(X, y, message):
    if isinstance(X[0], list):
        pairs = np.empty((1, len(X[0])), object)
        for column, one in enumerate(X[0]):
            pairs[0, column] = one
        X = pairs
    with pytest.raises(ValueError, match=message):
        MatrixFactorization().fit(X, y)


def test_columns_in_another_order_are_refused(data, monkeypatch):
    X, y, *_ = data
    for names in (["userId", "movieId"], ["a", "b"]):
        monkeypatch.setattr("sklearn.utils.validation._get_feature_names", lambda X, n=names: np.array(n, object))
        MatrixFactorization(2, max_iter=1).fit(X, y)
    for names in (["movieId", "userId"], ["userId", "timestamp"]):
        monkeypatch.setattr("sklearn.utils.validation._get_feature_names", lambda X, n=names: np.array(n, object))
        with pytest.raises(ValueError, match=f"X must have users, then items, got columns {' and '.join(names)}"):
            MatrixFactorization(2, max_iter=1).fit(X, y)


@pytest.mark.parametrize("wrong", [
    {"n_factors": 0}, {"n_factors": 2000}, {"n_factors": 2.5}, {"alpha": -1}, {"alpha": "1"}, {"learning_rate": np.nan},
    {"max_iter": 0}, {"biases": 1}, {"rows": "all"},
], ids=str)  # fmt: skip
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        MatrixFactorization(**wrong).fit([[1, 2]], [1.0])


def test_clone_pickle_pipeline_and_search(data):
    X, y, test_X, test_y = data
    steps = make_pipeline(FunctionTransformer(), MatrixFactorization(max_iter=3, random_state=0))
    search = GridSearchCV(steps, {"matrixfactorization__alpha": [0.05, 5.0]}, cv=2).fit(X, y)
    assert search.best_params_ == {"matrixfactorization__alpha": 0.05}
    best = search.best_estimator_[-1]
    assert best.score(test_X, test_y) == r2_score(test_y, best.predict(test_X))
    assert not np.array_equal(best.predict(test_X), clone(best).set_params(biases=False).fit(X, y).predict(test_X))
    copy = pickle.loads(pickle.dumps(best))
    assert state(copy, test_X) == state(best, test_X) == state(clone(best).fit(X, y), test_X)
    assert state(copy.partial_fit(X[:9], y[:9]), test_X) == state(best.partial_fit(X[:9], y[:9]), test_X)


def test_ratings_of_a_rank_that_fails_count(data):
    X, y, test_X, test_y = data
    found, failed = run_failing(
        3, 0, {1: 300}, lambda rank: MatrixFactorization(rows="mine", random_state=0).fit(X[rank::3], y[rank::3])
    )
    assert failed == {1}
    alone = MatrixFactorization(random_state=0).fit(X, y)
    assert state(found[0], test_X) == state(found[2], test_X)
    assert rmse(found[0], test_X, test_y) == pytest.approx(rmse(alone, test_X, test_y), rel=0.02)


def test_arguments_that_differ_are_one_error_on_all_ranks(data):
    X, y, *_ = data
    cases = {
        'rows="mine"': lambda rank: MatrixFactorization().fit(X[rank:], y[rank:]),
        "the ids of X": lambda rank: MatrixFactorization().fit(X + rank, y),
        "the parameter ": lambda rank: MatrixFactorization(alpha=1.0 + rank).fit(X, y),
        "text (S) or integers (i)": lambda rank: MatrixFactorization(rows="mine").fit(X.astype("iU"[rank]), y),
        "on rank 1: X must have 2": lambda rank: MatrixFactorization().fit(X[:, : 2 - rank], y),
        "on rank 1: Found array with 0": lambda rank: (
            MatrixFactorization(rows="mine").fit(X[: 9 - 9 * rank], y[: 9 - 9 * rank])
        ),
        "learning_rate=1e+10 is too large": lambda rank: MatrixFactorization(
            learning_rate=1e10, max_iter=1).fit([*[[0, 0]] * 20, [1, 1]], range(21)),  # on one rank alone
    }  # fmt: skip
    for message, call in cases.items():
        assert message in error_of_all(call)
