"""apps.gbdt: against scikit-learn's histogram trees, on one rank and on several, and as ranks fail."""

import json
import re

import numpy as np
import pytest
from programs import ROOT, on_simulated_ranks
from ranks import run_failing

pytest.importorskip("numba")

import malt
from apps.gbdt import program
from apps.harness import BadInput
from apps.linear.roc import area

pytestmark = pytest.mark.serial

OPTIONS = ["--trees", 20, "--depth", 4, "--bins", 16, "--learning-rate", 0.2]
PREDICTOR = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "gbdt.md").read_text(), re.DOTALL).group(1)


def predict(path, X):
    names = {}
    exec(PREDICTOR, names)
    return names["predict"](path, X)


def write(path, X, y):
    rows = (" ".join(f"{j}:{x!r}" for j, x in enumerate(row, 1) if x == x) for row in X.tolist())
    path.write_text("".join(f"{label!r} {row}\n" for label, row in zip(y.tolist(), rows, strict=True)))


class Planted:
    """Rows to train and to test on, in files. Some values are missing."""

    def __init__(self, folder, loss):
        draw = np.random.default_rng(3)
        X = draw.integers(-99, 100, (1500, 6)) / 4
        X[:, 4], X[:, 5] = draw.integers(0, 4, 1500), 1
        score = 2 * np.sign(X[:, 0] * X[:, 1]) + X[:, 2] / 10 + (X[:, 4] == 2) - (X[:, 3] > 9)
        noisy = score + draw.standard_normal(1500)
        self.y = np.where(noisy > 0, 1.0, -1.0) if loss == "logistic" else np.rint(noisy * 256) / 256
        X[draw.random(X.shape) < np.array([0.2, 0, 0, 0.1, 0, 0])] = np.nan
        X[1400:, 4] = np.nan  # in test rows alone
        self.X, self.train, self.test = X, folder / "train.svm", folder / "test.svm"
        write(self.train, X[:1000], self.y[:1000])
        write(self.test, X[1000:], self.y[1000:])


@pytest.fixture
def planted(tmp_path):
    return lambda loss: Planted(tmp_path, loss)


@pytest.fixture
def report(tmp_path):
    """report(ranks, *arguments): what a run on simulated ranks reports. It saves model.npz."""
    run = on_simulated_ranks(program.run, tmp_path)
    return lambda *arguments: run(*arguments)[0]


