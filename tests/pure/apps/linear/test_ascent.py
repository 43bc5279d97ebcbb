"""Tests of apps.svm --optimizer dual: the dual and its steps, the optimum, ranks that fail, runs that are resumed."""

import contextlib
import io
import json
import random

import numpy as np
import pytest
from covering import pairs

pytest.importorskip("numba")

from scipy.optimize import minimize, minimize_scalar
from scipy.sparse import csr_matrix, random_array

import malt
from apps.harness import BadInput
from apps.svm import dual
from apps.svm.program import run
from dstorm import Group, SimulatedTransport
from dstorm.membership.resilient import SurvivingTransport
from malt.models import linear
from malt.models.linear import LOSSES, Ascent, Problem, compiled
from malt.session import session
from malt.session.world.world import World

pytestmark = [pytest.mark.serial, pytest.mark.single]

L2 = 0.01
SOME_LOSSES = ["hinge", "squared-hinge", "logistic"]
EVERY_LOSS = pytest.mark.parametrize("loss", SOME_LOSSES)


def some_rows(rows=200, features=12, seed=0):
    """Rows, the first of them empty, and labels that no plane separates, a third of them +1."""
    generator = np.random.default_rng(seed)
    X = csr_matrix(random_array((rows, features), density=0.4, rng=generator, dtype=np.float32))
    X.data[: X.indptr[1]] = 0
    X.eliminate_zeros()
    margins = X @ generator.standard_normal(features) + 0.5 * generator.standard_normal(rows)
    return X, np.where(margins > np.quantile(margins, 0.66), 1, -1).astype(np.float32)


@pytest.fixture
def file(tmp_path):
    """Those rows as svmlight text."""
    X, y = some_rows()
    path = tmp_path / "rows.svm"
    entries = [zip(row.indices, row.data.tolist(), strict=True) for row in X]
    texts = [" ".join(f"{column + 1}:{value!r}" for column, value in row) for row in entries]
    path.write_text("".join(f"{label:.0f} {text}\n" for label, text in zip(y, texts, strict=True)))
    return path


def optimum(X, y, loss, intercept):
    """The smallest objective."""
    if loss == "hinge":
        svm = pytest.importorskip("sklearn.svm")
        # Both have this objective: SVC with an intercept that is not penalized, LinearSVC without one.
        if intercept:
            made = svm.SVC(kernel="linear", C=1 / (L2 * len(y)), tol=1e-8).fit(X, y)
            w, b = made.coef_.toarray().ravel(), made.intercept_[0]
        else:
            made = svm.LinearSVC(loss="hinge", C=1 / (L2 * len(y)), fit_intercept=False, tol=1e-8, max_iter=10**6)
            w, b = made.fit(X, y).coef_.ravel(), 0.0
        return np.maximum(0, 1 - y * (X @ w + b)).mean() + L2 / 2 * w @ w

    def objective(params):
        z = y * (X @ params[:-1] + intercept * params[-1])
        losses = np.logaddexp(0, -z) if loss == "logistic" else np.square(np.maximum(0, 1 - z))
        return losses.mean() + L2 / 2 * params[:-1] @ params[:-1]

    return minimize(objective, np.zeros(X.shape[1] + 1), options={"gtol": 1e-8}).fun


def report(tmp_path, ranks, *words):
    """The report of a run on simulated ranks."""
    path = tmp_path / "report.json"
    words = ["--optimizer", "dual", "--l2", L2, "--json", path, *words]
    malt.simulate(lambda rank: run([str(word) for word in words]), ranks)
    return json.loads(path.read_text())


# The dual


def dual_loss(loss, a):
    if loss == "hinge":
        return a
    return a - a * a / 4 if loss == "squared-hinge" else -a * np.log(a) - (1 - a) * np.log1p(-a)


@EVERY_LOSS
def test_the_best_alpha_is_the_best(loss):
    generator = np.random.default_rng(1)
    linear.compile_kernels()
    most = 50.0 if loss == "squared-hinge" else 1.0
    for _ in range(200):
        alpha, z, q = generator.random(), 3 * generator.standard_normal(), 10.0 ** generator.uniform(-3, 3)

        def loses(a, alpha=alpha, z=z, q=q):
            return -dual_loss(loss, a) + z * (a - alpha) + q * (a - alpha) ** 2 / 2

        found = compiled.best_alpha(LOSSES[loss], alpha, z, q)
        twin = minimize_scalar(loses, bounds=(0, most), method="bounded", options={"xatol": 1e-9}).x
        assert found == pytest.approx(twin, abs=1e-5)


