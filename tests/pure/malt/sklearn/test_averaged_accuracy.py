"""malt.sklearn.average: several ranks, simulated, end with a model as good as that of one rank."""

import lzma

import numpy as np
import pytest
from sklearn import datasets

import malt
from malt.sklearn import average

pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore:Got `batch_size`:UserWarning")]

LOSS, LOSS_OF_DIGITS = 0.005, 0.01
"""What several ranks may lose of the accuracy of one, by the median of three orders of exchanges. Digits are few."""
CASES = [
    ("a9a", "SGDClassifier", {}, 3, 400),
    ("digits below 5", "averaged SGDClassifier", dict(average=True), 10, 25),
    ("digits", "MLPClassifier", dict(hidden_layer_sizes=(64,), learning_rate_init=0.01), 20, 50),
    ("digits", "MiniBatchKMeans", dict(n_clusters=10, n_init=3), 5, 50),
]
"""One for each way to exchange a model. Which estimators exchange so: tests/mpi/test_averaged.py."""


def estimator(name, options):
    from sklearn import cluster, linear_model, neural_network

    kind = name.split()[-1]
    [module] = [one for one in (cluster, linear_model, neural_network) if hasattr(one, kind)]
    return getattr(module, kind)(random_state=0, **options)


@pytest.fixture(scope="module")
def read():
    """read(name, folder): training rows and labels, test rows and labels; read once."""
    found = {}

    def read(name, folder):
        if name not in found:
            below = {"digits": 10, "digits below 5": 5}.get(name)
            found[name] = digits(below) if below else svmlight(folder / name)
        return found[name]

    return read


def digits(below):
    X, y = datasets.load_digits(n_class=below, return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order] / 16, y[order]
    count = 100 * below
    return X[:count], y[:count], X[count:], y[count:]


def svmlight(folder):
    with lzma.open(folder / "train.svm.xz") as train, lzma.open(folder / "test.svm.xz") as test:
        X, y = datasets.load_svmlight_file(train)
        return X, y, *datasets.load_svmlight_file(test, n_features=X.shape[1])


@pytest.mark.parametrize(("name", "kind", "options", "epochs", "batch"), CASES)
def test_several_ranks_are_as_good_as_one(data, read, name, kind, options, epochs, batch):
    X, y, X_test, y_test = read(name, data)

    def live(rank):
        model = average(estimator(kind, options))
        known = {} if kind == "MiniBatchKMeans" else {"classes": np.unique(y)}
        for epoch in range(epochs):
            mine = np.random.default_rng(epoch).permutation(len(y))[rank :: malt.size()]
            for start in range(0, len(mine) - batch // 2, batch):
                rows = mine[start : start + batch]
                model.partial_fit(X[rows], y[rows], **known)
        model.finish()
        return model

    def quality(model):
        if kind == "MiniBatchKMeans":
            return 1 + model.score(X_test) / (X_test**2).sum()  # of the squares, what centres explain
        return np.mean(model.predict(X_test) == y_test)

    alone = quality(malt.simulate(live, 1)[0])
    qualities = []
    for seed in range(3):  # one order of exchanges in six loses more
        models = malt.simulate(live, 4, seed=seed)
        assert len({model.predict(X_test).tobytes() for model in models}) == 1
        qualities.append(quality(models[0]))
    assert np.median(qualities) > alone - (LOSS_OF_DIGITS if name.startswith("digits") else LOSS)


@pytest.mark.filterwarnings("ignore:Class PassiveAggressive:FutureWarning")
@pytest.mark.parametrize("name", ["PassiveAggressiveClassifier", "PassiveAggressiveRegressor"])
def test_passive_aggressive_models_are_averaged(name):
    """They are no classes of tests/mpi/test_averaged.py, where SGDClassifier learns as they do."""
    X = np.random.default_rng(0).standard_normal((60, 4))
    y = np.sign(X[:, 0])

    def live(rank):
        model = average(estimator(name, {}), every=1)
        known = {"classes": [-1, 1]} if name.endswith("Classifier") else {}
        for rows in np.split(np.arange(60)[rank::2], 3):
            model.partial_fit(X[rows], y[rows], **known)
        model.finish()
        return model.coef_.ravel().tolist()

    one, other = malt.simulate(live, 2)
    assert one == other and any(one)
