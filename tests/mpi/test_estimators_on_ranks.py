"""malt.sklearn's estimators on the ranks there are: one model on all, as good as that of one rank."""

import hashlib
import pickle

import numpy as np
import pytest

pytest.importorskip("numba")
pytest.importorskip("sklearn")

from scipy.sparse import csr_array

import malt
from apps.mf.planted import planted
from malt.sklearn import GridSearchCV, LinearSVC, LogisticRegression, MatrixFactorization

A9A = "apps/linear/data/a9a"


@pytest.fixture(scope="module")
def data():
    """The rows of a9a to train on, and those to test on."""
    train = malt.open_svmlight(f"{A9A}/train.svm.xz", n_features=123)
    test = malt.open_svmlight(f"{A9A}/test.svm.xz", n_features=123)
    return csr_array(train.X), np.array(train.y), csr_array(test.X), np.array(test.y)


@pytest.mark.parametrize("rows", ["shard", "mine"])
@pytest.mark.parametrize(
    "estimator", [LogisticRegression(tol=1e-2), LinearSVC(solver="sgd"), LinearSVC(solver="sgd", sync="bsp")], ids=str
)
def test_all_ranks_end_with_one_model_as_good_as_that_of_one(data, estimator, rows):
    X, y, test_X, test_y = data
    if rows == "mine":
        mine = malt.shard(len(y))
        X, y = X[mine], y[mine]
    found = estimator.set_params(rows=rows, random_state=0).fit(X, y)
    scores = found.decision_function(test_X)
    state = pickle.dumps((scores, found.predict(test_X), found.coef_, found.intercept_, found.n_iter_))
    assert len(set(malt.allgather(hashlib.sha256(state).hexdigest()))) == 1
    X, y, *_ = data
    (alone,) = malt.simulate(lambda _: type(found)(**found.get_params()).fit(X, y), 1)
    assert found.score(test_X, test_y) == pytest.approx(alone.score(test_X, test_y), abs=0.005)


def test_partial_fit_ends_each_call_with_one_model(data):
    X, y, test_X, test_y = data
    found = LogisticRegression(rows="mine", random_state=malt.rank())
    mine = np.arange(len(y))[malt.rank() :: malt.size()]
    for batch in np.array_split(mine, 5):
        found.partial_fit(X[batch], y[batch], classes=[-1, 1])
        assert len(set(malt.allgather(hashlib.sha256(found.coef_.tobytes()).hexdigest()))) == 1
    assert found.score(test_X, test_y) >= 0.84


def test_a_search_over_ranks_finds_what_one_rank_finds(data):
    X, y, *_ = data
    X, y = X[:1500], y[:1500]
    search = GridSearchCV(LogisticRegression(tol=1e-2, random_state=0), {"C": [1e-3, 1.0]}, cv=3).fit(X, y)
    (alone,) = malt.simulate(lambda _: [LogisticRegression(C=1.0, tol=1e-2, random_state=0).fit(X, y)], 1)[0]
    assert search.best_params_ == {"C": 1.0}
    assert np.allclose(search.best_estimator_.coef_, alone.coef_, atol=0.05)
    assert len(set(malt.allgather(hashlib.sha256(search.best_estimator_.coef_.tobytes()).hexdigest()))) == 1


def test_ratings_of_a_user_may_lie_on_several_ranks():
    few = [(one, one.users < 400) for one in planted(0)]
    X, test_X = (np.stack([one.users, one.items], axis=1)[chosen] for one, chosen in few)
    y, test_y = (one.ratings[chosen] for one, chosen in few)
    mine = slice(malt.rank(), None, malt.size())
    found = MatrixFactorization(rows="mine", random_state=malt.rank()).fit(X[mine], y[mine])
    predicted = found.predict(test_X)
    assert len(set(malt.allgather(hashlib.sha256(predicted.tobytes()).hexdigest()))) == 1
    (alone,) = malt.simulate(lambda _: MatrixFactorization(random_state=0).fit(X, y), 1)
    assert found.score(test_X, test_y) == pytest.approx(alone.score(test_X, test_y), abs=0.01)


@pytest.mark.parallel
def test_other_rows_than_those_of_other_ranks_are_refused(data):
    X, y, *_ = data
    mine = slice(malt.rank(), 1000 + malt.rank())
    with pytest.raises(ValueError, match='rows="mine"'):
        LinearSVC().fit(X[mine], y[mine])
