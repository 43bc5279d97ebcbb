"""malt.sklearn.average: ranks that come, or come back, train on from the model of the others."""

import numpy as np
import pytest
from returning import Job
from sklearn.cluster import MiniBatchKMeans
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.neural_network import MLPClassifier, MLPRegressor

import malt
from malt.sklearn import average

pytestmark = pytest.mark.filterwarnings("ignore:Got `batch_size`:UserWarning")

CALLS, ROWS, CLASSES = 60, 24, np.arange(3)
KINDS = {
    "linear": lambda: SGDClassifier(random_state=0),
    "averaged": lambda: SGDClassifier(average=True, random_state=0),
    "network": lambda: MLPClassifier((4,), learning_rate_init=0.05, random_state=0),
    "regressor": lambda: MLPRegressor(hidden_layer_sizes=(4,), random_state=0),
    "clusters": lambda: MiniBatchKMeans(3, n_init=1, random_state=0),
}
NAMED = ("linear", "averaged", "network")
"""Those that are told of the classes."""


def rows(seed):
    """Rows around a point for each class, and their classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(ROWS) % len(CLASSES)
    return rng.normal(size=(ROWS, 5)) + 4 * np.eye(5)[y], y


def fitted(estimator):
    """The estimator, fitted before the ranks train."""
    more = {"classes": CLASSES} if isinstance(estimator, (SGDClassifier, MLPClassifier)) else {}
    for seed in range(3):
        estimator.partial_fit(*rows(seed), **more)
    return estimator


def state(model):
    """The bytes of what ranks have alike in the end."""
    names = ("coef_", "intercept_", "coefs_", "intercepts_", "cluster_centers_", "t_", "n_steps_")
    return repr([vars(model)[name] for name in names if name in vars(model)])


def train(transport, kind, is_fitted=False, calls=CALLS):
    """Partial_fit until some rank has called it so often; return the state at the end, the calls of the others before
    the first one of this rank, its own, what its counter was before, and how many rows the model gets right.
    """
    estimator = KINDS[kind]()
    model = average(fitted(estimator) if is_fitted else estimator, every=1)
    averaging, given, began, counter = model._averaging, {"classes": CLASSES} if kind in NAMED else {}, None, None
    while began is None or averaging._replica._count < calls:
        X, y = rows(1000 * transport.rank + averaging._state.calls)
        model.partial_fit(*((X,) if kind == "clusters" else (X, y)), **given)
        if began is None:
            began, counter = averaging._replica._count - 1, averaging._counts_from
        transport.pause(14)
    model.finish()
    X, y = rows(7)
    return state(model), began, averaging._state.calls, counter, float(np.mean(model.predict(X) == y))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_one_that_comes_trains_on_from_the_model_of_the_others(kind, seed):
    """Also what was fitted before. It counts on from their counter, by which the steps of a learning rate shrink."""
    job = Job(3, seed, {2: 10 + 9 * seed}, {2: [0]}, absent=(2,))
    found = job.run(lambda transport: train(transport, kind, is_fitted=kind != "network" and seed == 1))
    assert all(isinstance(one, tuple) for one in found), found
    states, began, calls, counters, right = zip(*found, strict=True)
    assert len(set(states)) == 1, found
    assert began[0] == began[1] == 0 and began[2] > 2 and calls[2] < CALLS, found
    assert counters[0] == counters[1] and counters[2] - counters[0] == began[2] * (1 if kind == "clusters" else ROWS)
    assert kind in ("clusters", "regressor") or min(right) > 0.9


@pytest.mark.parametrize("kind", ["linear", "network", "clusters"])
def test_one_that_comes_and_has_no_rows_ends_with_the_model_of_the_others(kind):
    def live(transport):
        if not transport.returns.barrier.is_outside:
            return train(transport, kind)[0]
        model = average(KINDS[kind](), every=1)
        model.finish()
        return state(model)

    found = Job(3, 1, {2: 15}, {2: [0]}, absent=(2,)).run(live)
    assert len(set(found)) == 1 and found[0] is not None, found


@pytest.mark.parametrize("seed", range(6))
def test_one_that_comes_between_the_others_first_calls_begins_with_them(seed):
    """They have called average, and not partial_fit."""

    def live(transport):
        model = average(KINDS["linear"](), every=1)
        while len(malt.alive()) < 3:
            transport.pause(14)
            transport.poll_failures()
        for call in range(5):
            model.partial_fit(*rows(call), classes=CLASSES)
        model.finish()
        return state(model), model._averaging._replica._count

    found = Job(3, seed, {2: 3 + 2 * seed}, {2: [0]}, absent=(2,)).run(live)
    assert len({str(one) for one in found}) == 1 and found[0][1] == 5, found


def test_two_that_are_trained_in_turn():
    """And a Replica between them, which is made before either begins."""

    def live(transport):
        one, replica, other = average(KINDS["linear"](), every=1), malt.Replica(np.zeros(3), every=1), None
        other = average(KINDS["clusters"](), every=1)
        while replica._count < CALLS:
            X, y = rows(1000 * transport.rank + replica._count)
            one.partial_fit(X, y, classes=CLASSES)
            other.partial_fit(X)
            replica.step()
            transport.pause(14)
        for each in (one, other, replica):
            each.finish()
        return state(one), state(other)

    found = Job(3, 1, {2: 20}, {2: [0]}, absent=(2,)).run(live)
    assert len(set(found)) == 1 and isinstance(found[0], tuple), found


def test_counts_are_of_ranks_that_stay(monkeypatch):
    """Nobody knows what a rank has counted before the end."""
    why = "MultinomialNB: ranks add up at the end what they have counted, which is lost where one leaves or fails"

    def live(transport):
        model = average(MultinomialNB())
        for call in range(CALLS):
            model.partial_fit(np.abs(rows(call)[0]), rows(call)[1], classes=CLASSES)
            transport.pause(14)
        return "ends"

    found = Job(3, 1, {1: 30}, {1: [0]}).run(live)
    assert found == ["ends", f"out: malt: rank 1 stays out: malt.sklearn.average: {why}", "ends"]
    monkeypatch.setattr(type(malt.init()), "is_elastic", True)
    with pytest.raises(ValueError, match=f"^malt.sklearn.average: {why}: start it without --elastic$"):
        average(MultinomialNB())


def test_other_parameters_are_refused_in_a_line():
    def live(transport):
        model = average(SGDClassifier(alpha=0.1 if transport.returns.barrier.is_outside else 0.2), every=1)
        for call in range(CALLS):
            model.partial_fit(*rows(call), classes=CLASSES)
            transport.pause(14)
        return "ends"

    out = "malt: rank 1 stays out: malt.sklearn.average: the parameter alpha is 0.1, and the others have 0.2"
    assert Job(3, 1, {1: 30}, {1: [0]}).run(live) == ["ends", f"out: {out}", "ends"]
