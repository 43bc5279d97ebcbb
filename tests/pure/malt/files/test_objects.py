"""Estimators as values: those that come predict as those that were sent, and a message makes nothing else."""

import json
import sys
import warnings

import numpy as np
import pytest
from sklearn import ensemble, linear_model, pipeline, preprocessing
from sklearn.base import BaseEstimator
from sklearn.cluster import Birch, MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils import all_estimators

import malt.sklearn
from malt.files import objects
from malt.files.refusals import refusal, refusal_of_class
from malt.files.values import OF_LIBRARIES, Packed, joined, made, pack, parted, unpack

GENERATOR = np.random.default_rng(0)
X, Y = np.abs(GENERATOR.normal(size=(80, 4))), GENERATOR.integers(0, 2, 80)


class Own(BaseEstimator):
    """An estimator of the user's own."""

    def fit(self, X, y=None):
        return self


def there(value):
    [found] = parted(joined([pack(value)]), writable=True)
    return found


def outputs(model):
    """What a model makes of the rows, and the next call of partial_fit, if it has one, of the model."""
    for name in ("transform", "predict", "decision_function"):
        if hasattr(model, name):
            yield getattr(model, name)(X)
    if hasattr(model, "partial_fit"):
        model.partial_fit(X, Y)
        yield from (value for name, value in sorted(vars(model).items()) if isinstance(value, np.ndarray))


MODELS = [
    preprocessing.StandardScaler(), preprocessing.OneHotEncoder(handle_unknown="ignore"), PCA(2),
    preprocessing.FunctionTransformer(np.log1p), linear_model.SGDClassifier(random_state=0), linear_model.Ridge(),
    linear_model.SGDClassifier(average=True, random_state=np.random.RandomState(3)), linear_model.LogisticRegression(),
    ensemble.RandomForestClassifier(3, random_state=0), MiniBatchKMeans(2, random_state=0, n_init=1),
    ensemble.HistGradientBoostingClassifier(max_iter=2, random_state=0),
    pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.SGDClassifier(random_state=0)),
    GridSearchCV(linear_model.Ridge(), {"alpha": [0.1, 1.0]}, cv=2),
    malt.sklearn.LogisticRegression(random_state=0), malt.sklearn.LinearSVC(solver="sgd", random_state=0),
    malt.sklearn.MLPClassifier((3,), max_iter=2, random_state=0), malt.sklearn.MLPRegressor((3,), random_state=0),
    malt.sklearn.HistGradientBoostingClassifier(max_iter=2),
]  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=lambda one: type(one).__name__)
@pytest.mark.filterwarnings("ignore")
def test_a_fitted_estimator(model):
    there(model).fit(X, Y)  # an unfitted one
    model.fit(X, Y)
    found = there(model)
    assert type(found) is type(model)
    pairs = list(zip(outputs(model), outputs(found), strict=True))
    assert pairs
    for mine, other in pairs:
        np.testing.assert_array_equal(mine.toarray() if hasattr(mine, "toarray") else mine,
                                      other.toarray() if hasattr(other, "toarray") else other)  # fmt: skip


def test_names_that_an_estimator_has_for_one_array():
    """SGDClassifier goes on with arrays of its own, of which it also calls one coef_."""
    model = linear_model.SGDClassifier(average=10, random_state=0).partial_fit(X, Y, classes=[0, 1, 2])
    found = there(model)
    names = [name for name, value in vars(model).items() if isinstance(value, np.ndarray)]
    same = [[getattr(one, a) is getattr(one, b) for a in names for b in names] for one in (model, found)]
    assert same[0] == same[1] and sum(same[0]) > len(names)


def test_averaged_estimators_are_sent_plain():
    model = malt.sklearn.average(linear_model.SGDClassifier(random_state=0))
    model.partial_fit(X, Y, classes=[0, 1])
    model.finish()
    found = there(model)
    assert type(found) is linear_model.SGDClassifier
    np.testing.assert_array_equal(found.coef_, model.coef_)


@pytest.mark.parametrize("name", [
    ["os", "system"], ["subprocess", "Popen"], ["malt.launch.job", "Job"], ["sklearn.base", "os"],
    ["sklearn", "nothing"], ["sklearn.pipeline", "islice"], ["sklearn.externals._packaging.version", "re.compile"],
])  # fmt: skip
def test_a_message_makes_no_other_objects(name):
    text = json.dumps({"object": {"dict": {"class": name, "arguments": {"tuple": ["true"]}, "state": None}}})
    with pytest.raises(TypeError, match="is not a class whose objects can be sent"):
        unpack(Packed(text, []))
    with pytest.raises(TypeError, match="is not a function that can be sent"):
        unpack(Packed(json.dumps({"object": {"dict": {"function": name}}}), []))


def test_a_message_imports_no_module(tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text("class Stranger: pass")
    monkeypatch.syspath_prepend(tmp_path)
    for what in ({"class": ["stranger", "Stranger"]}, {"function": ["stranger", "Stranger"]}):
        with pytest.raises(TypeError, match="stranger.Stranger is no"):
            unpack(Packed(json.dumps({"object": {"dict": what}}), []))
    assert "stranger" not in sys.modules


def test_a_checkpoint_has_no_estimators():
    with pytest.raises(ValueError, match="object"):
        made(pack({"x": [preprocessing.StandardScaler()]}).text, lambda dtype, shape: X, OF_LIBRARIES)


def test_what_cannot_be_sent_is_named():
    """With its place, and what to send instead; classes of which that is known before there is an object, too."""
    birch = Birch().fit(X)
    for value, message in [
        ({"a": [1, birch]}, "args['a'][1] is a fitted Birch, which cannot be sent"),
        ((Own(),), "args[0] is a fitted Own, which cannot be sent"), (Own, "args is of type type"),
        ([{(1, 2): 3}], "args[0] is a dict with keys that are neither text nor numbers, which cannot"),
    ]:  # fmt: skip
        assert refusal(value, "args").startswith(message)
    assert "joblib.dump" in refusal(birch, "it") and refusal([X, MODELS[0]], "it") == ""
    for kind in (Own, Birch, KNeighborsClassifier, set, type(lambda: 0)):
        assert refusal_of_class(kind)
    for kind in (dict, np.ndarray, PCA, ensemble.RandomForestClassifier, object, malt.Dataset):
        assert not refusal_of_class(kind)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_which_estimators_cannot_be_sent():
    """refusal_of_class says it of exactly those of scikit-learn that cannot be, once they are fitted."""
    wrong, tried = [], 0
    for name, kind in all_estimators():
        try:
            with warnings.catch_warnings():
                model = kind()
                short = dict.fromkeys({"max_iter", "n_estimators"} & model.get_params().keys(), 3)
                model.set_params(**short).fit(X, Y)
        except Exception:  # of many kinds: it needs other rows, or parameters
            continue
        tried += 1
        if bool(refusal(model, "it")) != bool(refusal_of_class(kind)):
            wrong.append((name, refusal(model, "it")))
    assert not wrong and tried > 120


def test_estimators_need_scikit_learn_only_where_there_are_some(monkeypatch):
    monkeypatch.delitem(objects.sys.modules, "sklearn.base")
    assert not objects.is_estimator(Own)
