"""malt.sklearn.average: partial_fit loops of all ranks begin alike, exchange, and end with one model."""

import copy
import pickle
import re
import sys
from importlib import import_module

import numpy as np
import pytest
from ranks import on_all_ranks

pytest.importorskip("sklearn")

import malt
from dstorm import ClosedError
from malt.sklearn import average

pytestmark = pytest.mark.filterwarnings("ignore:Class PassiveAggressive:FutureWarning")

KINDS = {
    "sgd": ("linear_model", "SGDClassifier", dict(random_state=0)),
    "averaged sgd": ("linear_model", "SGDClassifier", dict(average=20, loss="log_loss")),
    "perceptron": ("linear_model", "Perceptron", {}),
    "passive": ("linear_model", "SGDClassifier", dict(loss="hinge", penalty=None, learning_rate="pa1", eta0=1.0)),
    "regressor": ("linear_model", "SGDRegressor", {}),
    "averaged regressor": ("linear_model", "SGDRegressor", dict(average=True)),
    "one class": ("linear_model", "SGDOneClassSVM", dict(average=True)),
    "network": ("neural_network", "MLPClassifier", dict(hidden_layer_sizes=(4,))),
    "network of numbers": ("neural_network", "MLPRegressor", dict(hidden_layer_sizes=(4,), solver="sgd")),
    "clusters": ("cluster", "MiniBatchKMeans", dict(n_clusters=3, n_init=2)),
}
STATE = ("coef_", "intercept_", "offset_", "coefs_", "intercepts_", "cluster_centers_", "_counts", "_average_coef",
         "_standard_coef", "t_", "n_steps_")  # fmt: skip


def estimator(kind, **parameters):
    module, name, own = KINDS[kind]
    return getattr(pytest.importorskip(f"sklearn.{module}"), name)(**{**own, **parameters})


