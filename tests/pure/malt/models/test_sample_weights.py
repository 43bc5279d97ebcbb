"""Sample weights of malt.sklearn: a weight of 0 leaves a row out, integers repeat it, on one rank and on several."""

import numpy as np
import pytest
from ranks import error_of_all
from scipy.sparse import csr_array
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import make_classification
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import MultinomialNB

import malt
from malt.models.rows import kept
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

X, Y = make_classification(240, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=0)
WEIGHTS = np.random.default_rng(1).integers(0, 5, 240)
REPEATED = np.repeat(np.arange(240), WEIGHTS)
EXACT = {
    "svc": lambda **more: LinearSVC(tol=1e-10, random_state=0, **more),
    "logistic": lambda **more: LogisticRegression(tol=1e-10, random_state=0, **more),
    "trees": lambda **more: HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=1, random_state=0, **more),
    "numbers": lambda **more: HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=1, random_state=0, **more),
}
DRAWN = {
    "hinge": lambda **more: LinearSVC(loss="hinge", solver="sgd", max_iter=10, random_state=0, **more),
    "softmax": lambda **more: LogisticRegression(solver="sgd", max_iter=10, random_state=0, **more),
    "network": lambda **more: MLPClassifier((8,), max_iter=60, sync="bsp", random_state=0, **more),
    "numbers": lambda **more: MLPRegressor((8,), max_iter=60, sync="bsp", random_state=0, **more),
}
EVERY = {**EXACT, **{f"{name} drawn": make for name, make in DRAWN.items()}}


def scores(model, rows=X):
    return (model.decision_function if hasattr(model, "decision_function") else model.predict)(rows)


@pytest.mark.thorough(but="logistic-3-shard")
@pytest.mark.parametrize("ranks, rows", [(1, "shard"), (3, "shard"), (2, "mine")])
@pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
@pytest.mark.filterwarnings("ignore")
def test_rows_of_weight_zero_are_as_if_they_were_not_there(make, ranks, rows):
    weights = np.linspace(0.5, 2, 240) * (WEIGHTS > 0)

    def live(rank):
        mine = np.arange(rank, 240, ranks) if rows == "mine" else np.arange(240)
        left = mine[weights[mine] > 0]
        whole = make(rows=rows).fit(X[mine], Y[mine], sample_weight=weights[mine])
        return scores(whole), scores(make(rows=rows).fit(X[left], Y[left], sample_weight=list(weights[left])))

    for whole, left in malt.simulate(live, ranks):
        np.testing.assert_array_equal(whole, left)


@pytest.mark.thorough(but="trees-2-mine")
@pytest.mark.parametrize("ranks, rows", [(1, "shard"), (3, "shard"), (2, "mine")])
@pytest.mark.parametrize("make", EXACT.values(), ids=EXACT)
@pytest.mark.filterwarnings("ignore")
def test_integers_repeat_rows(make, ranks, rows):
    repeated = make().fit(X[REPEATED], Y[REPEATED])

    def live(rank):
        mine = np.arange(rank, 240, ranks) if rows == "mine" else np.arange(240)
        return make(rows=rows).fit(X[mine], Y[mine], sample_weight=WEIGHTS[mine])

    found = malt.simulate(live, ranks)
    for one in found:
        np.testing.assert_array_equal(scores(one), scores(found[0]))
        np.testing.assert_allclose(scores(one), scores(repeated), rtol=1e-5, atol=1e-6)


def test_sparse_rows_and_parts_of_a_weight():
    """The minimum is that of C times the weights: of twice the weight and half of C."""
    twice = LogisticRegression(C=0.5, tol=1e-10).fit(csr_array(X), Y, sample_weight=2 * np.linspace(0.1, 1, 240))
    once = LogisticRegression(tol=1e-10).fit(X, Y, sample_weight=np.linspace(0.1, 1, 240))
    np.testing.assert_allclose(twice.coef_, once.coef_, rtol=1e-5)
    plain, ones = (LogisticRegression(tol=1e-10).fit(X, Y, sample_weight=one) for one in (None, np.ones(240)))
    np.testing.assert_allclose(plain.coef_, ones.coef_, rtol=1e-5)