def test_a_row_without_features_and_intercept_has_the_full_loss():
    linear.compile_kernels()
    assert compiled.best_alpha(LOSSES["hinge"], 0.0, 0.0, 0.0) == 1.0


def weights_of(X, y, alphas):
    """The slow twin."""
    return X.astype(np.float64).T @ (alphas * y) / (L2 * len(y))


@EVERY_LOSS
@pytest.mark.parametrize("intercept", [True, False])
def test_the_dual_is_never_above_an_objective(loss, intercept):
    """The weights are those of the alphas, also after changes of several ranks, and after labels were balanced."""
    X, y = some_rows()
    linear.compile_kernels()
    problem, best = Problem(loss, L2, intercept), optimum(X, y, loss, intercept)
    made, generator = Ascent(problem, linear.examples(X, y), X.shape[1], 1.0), np.random.default_rng(2)
    for _ in range(30):
        parts = np.array_split(generator.permutation(len(y)).astype(np.int32), 3)
        made.add(sum(made.ascend(part, 3) for part in parts))
        made.balance()
        assert (abs(made.alphas @ y) < 1e-10) == intercept
        np.testing.assert_allclose(made.weights[:-1], weights_of(X, y, made.alphas), rtol=1e-9, atol=1e-12)
        total = sum(dual_loss(loss, a) for a in made.alphas)
        assert made.total(0, 50) + made.total(50, len(y)) == pytest.approx(total)
        value = total / len(y) - made.penalty()
        assert value - 1e-7 < best < linear.objective(problem, linear.examples(X, y), made.model()) + 1e-7
    assert value > 0.99 * best


def test_an_ascent_goes_on_from_its_state():
    X, y = some_rows()
    linear.compile_kernels()
    problem, data, order = Problem("hinge", L2), linear.examples(X, y), np.arange(len(y), dtype=np.int32)

    def step(made):
        made.add(made.ascend(order, 1))
        made.balance()
        return made

    one = step(Ascent(problem, data, X.shape[1], 1.0))
    other = Ascent(problem, data, X.shape[1], 1.0, {name: array.copy() for name, array in one.state().items()})
    assert (step(one).model() == step(other).model()).all()


# The program


@pytest.mark.thorough(but="hinge-True-2")
@pytest.mark.parametrize(("loss", "intercept", "ranks"), pairs(SOME_LOSSES, [True, False], [2, 1, 4]))
def test_the_gap_closes_at_the_optimum(tmp_path, file, loss, intercept, ranks):
    words = [file, "--loss", loss, "--gap", 1e-5, *([] if intercept else ["--no-intercept"])]
    made = report(tmp_path, ranks, *words)
    best, final = optimum(*some_rows(), loss, intercept), made["final"]
    assert 0 <= final["duality_gap"] <= 1e-5
    for epoch in made["epochs"]:
        assert (1 - 1e-6) * best <= epoch["objective"]
        assert epoch["objective"] * (1 - epoch["duality_gap"]) <= best * (1 + 1e-6)
    assert all(epoch["duality_gap"] > 1e-5 for epoch in made["epochs"][:-1])


