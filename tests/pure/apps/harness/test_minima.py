"""The minima of apps.logistic, on a few rows and simulated ranks; all its options; what is refused."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from ranks import run_failing
from scipy.optimize import minimize

pytest.importorskip("numba")

import malt
from apps.harness import BadInput
from apps.logistic import program
from malt.models.linear import NUMBERS, Block, Sharded
from malt.session import session

pytestmark = [pytest.mark.serial, pytest.mark.single]

ROWS, FEATURES, L1, L2 = 150, 20, 0.004, 1e-3
THOROUGH = pytest.mark.thorough
KINDS = pytest.mark.parametrize("kind", ["replicated", "--sharded"])


def matrix(seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random((ROWS, FEATURES)) < 0.3, rng.standard_normal((ROWS, FEATURES)), 0).round(3)


X = matrix()
SCORES = X @ np.random.default_rng(1).standard_normal((FEATURES, 3)) + np.random.default_rng(2).normal(size=(ROWS, 3))
CLASSES = SCORES.argmax(axis=1)
SIGNS = np.where(SCORES[:, 0] > 0, 1, -1)


def written(path, labels):
    lines = (
        f"{label} " + " ".join(f"{j + 1}:{x:g}" for j, x in enumerate(row) if x)
        for label, row in zip(labels, X, strict=True)
    )
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def two(tmp_path):
    return written(tmp_path / "two.svm", SIGNS)


@pytest.fixture
def three(tmp_path):
    return written(tmp_path / "three.svm", CLASSES + 5)


@pytest.fixture
def run(tmp_path):
    """run(ranks, *arguments): the report."""

    def run(ranks, *arguments):
        report = tmp_path / "report.json"
        words = [*map(str, arguments), "--json", str(report)]
        words = [word for word in words if word != "replicated"]
        malt.simulate(lambda rank: program.run(words), ranks)
        return json.loads(report.read_text())

    return run


LOSSES = {
    "logistic": (lambda z: np.logaddexp(0, -z), lambda z: -1 / (1 + np.exp(z))),
    "squared-hinge": (lambda z: np.maximum(0, 1 - z) ** 2, lambda z: -2 * np.maximum(0, 1 - z)),
    "squared": (lambda z: (1 - z) ** 2 / 2, lambda z: z - 1),
}


def minimum(signs, loss="logistic", l1=0.0, intercept=True):
    """The least objective, and the weights there: of both signs of w, which are not negative, so l1 is smooth."""
    value, slope = LOSSES[loss]

    def function(both):
        w, b = both[:FEATURES] - both[FEATURES:-1], both[-1]
        margins = signs * (X @ w + b)
        g = X.T @ (signs * slope(margins)) / ROWS + L2 * w
        last = (signs * slope(margins)).mean() * intercept
        found = value(margins).mean() + L2 / 2 * w @ w + l1 * both[:-1].sum()
        return found, np.concatenate([g + l1, l1 - g, [last]])

    bounds = [(0, None)] * (2 * FEATURES) + [(None, None)]
    start, options = np.zeros(2 * FEATURES + 1), {"ftol": 0, "gtol": 1e-10, "maxiter": 10_000}
    known = minimize(function, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return known.fun, known.x[:FEATURES] - known.x[FEATURES:-1]


@KINDS
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=THOROUGH), 3])
@pytest.mark.parametrize(
    "loss", [name if name == "logistic" else pytest.param(name, marks=THOROUGH) for name in LOSSES]
)
def test_lbfgs_ends_at_the_minimum(run, two, kind, ranks, loss):
    report = run(ranks, two, "--test", two, "--l2", L2, "--loss", loss, kind)
    assert report["final"]["objective"] == pytest.approx(minimum(SIGNS, loss)[0], rel=1e-6)
    values = [epoch["objective"] for epoch in report["epochs"]]
    assert values == sorted(values, reverse=True) and 5 < len(values) < 200
    assert report["epochs"][-1]["examples"] >= ROWS * (1 + len(values)) and report["final"]["test_accuracy"] > 0.8


@KINDS
def test_owlqn_ends_at_the_minimum_and_has_its_zeros(run, two, kind, tmp_path):
    options = ["--optimizer", "owlqn", "--l1", L1, "--l2", L2, "--no-intercept", kind]
    report = run(3, two, *options, "--save", tmp_path / "model.npz")
    value, w = minimum(SIGNS, l1=L1, intercept=False)
    assert report["final"]["objective"] == pytest.approx(value, rel=1e-6)
    model = malt.files.load_npz(tmp_path / "model.npz")
    assert 0 < (np.abs(w) < 1e-7).sum() == (model["weights"] == 0).sum() < FEATURES
    np.testing.assert_allclose(model["weights"], w, atol=1e-3)
    assert model["intercept"] == 0


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "ftrl"])
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=THOROUGH), 3])
def test_stochastic_optimizers_come_near_the_minimum(run, two, optimizer, ranks):
    l1 = L1 if optimizer == "ftrl" else 0
    options = ["--optimizer", optimizer, "--l1", l1, "--l2", L2, "--exchange-every", 10]
    report = run(ranks, two, *options, "--epochs", 60)
    assert report["final"]["objective"] == pytest.approx(minimum(SIGNS, l1=l1)[0], rel=0.02)
    assert [epoch["examples"] for epoch in report["epochs"]] == [ROWS * k for k in range(1, 61)]
    sharded = [epoch["objective"] for epoch in run(ranks, two, *options, "--epochs", 4, "--sharded")["epochs"]]
    np.testing.assert_allclose(sharded, [epoch["objective"] for epoch in report["epochs"][:4]], rtol=1e-4)


def test_more_ranks_make_larger_steps_of_adam(run, two):
    steps = [run(ranks, two, "--optimizer", "adam", "--epochs", 1)["options"]["step"] for ranks in (1, 4)]
    assert steps == pytest.approx([0.03, 0.06])


@THOROUGH(but="replicated")
@KINDS
def test_one_against_the_rest_is_a_model_for_each_class(run, three, kind, tmp_path):
    options = ["--test", three, "--l2", L2, "--save", tmp_path / "model.npz", kind]
    report = run(3, three, *options)
    assert report["final"]["objective"] == pytest.approx(
        sum(minimum(np.where(c == CLASSES, 1, -1))[0] for c in range(3)), rel=1e-6
    )
    model = malt.files.load_npz(tmp_path / "model.npz")
    scores = X @ model["weights"] + model["intercept"]
    assert model["labels"].tolist() == [5, 6, 7]
    assert report["final"]["test_accuracy"] == pytest.approx((scores.argmax(axis=1) == CLASSES).mean())
    sgd = ["--optimizer", "sgd", "--epochs", 8, "--exchange-every", 10, kind]
    assert run(3, three, "--l2", L2, *sgd)["final"]["objective"] < 1.25 * report["final"]["objective"]


def test_softmax_ends_at_the_minimum(run, three):
    def function(flat):
        W = flat.reshape(FEATURES + 1, 3)
        scores = X @ W[:-1] + W[-1]
        logs = np.logaddexp.reduce(scores, axis=1)
        slopes = np.exp(scores - logs[:, np.newaxis])
        slopes[range(ROWS), CLASSES] -= 1
        gradient = np.vstack([X.T @ slopes, slopes.sum(axis=0)]) / ROWS
        gradient[:-1] += L2 * W[:-1]
        value = (logs - scores[range(ROWS), CLASSES]).mean() + L2 / 2 * (W[:-1] ** 2).sum()
        return value, gradient.ravel()

    known = minimize(function, np.zeros(3 * FEATURES + 3), jac=True, options={"gtol": 1e-9}).fun
    for kind in ("replicated", "--sharded"):
        softmax = [three, "--multiclass", "softmax", "--l2", L2, kind]
        sgd = [*softmax, "--optimizer", "sgd", "--epochs", 40, "--exchange-every", 10]
        assert run(3, *sgd)["final"]["objective"] == pytest.approx(known, rel=0.02)
        for more in ([], ["--warm-start", 2, "--exchange-every", 25]):
            assert run(3, *softmax, *more)["final"]["objective"] == pytest.approx(known, rel=1e-6)


@THOROUGH(but="replicated")
@KINDS
def test_a_warm_start_ends_at_the_same_minimum(run, two, kind):
    options = ["--warm-start", 3, "--exchange-every", 25, "--l2", L2, kind]
    report = run(3, two, *options)
    assert report["final"]["objective"] == pytest.approx(minimum(SIGNS)[0], rel=1e-6)
    assert [epoch["examples"] for epoch in report["epochs"][:3]] == [2 * ROWS, 3 * ROWS, 4 * ROWS]
    cold = run(3, two, "--l2", L2, kind)
    assert report["epochs"][2]["objective"] < cold["epochs"][2]["objective"]


@THOROUGH(but=["options1-4-replicated", "options3-2---sharded"])
@KINDS
@pytest.mark.parametrize(("options", "epochs"), [
    (["--warm-start", 2], 1), (["--warm-start", 2], 4), (["--warm-start", 2], 2), (["--optimizer", "sgd"], 2),
    (["--optimizer", "adam"], 2), (["--optimizer", "ftrl"], 2),
])  # fmt: skip
def test_a_run_resumes_on_another_number_of_ranks(run, two, tmp_path, options, epochs, kind):
    options = [two, *options, "--l2", L2, "--exchange-every", 30, kind]
    keeping = [*options, "--checkpoint", tmp_path / "train.ckpt", "--checkpoint-every", 0, "--resume"]
    first = run(3, *keeping, "--epochs", epochs)
    rest = run(2, *keeping, "--epochs", 24)
    assert rest["resumed_from"] == epochs and rest["epochs"][0]["objective"] < first["final"]["objective"]
    assert rest["final"]["objective"] == pytest.approx(run(2, *options, "--epochs", 24)["final"]["objective"], rel=0.01)
    again = run(2, *keeping, "--epochs", 24)
    assert again["epochs"] == [] and again["final"]["model_sha256"] == rest["final"]["model_sha256"]


@pytest.mark.parametrize("options", [
    ["--warm-start", 2], ["--optimizer", "sgd"], ["--optimizer", "adam"], ["--optimizer", "ftrl"],
])  # fmt: skip
def test_a_resumed_run_ends_as_one_that_was_never_stopped(run, two, tmp_path, options):
    options = [two, *options, "--exchange-every", 30, "--l2", L2]
    keeping = [*options, "--checkpoint", tmp_path / "train.ckpt", "--resume"]
    run(1, *keeping, "--epochs", 2)
    rest, whole = (run(1, *words, "--epochs", 5)["epochs"] for words in (keeping, options))
    assert [one["objective"] for one in rest] == pytest.approx([one["objective"] for one in whole[2:]], rel=1e-9)


def test_a_run_that_had_converged_goes_on_to_a_smaller_tolerance(run, two, tmp_path):
    keeping = [two, "--l2", L2, "--checkpoint", tmp_path / "train.ckpt", "--resume", "--tolerance"]
    first = run(1, *keeping, 0.01)
    rest = run(2, *keeping, 1e-6)
    assert rest["resumed_from"] == len(first["epochs"]) and rest["epochs"]
    assert first["final"]["objective"] > rest["final"]["objective"] == pytest.approx(minimum(SIGNS)[0], rel=1e-6)
    assert run(1, *keeping, 1e-3)["epochs"] == []


BAD = {
    "--l1 needs --optimizer owlqn or ftrl, not lbfgs": "--l1 1",
    "--l1 needs --optimizer owlqn or ftrl, not adam": "--l1 1 --optimizer adam",
    "--optimizer owlqn needs --l1 above 0: without it take lbfgs": "--optimizer owlqn",
    "--warm-start needs --optimizer lbfgs or owlqn, not sgd": "--optimizer sgd --warm-start 1",
    "--tolerance needs --optimizer lbfgs or owlqn: ftrl ends after --epochs": "--optimizer ftrl --tolerance 0.1",
    "--step needs --optimizer sgd, adam or ftrl, or --warm-start: lbfgs searches for its steps": "--step 1",
    "--exchange-every needs --optimizer sgd, adam or ftrl, or --warm-start: lbfgs exchanges once a pass":
        "--exchange-every 5",
    "--allreduce is for weights that all ranks have, not for --sharded": "--sharded --allreduce star",
    "--multiclass softmax needs --loss logistic, not squared": "--multiclass softmax --loss squared",
    "--multiclass ovr is for more classes than DATA has": "--multiclass ovr",
    "argument --loss: invalid choice: 'hinge'": "--loss hinge",
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_options_that_do_not_go_together(two, message):
    with pytest.raises(BadInput, match=re.escape(message.replace("DATA", str(two)))):
        program.run([str(two), *BAD[message].split()])


def test_labels_that_are_not_classes(two, three, tmp_path):
    other = written(tmp_path / "other.svm", CLASSES + 6)
    with pytest.raises(BadInput, match=f"{other}: row .*, counted from 0, has label 8, which is not in the training"):
        program.run([str(three), "--test", str(other)])
    many = tmp_path / "many.svm"
    many.write_text("".join(f"{row} 1:1\n" for row in range(1500)))
    with pytest.raises(BadInput, match="1,500 different labels are too many classes"):
        program.run([str(many)])


def test_what_ends_early_says_so(run, two, capsys):
    run(1, two, "--epochs", 3)
    assert capsys.readouterr().err == "warning: it has not converged: 3 iterations were made\n"
    run(1, two)
    assert capsys.readouterr().err == ""


def test_features_that_are_too_large_are_named(run, tmp_path, capsys):
    (tmp_path / "huge.svm").write_text("1 1:1e38\n-1 1:-1e38\n")
    run(1, tmp_path / "huge.svm")
    printed = capsys.readouterr().err
    assert re.fullmatch(r"warning: it has not converged: .*: scale the features, or lower --l2\n", printed)


@pytest.mark.parametrize(("options", "at_zeros"), [
    ([], np.log(2)), (["--loss", "squared"], 0.5), (["--loss", "squared-hinge"], 1), ([3], 3 * np.log(2)),
    ([3, "--multiclass", "softmax"], np.log(3)),
])  # fmt: skip
def test_a_model_that_is_worse_than_zeros_is_warned_of(run, two, three, capsys, options, at_zeros):
    options = [three, *options[1:]] if 3 in options else [two, *options]
    warning = "warning: the model is worse than one of zeros: scale the features, or take a smaller --step\n"
    report = run(1, *options, "--optimizer", "adam", "--step", 500, "--epochs", 1)
    assert report["final"]["objective"] > at_zeros and capsys.readouterr().err == warning
    report = run(1, *options, "--optimizer", "adam", "--step", 1e-9, "--epochs", 1)
    assert report["final"]["objective"] == pytest.approx(at_zeros) and capsys.readouterr().err == ""


def test_sums_of_sharded_gradients_are_in_at_once():
    """Where nothing else has added what the others have pushed."""

    def live(rank):
        weights, block = Sharded((9,)), Block(None, np.arange(9))
        weights.seen(weights.w, block)
        session.world().transport.duties.clear()
        gradient, totals = weights.added(np.full(9, rank + 1.0), block, [1.0] * NUMBERS, 0.5)
        assert weights.local(gradient).tolist() == [6] * 3 and totals.tolist() == [4.5, *[3] * (NUMBERS - 1)]

    malt.simulate(live, 3)


@pytest.mark.parametrize("call", ["pull", "push"])
def test_a_part_that_one_rank_knows_to_be_lost_is_the_same_error_on_all(call):
    def live(rank):
        weights, block = Sharded((9,)), Block(None, np.arange(9))

        def wait(late):
            while late == call and rank == 0 and 2 in malt.alive():
                session.world().transport.pause(9)

        def pull(*arguments):
            wait("pull")
            return weights.w.pull(*arguments)

        with pytest.raises(malt.PeerLost):
            while True:
                weights.seen(SimpleNamespace(pull=pull), block)
                wait("push")
                weights.added(np.ones(9), block, [0.0] * NUMBERS, 0.0)
        return sum(one is not None for one in malt.allgather(np.array(rank)))

    results, failed = run_failing(3, 0, {2: 200}, live)
    assert (results[:2], failed) == ([2, 2], {2})


@pytest.mark.parametrize("seed", [0, 2, 4, 7])
def test_where_the_weights_of_a_rank_are_lost_the_others_go_on_from_a_checkpoint(two, tmp_path, seed, capsys):
    """In any turn after the first save: of the training, of a save or of the report."""
    report, path = tmp_path / "report.json", tmp_path / "train.ckpt"
    words = [str(two), "--l2", str(L2), "--sharded", "--checkpoint", str(path), "--resume"]
    malt.simulate(lambda rank: program.run([*words, "--epochs", "1"]), 2)
    words += ["--checkpoint-every", "0", "--json", str(report)]
    _, failed = run_failing(3, seed, {seed % 3: 200 + 350 * seed}, lambda rank: program.run(words))
    found, printed = json.loads(report.read_text()), capsys.readouterr()
    assert failed == {seed % 3} and found["final"]["objective"] == pytest.approx(minimum(SIGNS)[0], rel=1e-6)
    assert found["resumed_from"] > 1 or seed < 2
    assert f"rows of rank {seed % 3} are dealt to ranks" in printed.err


def test_a_rank_that_fails_while_kernels_are_compiled_is_replaced_from_the_checkpoint(two, tmp_path, monkeypatch):
    """Its part of the weights has been read by then."""
    report, path = tmp_path / "report.json", tmp_path / "train.ckpt"
    words = [str(two), "--l2", str(L2), "--sharded", "--checkpoint", str(path), "--resume", "--json", str(report)]
    malt.simulate(lambda rank: program.run([*words, "--epochs", "1"]), 2)

    def compile_kernels(problem):
        while malt.rank() == 1 and len(malt.alive()) == 3:
            malt.heartbeat()

    monkeypatch.setattr(program.Problem, "compile", compile_kernels)
    _, failed = run_failing(3, 0, {1: 400}, lambda rank: program.run(words))
    assert failed == {1}
    assert json.loads(report.read_text())["final"]["objective"] == pytest.approx(minimum(SIGNS)[0], rel=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_the_others_take_over_the_rows_of_a_rank_that_fails(two, tmp_path, seed, capsys):
    """In any turn: the function that is minimized stays the same."""
    report = tmp_path / "report.json"
    failures = {seed % 3: 20 + 45 * seed}
    words = [str(two), "--l2", str(L2), "--warm-start", str(seed % 2 * 2), "--exchange-every", "25"]
    words = words[:3] + words[3:] * (seed % 2)
    _, failed = run_failing(3, seed, failures, lambda rank: program.run([*words, "--json", str(report)]))
    found = json.loads(report.read_text())
    assert found["final"]["objective"] == pytest.approx(minimum(SIGNS)[0], rel=1e-6)
    assert failed == {seed % 3} and f"rows of rank {seed % 3} are dealt to ranks" in capsys.readouterr().err
