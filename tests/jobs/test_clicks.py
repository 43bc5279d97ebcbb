"""apps.mlp on sparse rows: its measures, what it sends, as ranks fail, and what it refuses."""

import json
from functools import cache

import numpy as np
import pytest
from programs import dying_after, on_simulated_ranks
from ranks import run_failing

pytest.importorskip("numba")

import malt
from apps.harness import BadInput
from apps.harness.outputs import save_model
from apps.linear.roc import area
from apps.mlp import planted, program

pytestmark = pytest.mark.serial

FEATURES = 50


def write(path, X, labels, first=1):
    rows = (" ".join(f"{first + j}:{x!r}" for j, x in enumerate(row) if x) for row in X.tolist())
    path.write_text("".join(f"{label} {row}\n" for label, row in zip(labels, rows, strict=True)))
    return path


class Sets:
    """Rows to train and to test on, in files. The label is 1 where one of two features is there, and not both."""

    def __init__(self, folder, first=1):
        draw = np.random.default_rng(0)
        X = (draw.random((900, FEATURES)) < 0.1).astype(float)
        X[:, :2] = draw.random((900, 2)) < 0.5
        self.labels = np.where(draw.random(900) < 0.05, 1, 0) ^ (X[:, 0] != X[:, 1])
        self.X = X
        self.train = write(folder / "train.svm", X[:600], self.labels[:600], first)
        self.test = write(folder / "test.svm", X[600:], self.labels[600:], first)
        self.words = [self.train, "--test", self.test, "--epochs", 20, "--hidden", 8, "--batch", 10, "--step", 0.2]


@pytest.fixture
def sets(tmp_path):
    return Sets(tmp_path)


@pytest.fixture
def report(tmp_path):
    """report(ranks, *arguments): what a run on simulated ranks reports. It saves model.npz."""
    run = on_simulated_ranks(program.run, tmp_path)
    return lambda *arguments: run(*arguments)[0]


def predicted(path, X):
    """The chance of the second class, by a saved model."""
    layers = malt.files.load_npz(path)
    hidden = np.maximum(np.append(X, np.ones((len(X), 1)), axis=1) @ layers["layer_1"], 0)
    z = np.append(hidden, np.ones((len(X), 1)), axis=1) @ layers["layer_2"]
    return 1 / (1 + np.exp(-z[:, 0]))


@pytest.mark.parametrize("ranks", [1, 3])
def test_it_learns_and_measures_as_scikit_learn_does(report, sets, tmp_path, ranks):
    metrics = pytest.importorskip("sklearn.metrics")
    final = report(ranks, *sets.words, "--exchange-every", 2)["final"]
    assert final["test_auc"] > 0.75  # a linear model has 0.5
    p = predicted(tmp_path / "model.npz", sets.X[600:])
    assert final["test_auc"] == pytest.approx(metrics.roc_auc_score(sets.labels[600:], p), abs=1e-6)
    assert final["test_logloss"] == pytest.approx(metrics.log_loss(sets.labels[600:], p), rel=1e-5)
    p = predicted(tmp_path / "model.npz", sets.X[:600])
    assert final["train_loss"] == pytest.approx(metrics.log_loss(sets.labels[:600], p), rel=1e-5)
    assert "test_accuracy" not in final


def test_labels_of_minus_one_make_the_same_model(report, sets):
    before = report(1, *sets.words)["final"]
    for path, some in ((sets.train, slice(600)), (sets.test, slice(600, None))):
        write(path, sets.X[some], 2 * sets.labels[some] - 1)
    after = report(1, *sets.words)["final"]
    assert {**after, "seconds": 0, "examples_per_s": 0} == {**before, "seconds": 0, "examples_per_s": 0}


def test_test_rows_of_one_class_have_no_curve(report, sets):
    write(sets.test, sets.X[600:], np.ones(300, int))
    final = report(2, *sets.words)["final"]
    assert final["test_auc"] is None and final["test_logloss"] > 0


def test_features_that_are_in_the_test_rows_alone_have_the_first_weights(report, sets):
    sets.test.write_text("".join(f"{line} 70:0.001\n" for line in sets.test.read_text().splitlines()))
    assert report(2, *sets.words)["final"]["test_auc"] > 0.75


def test_a_model_says_how_its_rows_are_read(report, tmp_path):
    """Features counted from 0, in a file that lacks feature 0, and narrower than the model."""
    sets = Sets(tmp_path, first=0)
    made = report(2, *sets.words)["final"]
    X = sets.X[600:].copy()
    X[:, [0, FEATURES - 1]] = 0
    write(sets.train, X, sets.labels[600:], first=0)
    write(sets.test, X, sets.labels[600:], first=0)
    p = predicted(tmp_path / "model.npz", X)
    (tmp_path / "model.npz").rename(tmp_path / "first.npz")
    again = report(1, sets.train, "--test", sets.test, "--hidden", 8, "--model", tmp_path / "first.npz", "--epochs", 0)
    assert again["final"]["model_sha256"] == made["model_sha256"]
    assert again["final"]["test_auc"] == pytest.approx(area(p, sets.labels[600:]), abs=1e-6)