@pytest.mark.parametrize("every", [7, 50, 10**6])
def test_an_exchange_within_an_epoch(tmp_path, file, every):
    words = [file, "--exchange-every", every, "--gap", 0, "--epochs", 4]
    made = report(tmp_path, 3, *words)
    last = made["epochs"][-1]
    assert last["merged"] == 4 * 3 * 2 * -(-67 // every) and last["overwritten"] == 0
    assert last["bytes_dense"] == last["merged"] // 2 * 8 * 13  # weights
    changes = 8 * (200 + 2 * 13 + 2)  # alphas, weights and the part of positive rows, two sums
    assert last["bytes_sent"] == 4 * -(-67 // every) * 2 * 2 * changes


def test_ranks_without_rows(tmp_path):
    few = tmp_path / "few.svm"
    few.write_text("1 1:1\n-1 1:-1 2:1\n1 2:1\n")
    one, five = (report(tmp_path, ranks, few, "--gap", 1e-6)["final"] for ranks in (1, 5))
    assert five["objective"] == pytest.approx(one["objective"], rel=2e-6)


# Ranks that fail


@pytest.mark.parametrize(
    ("seed", "words"), [(seed, (("--no-intercept", "--exchange-every", "20"), ())[seed % 2]) for seed in range(6)]
)
def test_ranks_that_fail_at_any_moment(tmp_path, file, monkeypatch, words, seed):
    """All rows count after each epoch, weights are those of the alphas, and the gap closes."""
    (X, y), path, totals = some_rows(), tmp_path / "report.json", dual.Trainer._totals
    best = optimum(X, y, "hinge", not words)

    def seen(trainer):
        alphas, weights = trainer._ascent.alphas, trainer._ascent.weights
        np.testing.assert_allclose(weights[:-1], weights_of(X, y, alphas), rtol=1e-9, atol=1e-12)
        return totals(trainer)

    monkeypatch.setattr(dual.Trainer, "_totals", seen)
    command = [str(file), "--optimizer", "dual", "--l2", str(L2), "--json", str(path), "--gap", "1e-3", *words]
    group = Group(4, seed, doomed(4, seed))

    def live(rank):
        inner = SimulatedTransport(group, rank)
        transport = SurvivingTransport(inner, inner.window(1 << 23), inner.find_failed, 5.0)
        session.enter_simulation(World(transport))
        with contextlib.redirect_stdout(io.StringIO()):
            run(command)
        return malt.alive()

    ends = [alive for alive in group.run(live) if alive]
    made = json.loads(path.read_text())
    assert len(ends) == 4 - len(group.failed)
    assert {one["rank"] for one in made["lost_ranks"]} <= group.failed
    assert made["final"]["duality_gap"] <= 1e-3
    assert (1 - 1e-6) * best <= made["final"]["objective"] <= 1.0011 * best


def doomed(size, seed):
    """Up to size - 1 ranks that fail, each after so many of its turns."""
    choose = random.Random(seed)
    ranks = choose.sample(range(size), choose.randrange(1, size))
    return {rank: int(2 ** choose.uniform(6, 12)) for rank in ranks}


# What is kept and resumed


def test_a_resumed_run_goes_on_to_a_smaller_gap(tmp_path, file):
    keeping = [file, "--checkpoint", tmp_path / "train.ckpt", "--checkpoint-every", 0, "--resume"]
    first = report(tmp_path, 3, *keeping, "--gap", 1e-2)
    for gap in (1e-2, 1e-1):
        over = report(tmp_path, 2, *keeping, "--gap", gap)
        assert over["epochs"] == [] and over["final"]["model_sha256"] == first["final"]["model_sha256"]
        assert over["final"]["duality_gap"] == pytest.approx(first["final"]["duality_gap"], rel=1e-9)
    rest = report(tmp_path, 2, *keeping, "--gap", 1e-4)
    assert rest["resumed_from"] == len(first["epochs"]) and rest["final"]["duality_gap"] <= 1e-4
    assert rest["epochs"][0]["duality_gap"] < 1e-2


@pytest.mark.parametrize(("there", "here"), [("", " --optimizer dual"), (" --optimizer dual", "")])
def test_a_checkpoint_of_the_other_optimizer_is_refused(tmp_path, file, there, here):
    words = [str(file), "--epochs", "1", "--checkpoint", str(tmp_path / "train.ckpt")]
    run([*words, *there.split()])
    with pytest.raises(BadInput, match=f"a checkpoint of apps.svm{there}, not of apps.svm{here}: name another file"):
        run([*words, "--resume", *here.split()])


EDGES = {
    "labels are all the same": ("5 1:0.126 2:-0.132\n5 1:0.64 2:0.105\n5 1:-0.536 2:0.362\n", 0.0),
    "there is one row": ("-1 1:1\n", 0.0),
    "features are zeros": ("1 1:0\n-1 1:0\n1 1:0\n", 2 / 3),
    "features are tiny": ("1 1:1e-30\n-1 1:2e-30\n1 1:3e-30\n", 2 / 3),
    "features are large": ("1 1:1e30\n-1 1:-2e30\n1 1:1e29\n", 0.0),
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("l2", [1e-4, 1e6])
def test_at_the_edges_it_ends_at_the_optimum(tmp_path, edge, l2):
    text, objective = EDGES[edge]
    (tmp_path / "edge.svm").write_text(text)
    found = report(tmp_path, 1, tmp_path / "edge.svm", "--l2", l2)["final"]
    assert found["duality_gap"] <= 1e-4 and found["objective"] == pytest.approx(objective, abs=1e-6)
