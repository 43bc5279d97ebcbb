"""malt.sklearn.GridSearchCV: fits are dealt to ranks, and all have the results of scikit-learn's."""

from contextlib import nullcontext

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn import base, model_selection

import malt
from malt.sklearn import GridSearchCV


class Ridge(base.RegressorMixin, base.BaseEstimator):
    """Ridge regression, with noise of NumPy's global generator; l2 < 0 is an error."""

    def __init__(self, l2=1.0, noise=0.0):
        self.l2, self.noise = l2, noise

    def fit(self, X, y):
        if self.l2 < 0:
            raise ValueError(f"l2 is {self.l2}")
        self.world_ = [malt.rank(), malt.size()]
        self.coef_ = np.linalg.solve(X.T @ X + self.l2 * np.eye(X.shape[1]), X.T @ y)
        self.coef_ = self.coef_ + self.noise * np.random.standard_normal(X.shape[1])
        return self

    def predict(self, X):
        return X @ self.coef_


class Weighted(Ridge):
    """One whose fit takes weights of rows."""

    def fit(self, X, y, weights=None):
        return super().fit(X, y)


def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    return X, X @ [1.0, 2.0, 3.0, 4.0] + rng.normal(size=60)


def alike(*arrays):
    data = b"".join(np.ascontiguousarray(one).tobytes() for one in arrays)
    return len(set(malt.init().transport.allgather(data))) == 1


@pytest.mark.parametrize("candidates", [7, 1])
def test_all_ranks_have_the_results_of_scikit_learn(everywhere, candidates):
    """Also with fewer fits than ranks."""
    grid, cv = {"l2": np.logspace(-2, 4, candidates)}, 2 if candidates == 1 else 3
    options = {"cv": cv, "return_train_score": True, "scoring": ["r2", "neg_max_error"], "refit": "r2"}
    expected = model_selection.GridSearchCV(Ridge(), grid, **options).fit(*rows())

    def live(rank):
        found = GridSearchCV(Ridge(), grid, **options).fit(*rows())
        assert list(found.cv_results_) == list(expected.cv_results_)
        for name, values in expected.cv_results_.items():
            if "time" not in name:
                np.testing.assert_array_equal(found.cv_results_[name], values)
            elif malt.size() > 1:
                assert alike(found.cv_results_[name])
        assert (found.best_params_, found.best_score_) == (expected.best_params_, expected.best_score_)
        assert (found.best_estimator_.coef_ == expected.best_estimator_.coef_).all()
        assert found.best_estimator_.world_ == [rank, malt.size()]
        assert type(base.clone(found)) is GridSearchCV

    everywhere(live)


@pytest.mark.parallel
def test_fits_are_dealt_and_train_alone():
    fits = []

    class Counted(Ridge):
        def fit(self, X, y):
            super().fit(X, y)
            fits.append(self.world_)
            return self

    GridSearchCV(Counted(), {"l2": [1.0, 2.0, 3.0]}, cv=3, refit=False).fit(*rows())
    counts = malt.allgather(len(fits))
    assert sum(counts) == 9 and max(counts) == -(-9 // malt.size())
    assert fits == [[0, 1]] * len(fits)


@pytest.mark.parallel
def test_what_is_random_is_the_same_on_all_ranks():
    np.random.seed(malt.rank())
    state = np.random.get_state()[1].tobytes()
    found = GridSearchCV(Ridge(noise=0.1), {"l2": [1.0, 2.0]}, cv=2).fit(*rows())
    assert alike(found.best_estimator_.coef_, *found.cv_results_["mean_test_score"])
    assert np.random.get_state()[1].tobytes() == state


def test_fits_that_fail():
    """Also where all of them are of one rank."""
    grid = {"l2": [-1.0, 1.0]}
    with pytest.warns(Warning, match="2 fits failed out of a total of 4|scores are non-finite"):
        found = GridSearchCV(Ridge(), grid, cv=2).fit(*rows())
    assert np.isnan(found.cv_results_["mean_test_score"]).tolist() == [True, False]
    assert found.best_params_ == {"l2": 1.0}
    with pytest.raises(ValueError, match="l2 is -1"):
        GridSearchCV(Ridge(), grid, cv=2, error_score="raise").fit(*rows())
    with pytest.raises(ValueError, match="All the 2 fits failed"):
        GridSearchCV(Ridge(), {"l2": [-1.0]}, cv=2).fit(*rows())


@pytest.mark.parallel
def test_what_ranks_must_have_alike():
    (X, y), rank = rows(), malt.rank()
    folds = model_selection.KFold(3, shuffle=True, random_state=rank)
    with pytest.raises(ValueError, match=r"GridSearchCV: ranks disagree on splits \(has cv a random_state\?\): rank 0"):
        GridSearchCV(Ridge(), {"l2": [1.0]}, cv=folds).fit(X, y)
    with pytest.raises(ValueError, match="ranks disagree on X: rank 0"):
        GridSearchCV(Ridge(), {"l2": [1.0]}, cv=3).fit(X + rank, y)
    with pytest.raises(ValueError, match="ranks disagree on the candidates of .*: rank 0"):
        GridSearchCV(Ridge(), {"l2": [1.0 + rank]}, cv=3).fit(X, y)
    with pytest.raises(ValueError, match="ranks disagree on the candidates of .*: rank 0 has list "):
        GridSearchCV(Ridge(), {"l2": [[1.0, [rank]]]}, cv=3).fit(X, y)
    with pytest.raises(ValueError, match="ranks disagree on X: rank 0 has list .*, rank 1 has list"):
        GridSearchCV(Ridge(), {"l2": [1.0]}, cv=3).fit([f"text {rank}"] * 60, y)
    with pytest.raises(ValueError, match="ranks disagree on the parameters of fit: rank 0 has"):
        GridSearchCV(Weighted(), {"l2": [1.0]}, cv=3).fit(X, y, weights=np.arange(60) + rank)
    unknown = "cannot compare y between ranks: it holds values of class object"
    warned = pytest.warns(RuntimeWarning, match=unknown) if rank == 0 else nullcontext()
    with warned, pytest.raises(ValueError, match="disagree on X"):
        GridSearchCV(Ridge(), {"l2": [1.0]}, cv=3).fit(X + rank, [object()] * 60)