@pytest.mark.thorough(but="1-hinge")
@pytest.mark.parametrize("make", DRAWN.values(), ids=DRAWN)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.filterwarnings("ignore")
def test_drawn_rows_count_as_often_as_their_weights_say(make, ranks):
    """Rows of class 0 have labels of class 1, too, at a weight of 19 or of 1: the heavier label wins."""
    rows = np.tile(np.flatnonzero(Y == 0), 2)
    labels = np.repeat([0, 1], len(rows) // 2)
    for heavy in (0, 1):
        weights = np.where(labels == heavy, 19.0, 1.0)
        for model in malt.simulate(lambda rank, w=weights: make(every=10).fit(X[rows], labels, sample_weight=w), ranks):
            assert np.mean(np.rint(model.predict(X[rows])) == heavy) > 0.9


def test_each_row_is_drawn_about_as_often_as_it_weighs():
    from malt.models.rows import Weights

    given, generator = np.array([0.5, 0.25, 3.0, 1.25]), np.random.default_rng(0)
    weights = Weights(given, True, {0: {"_weight": 5.0, "_heaviest": 3.0}}, 0, 4)
    counts = np.zeros(4)
    for _ in range(2000):
        order = weights.drawn(generator.permutation(4), np.arange(4), generator)
        assert len(order) == 4
        here = np.bincount(order, minlength=4)
        assert (np.abs(here - given * 4 / 5) < 1).all()  # the number next below or above
        counts += here
    np.testing.assert_allclose(counts / 2000, given * 4 / 5, atol=0.05)


def test_without_weights_rows_are_not_copied():
    found = kept(X, Y, None)
    assert found[0] is X and found[1] is Y and found[2] is None


CLASSIFIER = LogisticRegression(random_state=0)


@pytest.mark.parametrize("weights_of, message", [
    (lambda rank: -np.ones(240), "Negative values in data"), (lambda rank: np.ones(3), "sample_weight.shape"),
    (lambda rank: np.zeros(240), "must contain at least one non-zero"),
    (lambda rank: np.full(240, np.nan), "contains NaN"),
    (lambda rank: None if rank else np.ones(240), "ranks disagree on sample_weight: rank 0 has given, rank 1"),
    (lambda rank: np.arange(240) + rank, "ranks disagree on the checksum of sample_weight"),
], ids=["negative", "short", "zero", "nan", "of one rank", "other"])  # fmt: skip
def test_weights_that_are_wrong(weights_of, message):
    assert message in error_of_all(lambda rank: LogisticRegression().fit(X, Y, sample_weight=weights_of(rank)))


def test_scores_and_searches_take_weights():
    model = LogisticRegression().fit(X, Y, sample_weight=WEIGHTS)
    right = model.predict(X) == Y
    assert model.score(X, Y, sample_weight=WEIGHTS) == pytest.approx(np.average(right, weights=WEIGHTS))

    def live(rank):
        search = GridSearchCV(LogisticRegression(tol=1e-8), {"C": [0.01, 1.0]}, cv=3)
        return search.fit(X, Y, sample_weight=WEIGHTS)

    (alone,), ranks = malt.simulate(live, 1), malt.simulate(live, 2)
    for one in ranks:
        np.testing.assert_array_equal(one.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
        np.testing.assert_allclose(one.best_estimator_.coef_, alone.best_estimator_.coef_, rtol=1e-5)


def averaged(make, weights, ranks, **given):
    """The models of ranks that each train on every so many rows, with weights or with rows repeated."""

    def live(rank):
        model = average(make(), every=100)  # once, in finish
        mine = np.arange(rank, 240, ranks)
        model.partial_fit(np.abs(X[mine]), Y[mine], sample_weight=weights[mine], **given)
        model.finish()
        return model

    return malt.simulate(live, ranks)


def test_averaged_counts_add_up_weights():
    alone = MultinomialNB().fit(np.abs(X), Y, sample_weight=WEIGHTS)
    for model in averaged(MultinomialNB, WEIGHTS, 3, classes=[0, 1, 2]):
        np.testing.assert_allclose(model.feature_log_prob_, alone.feature_log_prob_)
        np.testing.assert_allclose(model.class_count_, np.bincount(Y, WEIGHTS))


def test_averaged_centres_count_weights():
    def make():
        return MiniBatchKMeans(3, random_state=0, n_init=1, reassignment_ratio=0)

    for model in averaged(make, WEIGHTS, 2):
        assert model._counts.sum() == pytest.approx(WEIGHTS.sum(), rel=1e-3)


def test_averaged_linear_models_take_weights():
    """As one that was trained on each rank alone, and the mean of the two."""
    models = averaged(lambda: SGDClassifier(random_state=0), WEIGHTS, 2, classes=[0, 1, 2])
    apart = [SGDClassifier(random_state=0).partial_fit(
        np.abs(X[rank::2]), Y[rank::2], classes=[0, 1, 2], sample_weight=WEIGHTS[rank::2]) for rank in range(2)
    ]  # fmt: skip
    for model in models:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        np.testing.assert_allclose(model.coef_, np.mean([one.coef_ for one in apart], axis=0), rtol=1e-12)


def test_penalties_and_standardized_targets_count_weights():
    """The penalty of leaves stands against weights as they are, and the mean of targets is theirs."""
    make, targets = EXACT["numbers"], Y + np.random.default_rng(2).normal(size=240)  # of integers splits are equal
    weighted = make(l2_regularization=5.0).fit(X, targets, sample_weight=WEIGHTS)
    repeated = make(l2_regularization=5.0).fit(X[REPEATED], targets[REPEATED])
    np.testing.assert_allclose(scores(weighted), scores(repeated), rtol=1e-5)
    network = DRAWN["numbers"]().fit(X, targets, sample_weight=WEIGHTS)
    assert network._mean == pytest.approx(targets[REPEATED].mean())
    assert network._spread == pytest.approx(targets[REPEATED].std())