def rows(seed, count=12, dtype=float):
    """Rows and labels of three classes; a number is its class as well."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(count) % 3)
    return (rng.normal(size=(count, 5)) + 3 * np.eye(5)[y]).astype(dtype), y


def state(model):
    """The bytes of all that ranks must have alike at the end."""
    arrays = [vars(model)[name] for name in STATE if name in vars(model)]
    return b"".join(np.asarray(one).tobytes() for each in arrays for one in (each if type(each) is list else [each]))


def alike(data):
    return len(set(malt.init().transport.allgather(data))) == 1


def train(model, calls, dtype=float):
    for call in range(calls):
        X, y = rows(100 * malt.rank() + call, dtype=dtype)
        if is_classifier(model):
            model.partial_fit(X, y, classes=[0, 1, 2])
        else:
            model.partial_fit(X, y)


def is_classifier(model):
    return type(model).__name__.removeprefix("Averaged") in ("SGDClassifier", "Perceptron", "MLPClassifier")


CHEAP = ("averaged sgd", "clusters")


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in CHEAP else pytest.mark.thorough) for kind in KINDS]
)
@on_all_ranks
def test_ranks_end_with_one_model(rank, kind):
    plain = estimator(kind, random_state=rank)
    model = average(plain, every=2, sync="bsp" if kind == "clusters" else "asp")
    dtype = np.float32 if "averaged" in kind else float
    train(model, 5 + rank, dtype)
    model.finish()
    assert isinstance(model, type(plain)) and alike(state(model))
    X, y = rows(1, 300, dtype)
    assert alike(model.predict(X).tobytes())
    if malt.size() == 1:
        alone = estimator(kind, random_state=rank)
        train(alone, 5, dtype)
        assert state(alone) == state(model), "one rank is the estimator alone"
    if is_classifier(model) and "network" not in kind:
        assert model.score(X, y) > 0.8
    if hasattr(model, "t_"):
        ranks = malt.size()
        calls = ranks * 5 + ranks * (ranks - 1) // 2
        assert model.t_ == 12 * calls + ("network" not in kind)


@pytest.mark.parametrize("kind", CHEAP)
@on_all_ranks
def test_all_ranks_agree_and_go_on(rank, kind):
    """A rank that finishes meanwhile is left out, and waits."""
    model, X = average(estimator(kind, random_state=0), every=2), rows(1)[0]
    assert model.statistics().sent == 0
    train(model, 3 + rank)
    found = model.statistics()
    assert found.every == 2 and (found.sent > 0) == (malt.size() > 1)
    model.agree()
    assert alike(model.predict(X).tobytes()) and alike(model.score(*rows(1)).hex().encode())
    if rank:
        train(model, 2)
        model.agree()
    model.finish()
    assert alike(state(model))
    if hasattr(model, "t_"):
        calls = sum(3 + one + 2 * (one > 0) for one in range(malt.size()))
        assert model.t_ == 12 * calls + 1
    with pytest.raises(ClosedError, match="finish was called before"):
        model.agree()


@pytest.mark.parametrize("kind", ["averaged sgd", "averaged regressor", "one class"])
@on_all_ranks
def test_means_over_steps_that_have_begun_on_one_rank_alone(rank, kind):
    """They are the model of all ranks. The others have none, and do not count in them."""
    alone = estimator(kind, average=20, random_state=0)
    for call in range(4):
        X, y = rows(call)
        alone.partial_fit(X, y, classes=[0, 1, 2]) if is_classifier(alone) else alone.partial_fit(X, y)
    model = average(estimator(kind, average=20, random_state=0), every=1000)
    train(model, 1 if rank else 4)
    model.agree()
    for name in ("coef_", "offset_" if kind == "one class" else "intercept_"):
        found = getattr(model, name)
        assert alike(found.tobytes())
        np.testing.assert_allclose(found, getattr(alone, name), rtol=1e-12, err_msg=name)
    train(model, 1)
    model.finish()
    assert alike(state(model))


@on_all_ranks
def test_calls_that_change_no_coefficient_are_not_warned_about(rank, capfd):
    """Those of a Perceptron that makes no mistake, as often as each rank may call it."""
    X, y = rows(0)
    plain = estimator("perceptron").fit(X, y)
    model, before = average(plain, every=1000), plain.coef_.copy()
    for _ in range(1 + rank):
        model.partial_fit(X, y)
    model.finish()
    np.testing.assert_allclose(model.coef_, before, rtol=1e-12)  # a mean of five equal numbers is rounded
    assert "malt" not in capfd.readouterr().err


@on_all_ranks
def test_a_rank_without_rows_ends_as_the_others(rank):
    """The first rank or the last one calls finish alone."""
    for without, kind in ((0, "network"), (malt.size() - 1, "averaged regressor"), (malt.size() - 1, "clusters")):
        model = average(estimator(kind), every=2)
        train(model, 0 if rank == without and malt.size() > 1 else 3)
        model.finish()
        assert alike(state(model)) and alike(model.predict(rows(1)[0]).tobytes())
    idle = average(estimator("sgd"))
    idle.finish()
    assert not hasattr(idle, "coef_"), "no rank has rows"


@on_all_ranks
def test_classes_are_those_of_all_ranks(rank):
    for kind in ("sgd", "network"):
        names = np.array(["one", "two", "three", "four", "five", "six"])[[rank, rank + 1]]
        X = rows(rank, 4)[0]
        model = average(estimator(kind))
        for _ in range(3):
            model.partial_fit(X, names[[0, 1, 0, 1]], classes=names)
        model.finish()
        expected = sorted(["one", "two", "three", "four", "five", "six"][: malt.size() + 1])
        assert model.classes_.tolist() == expected
        assert set(model.predict(X)) <= set(expected)


@on_all_ranks
def test_all_start_from_the_state_of_one_rank(rank):
    """Without an exchange ranks with the same rows have the same weights, whatever their seeds are."""
    seeds = {"network": rank, "network of numbers": np.random.RandomState(rank)}
    for kind, seed in seeds.items():
        model = average(estimator(kind, random_state=seed, shuffle=False), every=1000)
        train_alike(model)
        assert alike(state(model))
        assert model.random_state is seed
        model.finish()
    model = average(estimator("clusters", random_state=rank, reassignment_ratio=0), every=1000)
    X = rows(0)[0]
    model.partial_fit(X if rank == 0 else np.tile(X[:1], (12, 1)))
    moved = model.predict(X[:1])
    rest = np.delete(model.cluster_centers_, moved, axis=0)
    assert alike(rest.tobytes()), "centres without rows of this rank are those of rank 0"
    model.finish()


def train_alike(model):
    X, y = rows(5)
    for _ in range(3):
        model.partial_fit(X, y, **({"classes": [0, 1, 2]} if is_classifier(model) else {}))


@on_all_ranks
def test_centres_are_weighted_by_their_rows(rank):
    model = average(estimator("clusters", n_clusters=1), every=1000)
    parts = [rows(other, 10 + 10 * other)[0] for other in range(malt.size())]
    model.partial_fit(parts[rank])
    model.finish()
    np.testing.assert_allclose(model.cluster_centers_[0], np.concatenate(parts).mean(axis=0))
    assert round(float(model._counts[0]), 6) == sum(map(len, parts))


@on_all_ranks
def test_a_fitted_estimator_goes_on_from_rank_0(rank):
    plain = estimator("sgd")
    plain.partial_fit(*rows(rank), classes=[0, 1, 2])
    first = malt.init().transport.allgather(state(plain)[:-8])[0]
    model = average(plain)
    assert state(plain)[:-8] == first
    model.partial_fit(*rows(rank + 10))
    model.finish()
    assert alike(state(model)) and model.t_ == 13 + 12 * malt.size()


def test_the_result_is_an_estimator(everywhere):
    from sklearn.base import clone

    def live(rank):
        plain = estimator("sgd")
        model = average(plain)
        assert model.set_params(alpha=0.01) is model and plain.alpha == 0.01
        for made in (clone(model), copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert type(made) is type(plain) and made.alpha == 0.01
        with pytest.raises(RuntimeError, match="fit would start over on this rank's rows alone: call partial_fit"):
            model.fit(*rows(0))
        assert model.partial_fit(*rows(rank), classes=[0, 1, 2]) is model
        model.finish()
        assert (plain.coef_ == model.coef_).all()
        assert (pickle.loads(pickle.dumps(model)).coef_ == model.coef_).all()
        with pytest.raises(ClosedError, match="finish was called before"):
            model.partial_fit(*rows(0))

    everywhere(live)


BAYES = ("MultinomialNB", "ComplementNB", "BernoulliNB", "CategoricalNB")


def counted_rows(rank, batch):
    """Rows of counts, of which a class and a category are on one rank alone."""
    rng = np.random.default_rng([rank, batch])
    return rng.integers(2 + rank, size=(8, 3)), rng.permutation(np.arange(8) % (2 + (rank == 0)))


@pytest.mark.parametrize("is_fitted", [False, True])
@pytest.mark.parametrize("name", BAYES)
def test_counts_are_those_of_one_estimator_that_has_seen_all_rows(name, is_fitted):
    """Rank 1 has none, where there are several. What rank 0 had counted before counts once."""
    kind = getattr(pytest.importorskip("sklearn.naive_bayes"), name)
    alone, own = kind(alpha=0.5), kind(alpha=0.5)
    given = dict(classes=[0, 1, 2])
    if is_fitted:
        alone.partial_fit(*counted_rows(0, 9), **given)
        own.partial_fit(*counted_rows(malt.rank(), 9), **given)
    model, idle = average(own), 1 if malt.size() > 1 else None
    for rank in range(malt.size()):
        for batch in range(3):
            if rank != idle:
                alone.partial_fit(*counted_rows(rank, batch), **given)
            if rank == malt.rank() != idle:
                model.partial_fit(*counted_rows(rank, batch), **given)
        model.agree()  # what was counted before it counts once, too
        assert alike(model.class_count_.tobytes())
    model.finish()
    if name == "CategoricalNB":
        alone.n_categories_ = np.array([array.shape[1] for array in alone.category_count_])  # it was the last batch's
    names = [one for one in vars(alone) if one.endswith("_") and isinstance(vars(alone)[one], (list, np.ndarray))]
    assert len(names) >= 5
    for one in names:
        found, wanted = (vars(each)[one] for each in (own, alone))
        found, wanted = ([each] if isinstance(each, np.ndarray) else each for each in (found, wanted))
        for here, there in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(here, there, one)
    assert alike(model.predict_log_proba(counted_rows(0, 0)[0]).tobytes())


REFUSED = [
    ("decomposition", "IncrementalPCA", {}, "IncrementalPCA cannot be averaged: its components factorize the rows"),
    ("naive_bayes", "GaussianNB", {}, "GaussianNB cannot be averaged: its state is sums or extremes"),
    ("cluster", "Birch", {}, "Birch cannot be averaged: its state is a tree"),
    (
        "neural_network",
        "BernoulliRBM",
        {},
        "BernoulliRBM cannot be averaged: which of its state is a mean is not known",
    ),
    ("neural_network", "MLPClassifier", dict(solver="lbfgs"), "MLPClassifier has no partial_fit with these"),
    ("cluster", "KMeans", {}, "KMeans has no partial_fit"),
]


@pytest.mark.parametrize(("module", "name", "parameters", "message"), REFUSED)
def test_what_has_no_mean_is_refused(module, name, parameters, message):
    one = getattr(pytest.importorskip(f"sklearn.{module}"), name)(**parameters)
    with pytest.raises(ValueError, match=f"malt.sklearn.average: .*{message}"):
        average(one if malt.rank() == malt.size() - 1 else estimator("sgd"))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (dict(every=0), "every must be an integer of at least 1, got 0"),
        (dict(epoch=0), "epoch must be an integer of at least 1, got 0"),
        (dict(graph="halo"), "no graph is called 'halo'"),
        (dict(sync="bps"), "sync 'bps' is not valid"),
        (dict(estimator=object), "estimator must be an estimator of scikit-learn"),
    ],
)
def test_bad_arguments(bad, message):
    mine = bad if malt.rank() == malt.size() - 1 else {}
    with pytest.raises(ValueError, match=f"malt.sklearn.average: .*{message}"):
        average(**{"estimator": estimator("sgd"), **mine})


@pytest.mark.parallel
def test_a_wrong_first_call_is_an_error_on_all_ranks():
    X, y = rows(malt.rank())
    last = malt.rank() == malt.size() - 1
    with pytest.raises(ValueError, match="classes must be passed on the first call to partial_fit"):
        average(estimator("sgd")).partial_fit(X, y)
    with pytest.raises(ValueError, match="classes are numbers on some ranks, and not on others"):
        average(estimator("sgd")).partial_fit(X, y, classes=["a", "b"] if last else [0, 1])
    with pytest.raises(ValueError, match="NaN"):
        average(estimator("sgd")).partial_fit(X * np.nan if last else X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="ranks disagree on n_features_in_: rank 0 has 5, rank . has 4"):
        average(estimator("sgd")).partial_fit(X[:, :4] if last else X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="ranks disagree on fitted"):
        average(estimator("sgd").fit(X, y) if last else estimator("sgd"))


@pytest.mark.parallel
def test_a_replica_of_rebound_arrays_warns(capfd):
    """What average is for: SGDClassifier makes a new intercept_ in each call."""
    model = estimator("sgd")
    X, y = rows(malt.rank())
    model.partial_fit(X, y > 0, classes=[False, True])
    replica = malt.Replica([model.coef_, model.intercept_], every=1)
    for _ in range(5):
        model.partial_fit(X, y > 0)
        replica.step()
    replica.finish()
    warned = malt.init().transport.allgather(capfd.readouterr().err.encode())
    assert sum(text.decode().count("params[1] did not change between exchanges") for text in warned) >= 1


@pytest.mark.serial
def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "malt.sklearn")
    with pytest.raises(ImportError, match=re.escape("pip install '.[sklearn]' in the checkout")):
        import_module("malt.sklearn")