@pytest.mark.parametrize("kept", [1, 3])
def test_a_resumed_run_ends_as_one_that_never_failed(report, sets, tmp_path, kept):
    """Bit by bit on one rank; as well on another number of ranks."""
    whole = report(1, *sets.words)["final"]
    keeping = [*sets.words, "--checkpoint", tmp_path / "train.ckpt", "--checkpoint-every", 0]
    with dying_after(7):
        report(kept, *keeping)
    rest = report(1, *keeping, "--resume")
    assert rest["resumed_from"] == 7
    if kept == 1:
        assert rest["final"]["model_sha256"] == whole["model_sha256"]
    assert rest["final"]["test_auc"] > 0.75


def test_it_sends_the_rows_that_were_touched(report, monkeypatch):
    for name, value in (("TRAINED", 3000), ("TESTED", 500)):
        monkeypatch.setattr(planted, name, value)
    last = report(2, "--problem", "clicks", "--hidden", 4, "--epochs", 1, "--sync", "bsp")["epochs"][-1]
    assert 0 < last["bytes_sent"] <= last["bytes_dense"] / 10 and last["merged"] == 2 * 2 * (15 // 10)


@pytest.mark.thorough
def test_several_ranks_are_as_good_as_one(report, monkeypatch):
    """On a quarter of the rows. One rank has 0.8152; where all is exchanged at the end alone, three have 0.8143."""
    for name, value in (("TRAINED", 50_000), ("TESTED", 25_000)):
        monkeypatch.setattr(planted, name, value)
    monkeypatch.setattr(planted, "clicks", cache(planted.clicks))  # made once, not by each rank
    assert report(3, "--problem", "clicks", "--sync", "bsp")["final"]["test_auc"] > 0.815


def test_a_rank_fails_and_the_others_go_on(sets, tmp_path, capsys):
    words = [*map(str, sets.words), "--sync", "bsp", "--json", str(tmp_path / "failed.json")]
    _, failed = run_failing(3, 0, {1: 600}, lambda rank: program.run(words))
    made = json.loads((tmp_path / "failed.json").read_text())
    assert failed == {1} and " rows of rank 1 are dealt to ranks 0, 2" in capsys.readouterr().err
    assert len(made["epochs"]) == 20 and made["final"]["test_auc"] > 0.75


BAD = {
    "labels": ("1 1:2\n2 1:3\n3 1:1\n", [], "3 different labels (1, 2, 3): there must be two"),
    "one label": ("1 1:2\n1 1:3\n", [], "rows.svm: all rows have the same label: there must be two"),
    "text": ("It was a bright cold day\n", [], "rows.svm:1: "),
    "nothing": ("", [], "rows.svm: the file is empty"),
    "momentum": ("0 1:2\n1 1:3\n", ["--optimizer", "adam"], "--optimizer adam changes all weights in each step"),
    "data": ("0 1:2\n1 1:3\n", ["--problem", "clicks"], "--problem is generated from the seed: use it without DATA"),
    "test": ("0 1:2\n1 1:3\n", ["--test", "nowhere.svm"], "nowhere.svm: No such file"),
    "other labels": ("0 1:2\n1 1:3\n", ["--test", "{other}"], "has label 7, which is not one of 0, 1"),
    "a stray feature": ("0 1:2\n1 2000000000:3\n", [], "rows.svm:2: feature 2,000,000,000 makes a wide model"),
    "a stray test feature": ("0 1:2\n1 1:3\n", ["--test", "{wide}"], "wide.svm:1: feature 2,000,000,000 makes a wide"),
    "a model of pictures": ("0 1:2\n1 1:3\n", ["--model", "{model}"], "model.npz: a network of pictures, not of"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(tmp_path, name):
    text, options, message = BAD[name]
    (tmp_path / "rows.svm").write_text(text)
    (tmp_path / "other.svm").write_text("0 1:1\n7 1:2\n")
    (tmp_path / "wide.svm").write_text("0 2000000000:1\n")
    layers = {"layer_1": np.zeros((2, 16), np.float32), "layer_2": np.zeros((17, 1), np.float32)}
    save_model(str(tmp_path / "model.npz"), "apps.mlp", **layers)
    names = {"other": tmp_path / "other.svm", "wide": tmp_path / "wide.svm", "model": tmp_path / "model.npz"}
    with pytest.raises(BadInput) as raised:
        program.run([str(tmp_path / "rows.svm"), *(option.format(**names) for option in options)])
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_test_rows_are_not_for_pictures(tmp_path):
    with pytest.raises(BadInput, match="--test is for svmlight text"):
        program.run(["--test", "rows.svm"])