def scikit_learn(loss, X, y):
    """The predictions of scikit-learn's trees on the rows from 1000 on."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    options = {"max_iter": 20, "max_depth": 4, "max_leaf_nodes": None, "max_bins": 16, "learning_rate": 0.2}
    if loss == "squared":
        model = ensemble.HistGradientBoostingRegressor(early_stopping=False, **options).fit(X[:1000], y[:1000])
        return model.predict(X[1000:])
    model = ensemble.HistGradientBoostingClassifier(early_stopping=False, **options).fit(X[:1000], y[:1000])
    return model.predict_proba(X[1000:])[:, 1]


def error(loss, p, y):
    return np.sqrt(((p - y) ** 2).mean()) if loss == "squared" else -np.log(np.where(y > 0, p, 1 - p)).mean()


@pytest.mark.thorough(but="missing-logistic")
@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("missing", [[], ["--missing"]], ids=["zeros", "missing"])
def test_trees_are_equal_on_any_ranks_and_as_good_as_scikit_learns(report, planted, tmp_path, loss, missing):
    rows, key = planted(loss), {"logistic": "test_logloss", "squared": "test_rmse"}[loss]
    words = [rows.train, "--test", rows.test, "--loss", loss, *OPTIONS, *missing]
    made = [report(ranks, *words) for ranks in (1, 2, 4, 7)]
    assert len({one["final"]["model_sha256"] for one in made}) == 1
    X, y = rows.X if missing else np.nan_to_num(rows.X), rows.y[1000:]
    p = predict(tmp_path / "model.npz", X[1000:])
    for one in made:
        assert one["final"][key] == pytest.approx(error(loss, p, y), rel=1e-9)
        assert one["epochs"][-1][key] == pytest.approx(one["final"][key])
    theirs = scikit_learn(loss, X, rows.y)
    assert error(loss, p, y) == pytest.approx(error(loss, theirs, y), rel=0.005)
    assert p == pytest.approx(theirs, abs=1e-3)


def test_the_area_under_the_curve(report, planted, tmp_path):
    metrics, draw = pytest.importorskip("sklearn.metrics"), np.random.default_rng(0)
    scores, y = draw.integers(0, 30, 500), np.where(draw.random(500) < 0.3, 1, -1)
    assert area(scores, y) == pytest.approx(metrics.roc_auc_score(y, scores))
    rows = planted("logistic")
    made = report(3, rows.train, "--test", rows.test, *OPTIONS, "--missing")["final"]
    p = predict(tmp_path / "model.npz", rows.X[1000:])
    assert made["test_auc"] == pytest.approx(metrics.roc_auc_score(rows.y[1000:], p))


def test_rows_to_validate_on_end_the_training(report, planted, tmp_path):
    rows = planted("logistic")
    words = [rows.train, "--valid", rows.test, "--depth", 6, "--learning-rate", 0.5, "--missing"]
    made = [report(ranks, *words, "--trees", 200, "--patience", 4) for ranks in (1, 3)]
    losses = [epoch["valid_loss"] for epoch in made[0]["epochs"]]
    best = int(np.argmin(losses))
    assert len(losses) == best + 5 < 200
    assert made[0]["final"]["valid_loss"] == pytest.approx(losses[best], rel=1e-9)
    assert made[0]["final"]["model_sha256"] == made[1]["final"]["model_sha256"]
    assert len(malt.files.load_npz(tmp_path / "model.npz")["roots"]) == best + 1
    p = predict(tmp_path / "model.npz", rows.X[1000:])
    assert error("logistic", p, rows.y[1000:]) == pytest.approx(losses[best], rel=1e-9)


def test_a_validated_run_resumes_and_ends_with_the_best_trees(report, planted, tmp_path):
    rows = planted("logistic")
    words = [rows.train, "--valid", rows.test, "--depth", 6, "--learning-rate", 0.5, "--missing", "--patience", 4]
    whole = report(1, *words, "--trees", 200)
    keeping = [*words, "--checkpoint", tmp_path / "train.ckpt", "--resume"]
    report(2, *keeping, "--trees", 3)
    for _ in range(2):  # the second time nothing is left
        rest = report(3, *keeping, "--trees", 200)
        assert rest["final"]["model_sha256"] == whole["final"]["model_sha256"]
        assert rest["final"]["valid_loss"] == pytest.approx(whole["final"]["valid_loss"])
    assert rest["epochs"] == []


def test_features_that_are_in_the_test_rows_alone_do_not_matter(report, planted, tmp_path):
    rows = planted("logistic")
    words = [rows.train, "--test", rows.test, *OPTIONS]
    before = report(2, *words)["final"]
    rows.test.write_text("".join(f"{line} 900:5\n" for line in rows.test.read_text().splitlines()))
    assert report(2, *words)["final"]["test_auc"] == before["test_auc"]


@pytest.mark.parametrize(("text", "options", "message"), [
    ("1 1:2\n1 1:3\n", [], "--loss logistic is for two different labels: take --loss squared for numbers"),
    ("1 1:2\n2 1:3\n3 1:1\n", [], "--loss logistic is for two different labels"),
    ("1\n2\n", [], "rows.svm: no row has a feature"),
    ("1 1:2\n2 1:3\n", ["--patience", "3"], "--patience needs --valid FILE"),
    ("1 1:2\n2 1:3\n", ["--bins", "256"], "argument --bins: must be an integer from 2 to 255, got 256"),
    ("1 1:2\n2 1:3\n", ["--depth", "13"], "argument --depth: must be an integer from 1 to 12, got 13"),
    ("1 1:2\n2 1:3\n", ["--valid", "nowhere.svm"], "nowhere.svm: No such file"),
])  # fmt: skip
def test_bad_input_is_one_line(tmp_path, text, options, message):
    (tmp_path / "rows.svm").write_text(text)
    with pytest.raises(BadInput, match=message) as raised:
        program.run([str(tmp_path / "rows.svm"), *options])
    assert "\n" not in str(raised.value)


@pytest.mark.thorough
def test_the_embedded_data(report):
    """The measures are scikit-learn's HistGradientBoostingClassifier's, to 0.5 %."""
    final = report(2)["final"]
    assert final["test_logloss"] == pytest.approx(0.321149, rel=0.005)
    assert final["test_auc"] == pytest.approx(0.904192, rel=0.005)


@pytest.mark.parametrize("turn", [250, 800])
def test_a_rank_fails_and_the_trees_are_the_same(report, planted, tmp_path, capsys, turn):
    rows, file = planted("logistic"), tmp_path / "failed.json"
    words = [str(word) for word in (rows.train, "--test", rows.test, *OPTIONS, "--missing")]
    whole = report(2, *words)
    _, failed = run_failing(3, 0, {1: turn}, lambda rank: program.run([*words, "--json", str(file)]))
    made = json.loads(file.read_text())
    assert failed == {1} and " rows of rank 1 are dealt to ranks 0, 2" in capsys.readouterr().err
    assert made["final"]["model_sha256"] == whole["final"]["model_sha256"]
    assert made["final"]["test_auc"] == pytest.approx(whole["final"]["test_auc"])
