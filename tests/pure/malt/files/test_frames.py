"""Data frames as values: what comes is what was sent, of pandas, and what cannot be sent is named."""

import json

import numpy as np
import pandas
import polars
import pytest
from ranks import error_of_all
from sklearn import linear_model

import malt.sklearn
from malt.files.refusals import refusal
from malt.files.values import joined, pack, parted

DAYS = ["2020-01-01", None, "2021-06-01"]


def there(value):
    """What a rank gets of a value."""
    packed = pack(value)
    text = json.loads(packed.text)
    assert text == json.loads(json.dumps(text))
    [found] = parted(joined([packed]), writable=True)
    return found


def of_pandas():
    return pandas.DataFrame({
        "number": [1, 2, 3], "real": [0.5, np.nan, 3], "text": ["x", None, "ü"], 5: [True, False, True],
        "object": pandas.Index(["x", None, np.nan], dtype=object), "mixed": np.array(["x", 1, 2.5], object),
        "category": pandas.Categorical(["u", None, "u"], categories=["v", "u"], ordered=True),
        "day": pandas.to_datetime(DAYS), "there": pandas.to_datetime(DAYS).tz_localize("Europe/Berlin"),
        "while": pandas.to_timedelta([1, None, 2], unit="s"), "whole": pandas.array([1, None, 3], dtype="Int64"),
        "truth": pandas.array([True, None, False], dtype="boolean"),
        "string": pandas.array(["a", None, "b"], dtype="string"), "small": np.array([1, 2, 3], np.int8),
    }, index=pandas.Index(["r", "s", "t"], name="rows"))  # fmt: skip


def test_a_frame_of_pandas():
    frame = of_pandas()
    found = there(frame)
    pandas.testing.assert_frame_equal(found, frame)
    found.loc["r", ["number", "object"]] = 7  # a copy, which can be written to
    assert frame["number"].tolist() == [1, 2, 3] and found["number"].tolist() == [7, 2, 3]
    assert found["object"].tolist()[:2] == [7, None]


@pytest.mark.parametrize("value", [
    *(of_pandas()[name] for name in of_pandas()), pandas.Series([1, 2]), pandas.Series([], dtype=float, name=3),
    of_pandas()["day"].reset_index(drop=True),
], ids=lambda one: str(one.name))  # fmt: skip
def test_a_series_of_pandas(value):
    pandas.testing.assert_series_equal(there(value), value)


@pytest.mark.parametrize("frame", [
    pandas.DataFrame(), pandas.DataFrame({"a": []}), pandas.DataFrame({"a": [1]}, index=[7]), of_pandas()[::2],
    pandas.DataFrame(np.arange(6).reshape(3, 2)), pandas.DataFrame({"a": [1, 2]}, index=pandas.to_datetime(DAYS[::2])),
    pandas.DataFrame([[1]], index=pandas.Index(["r"], dtype=object), columns=pandas.Index(["a"], dtype=object)),
])  # fmt: skip
def test_other_frames_of_pandas(frame):
    pandas.testing.assert_frame_equal(there(frame), frame, check_freq=False)


@pytest.mark.parametrize("frame, message", [
    (pandas.DataFrame({"a": [[1], [2]]}), "column 'a' has dtype object and holds other than numbers and text: astype"),
    (pandas.DataFrame({"a": pandas.period_range("2020", periods=2, freq="D")}), r"column 'a' has dtype period\[D\]"),
    (pandas.DataFrame([[1]], columns=pandas.MultiIndex.from_tuples([("a", "b")])), "the columns has several levels"),
    (pandas.DataFrame({"a": [1]}, index=pandas.MultiIndex.from_tuples([("a", "b")])), "the index has several levels"),
    (pandas.Series([1], name=("a", "b")), r"the series has the name \('a', 'b'\): rename it"),
    (polars.DataFrame({"a": [1]}), "a value of type DataFrame cannot be exchanged"),
])  # fmt: skip
def test_what_cannot_be_sent_is_named(frame, message):
    with pytest.raises(TypeError, match=message):
        pack(frame)


@pytest.mark.parametrize("frame, remedy", [
    (polars.DataFrame({"a": [1]}), "of type DataFrame, which cannot be sent: to_pandas()"),
    (polars.Series([1]), "of type Series, which cannot be sent: send series.to_numpy()"),
], ids=["frame", "series"])  # fmt: skip
def test_what_to_send_in_the_place_of_a_frame_of_polars(frame, remedy):
    assert remedy in refusal(frame, "args[0]")


@pytest.mark.parametrize("library", [pandas, polars], ids=["pandas", "polars"])
def test_estimators_take_frames(library):
    """Ranks compare the names of the columns, and predict of a frame what they do of an array."""
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.repeat(["a", "b"], 30)
    X[30:] += 2
    labels = library.Series(y.tolist())
    frame, other = (library.DataFrame(dict(zip(names, X.T, strict=True))) for names in ("uv", "uw"))

    def fit(rows):
        return malt.sklearn.LogisticRegression(random_state=0).fit(rows, labels)

    expected = malt.sklearn.LogisticRegression(random_state=0).fit(X, y).predict(X)
    for model in malt.simulate(lambda rank: fit(frame), 2):
        assert list(model.feature_names_in_) == ["u", "v"]
        assert (model.predict(frame) == expected).all() and model.score(frame, labels) > 0.9
    message = error_of_all(lambda rank: fit(other if rank else frame))
    assert "ranks disagree on the names of features" in message


def test_average_takes_frames():
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["u", "v"])
    labels = (frame["u"] > 0).map({True: "yes", False: "no"})

    def live(rank):
        model = malt.sklearn.average(linear_model.SGDClassifier(random_state=0))
        for _ in range(5):
            model.partial_fit(malt.shard(frame), malt.shard(labels), classes=["no", "yes"])
        model.finish()
        return model.score(frame, labels)

    assert min(malt.simulate(live, 2)) > 0.9
