"""Tests of malt.models.linear: kernels against slow twins in NumPy, derivatives against differences of the loss."""

import lzma
import math
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")
pytest.importorskip("sklearn")

from few_rows import labelled_rows
from scipy.sparse import csr_matrix, random_array
from sklearn.datasets import load_svmlight_file

from malt.models import linear
from malt.models.linear import LOSSES, Problem

ROOT = Path(__file__).parents[4]
DATA = ROOT.parent / "shared" / "data"
L2 = 0.01
EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES)
EVERY_PROBLEM = pytest.mark.parametrize(
    "problem", [Problem(loss, L2, b) for loss in LOSSES for b in (True, False)], ids=str
)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    linear.compile_kernels()


@pytest.fixture
def generator():
    return np.random.default_rng(0)


# The twins


def loss_at(loss, z):
    if loss == "logistic":
        return np.logaddexp(0, -z)
    if loss == "squared":
        return (1 - z) ** 2 / 2
    return np.maximum(0, 1 - z) ** (2 if loss == "squared-hinge" else 1)


def dloss_at(loss, z):
    if loss == "logistic":
        return -1 / (1 + np.exp(z))
    if loss == "squared":
        return z - 1
    return np.where(z < 1, -1.0, 0.0) if loss == "hinge" else -2 * np.maximum(0, 1 - z)


def margins(X, y, w, b):
    return y * (X.astype(np.float64) @ w + b)


def train_slowly(problem, X, y, order, params, eta0, t):
    """The parameters after training, with eager shrinking, on dense rows in float64."""
    w, b = params[:-1].astype(np.float64), float(params[-1])
    for row in order:
        x = X[[row]].toarray()[0].astype(np.float64)
        eta = eta0 / (1 + problem.l2 * eta0 * t)
        slope = float(dloss_at(problem.loss, y[row] * (x @ w + b)) * y[row])
        w = (w - eta * slope * x) / (1 + eta * problem.l2)
        b -= eta * linear.INTERCEPT_RATE * slope * problem.intercept
        t += 1
    return np.append(w, b)


def train_classes_slowly(problem, X, labels, order, params, eta0, t):
    """As `train_slowly`, with the softmax loss."""
    w, b = params[:, :-1].astype(np.float64), params[:, -1].astype(np.float64)
    for row in order:
        x = X[[row]].toarray()[0].astype(np.float64)
        eta = eta0 / (1 + problem.l2 * eta0 * t)
        slopes = np.exp(w @ x + b) / np.exp(w @ x + b).sum() - (np.arange(len(w)) == labels[row])
        w = (w - eta * np.outer(slopes, x)) / (1 + eta * problem.l2)
        b -= eta * linear.INTERCEPT_RATE * slopes * problem.intercept
        t += 1
    return np.column_stack([w, b])


def subgradient_slowly(problem, X, y, order, params):
    w, b = params[:-1].astype(np.float64), float(params[-1])
    X, y = X[order].toarray().astype(np.float64), y[order]
    slopes = dloss_at(problem.loss, margins(X, y, w, b)) * y / len(order)
    return np.append(X.T @ slopes + problem.l2 * w, slopes.sum() * problem.intercept)


def objective_slowly(problem, X, y, params):
    w, b = params[:-1].astype(np.float64), float(params[-1])
    return loss_at(problem.loss, margins(X, y, w, b)).mean() + problem.l2 / 2 * (w @ w)


# Losses


@EVERY_LOSS
def test_losses_are_their_formulas(loss):
    for z in (-800.0, -30.0, -1.0, 0.0, 0.5, 1.5, 30.0, 800.0):
        assert linear.loss_of(LOSSES[loss], z) == pytest.approx(float(loss_at(loss, z)), rel=1e-12)
        with np.errstate(over="ignore"):
            assert linear.dloss_of(LOSSES[loss], z) == pytest.approx(float(dloss_at(loss, z)), rel=1e-12)


@EVERY_LOSS
def test_derivatives_are_differences(loss):
    code, h = LOSSES[loss], 1e-6
    for z in (-5.0, -0.3, 0.0, 0.7, 0.999, 1.001, 1.7, 6.0):
        difference = (linear.loss_of(code, z + h) - linear.loss_of(code, z - h)) / (2 * h)
        assert linear.dloss_of(code, z) == pytest.approx(difference, abs=1e-6)


# Kernels


@EVERY_PROBLEM
def test_lazy_training_equals_eager(problem, generator):
    X, y = labelled_rows(generator)
    data, params = linear.examples(X, y), generator.standard_normal(21).astype(np.float32)
    params[-1] *= problem.intercept
    order, t = generator.integers(0, 60, 300).astype(np.int32), 17.0
    expected = train_slowly(problem, X, y, order, params, 0.5, t)
    for part in np.split(order, [1, 100, 100]):
        t = linear.train(problem, data, part, params, 0.5, t)
    assert t == 317
    np.testing.assert_allclose(params, expected, rtol=1e-4, atol=1e-5)
    assert problem.intercept or params[-1] == 0


@pytest.mark.parametrize("intercept", [True, False])
def test_training_of_classes_equals_its_slow_twin(intercept, generator):
    X, _ = labelled_rows(generator)
    labels = generator.integers(0, 3, 60).astype(np.float32)
    problem, data = Problem("logistic", L2, intercept), linear.examples(X, labels)
    params = generator.standard_normal((3, 21)).astype(np.float32)
    params[:, -1] *= intercept
    order, t = generator.integers(0, 60, 300).astype(np.int32), 17.0
    expected = train_classes_slowly(problem, X, labels, order, params, 0.5, t)
    for part in np.split(order, [1, 100, 100]):
        t = linear.train_classes(problem, data, part, params, np.zeros(3), 0.5, t)
    assert t == 317
    np.testing.assert_allclose(params, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(FloatingPointError, match="step size"):
        linear.train_classes(problem, data, order, np.full((3, 21), np.inf, np.float32), np.zeros(3), 0.5, t)


def test_a_scale_of_a_millionth_loses_no_precision(generator):
    X, y = labelled_rows(generator)
    problem, params = Problem("hinge", 10.0), np.zeros(21, dtype=np.float32)
    order = generator.integers(0, 60, 3000).astype(np.int32)
    expected = train_slowly(problem, X, y, order, params, 100.0, 0.0)
    linear.train(problem, linear.examples(X, y), order, params, 100.0, 0.0)
    np.testing.assert_allclose(params, expected, rtol=1e-3, atol=1e-6)


@EVERY_PROBLEM
def test_subgradient_equals_its_slow_twin(problem, generator):
    X, y = labelled_rows(generator)
    params, out = generator.standard_normal(21).astype(np.float32), np.full(21, np.nan, dtype=np.float32)
    order = generator.permutation(60)[:40].astype(np.int32)
    linear.subgradient(problem, linear.examples(X, y), order, params, out)
    np.testing.assert_allclose(out, subgradient_slowly(problem, X, y, order, params), rtol=1e-4, atol=1e-5)


@EVERY_PROBLEM
def test_subgradient_descends_and_is_the_objectives(problem, generator):
    X, y = labelled_rows(generator)
    data, params, out = linear.examples(X, y), np.zeros(21, dtype=np.float32), np.zeros(21, dtype=np.float32)
    everything = np.arange(60, dtype=np.int32)
    before = linear.objective(problem, data, params)
    linear.subgradient(problem, data, everything, params, out)
    params -= np.float32(1e-3) * out
    fall = before - linear.objective(problem, data, params)
    assert fall == pytest.approx(1e-3 * float(out @ out), rel=0.02)


@EVERY_PROBLEM
def test_objective_and_accuracy_equal_their_slow_twins(problem, generator):
    X, y = labelled_rows(generator)
    data, params = linear.examples(X, y), generator.standard_normal(21).astype(np.float32)
    right = margins(X, y, params[:-1].astype(np.float64), params[-1]) > 0
    assert linear.objective(problem, data, params) == pytest.approx(objective_slowly(problem, X, y, params), rel=1e-5)
    assert linear.accuracy(problem, data, params) == pytest.approx(right.mean())
    blocks = [linear.totals(problem, data, params, start, start + 25) for start in (0, 25, 50)]
    assert np.sum(blocks, axis=0) == pytest.approx(linear.totals(problem, data, params))


def test_blend_is_the_weighted_mean(generator):
    models = generator.standard_normal((30, 5)).astype(np.float32)
    average, expected = np.zeros(5, dtype=np.float32), np.zeros(5)
    for n, model in enumerate(models, start=1):
        linear.blend(average, model, n)
        share = (linear.TAIL + 1) / (linear.TAIL + n)
        expected = (1 - share) * expected + share * model
    np.testing.assert_allclose(average, expected, rtol=1e-5, atol=1e-6)


# Data and order


def test_examples_are_views_or_copies_in_the_order_given(generator):
    X, y = labelled_rows(generator)
    views, copies = linear.examples(X, y), linear.examples(X, y, np.array([7, 0, 7]))
    assert np.shares_memory(views.values, X.data) and np.shares_memory(views.columns, X.indices)
    assert X.data.flags.writeable and not views.values.flags.writeable
    copied = csr_matrix((copies.values, copies.columns, copies.starts), shape=(3, 20))
    np.testing.assert_array_equal(copied.toarray(), X[[7, 0, 7]].toarray())
    np.testing.assert_array_equal(copies.labels, y[[7, 0, 7]])


def test_examples_refuse_what_the_kernels_do_not_check(generator):
    X, y = labelled_rows(generator)
    with pytest.raises(ValueError, match="59 labels for 60 rows"):
        linear.examples(X, y[1:])
    X.indices[3] = 20
    with pytest.raises(ValueError, match="outside the matrix"):
        linear.examples(X, y)


def test_mapped_files_train_without_another_compilation(generator, tmp_path):
    X, y = labelled_rows(generator)
    for name, array in (("data", X.data), ("indices", X.indices), ("indptr", X.indptr), ("y", y)):
        np.save(tmp_path / f"{name}.npy", array)
    data, indices, indptr, labels = (
        np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("data", "indices", "indptr", "y")
    )
    mapped = linear.examples(csr_matrix((data, indices, indptr), shape=X.shape, copy=False), labels)
    plain, params = np.zeros(21, dtype=np.float32), np.zeros(21, dtype=np.float32)
    order = linear.visiting_order(60, generator)
    linear.train(Problem(), linear.examples(X, y), order, plain, 0.5, 0)
    linear.train(Problem(), mapped, order, params, 0.5, 0)
    np.testing.assert_array_equal(params, plain)
    with pytest.raises(TypeError):
        linear.train(Problem(), mapped, order, params.astype(np.float64), 0.5, 0)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000])
def test_visiting_order_is_a_permutation_in_runs(count, generator):
    order = linear.visiting_order(count, generator)
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(count))
    assert np.count_nonzero(np.diff(order) != 1) <= count // linear.BLOCK_ROWS


# Steps


def test_step_size_goes_from_eta0_to_the_inverse_of_l2_t():
    assert linear.step_size(2.0, 1e-4, 0) == 2.0
    assert linear.step_size(2.0, 1e-4, 1e9) == pytest.approx(1 / (1e-4 * 1e9), rel=1e-4)
    assert linear.step_size(2.0, 0.0, 1e9) == 2.0
    assert linear.gradient_step(2.0, 0.0, 5, 1000) == pytest.approx(linear.GRADIENT_SHARE * 2000)


def test_the_penalty_is_summed_in_float64_and_copies_no_model():
    params = np.full(10**6 + 1, 0.1, np.float32)
    tracemalloc.start()
    found = linear.penalty(Problem(l2=2.0), params)
    nbytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == pytest.approx(10**6 * float(np.float32(0.1)) ** 2, rel=1e-10) and nbytes < params.nbytes / 4


@EVERY_LOSS
@pytest.mark.parametrize("ranks", [1, 4, 64])
def test_first_step_follows_the_scale_of_the_data(loss, ranks, generator):
    X, y = labelled_rows(generator, rows=500)
    problem, data, params = Problem(loss, L2, intercept=False), linear.examples(X, y), np.zeros(21, dtype=np.float32)
    eta0 = linear.first_step(problem, data, 20, ranks)
    linear.train(problem, data, np.arange(500, dtype=np.int32), params, eta0, 0)
    assert linear.objective(problem, data, params) < 0.75 * loss_at(loss, 0.0)
    tiny, in_thousandths = Problem(loss, L2 * 1e-6, intercept=False), linear.examples(X * np.float32(1e-3), y)
    assert linear.first_step(tiny, in_thousandths, 20, ranks) == pytest.approx(1e6 * eta0, rel=1e-3)


def test_the_first_step_takes_no_memory_for_features_that_are_not_in_the_sample(generator):
    X, y = labelled_rows(generator)
    eta0 = linear.first_step(Problem(), linear.examples(X, y), 20)
    columns = np.where(X.indices == 19, 2**31 - 3, X.indices).astype(np.int32)
    wide = csr_matrix((X.data, columns, X.indptr), shape=(len(y), 2**31 - 2))
    assert linear.first_step(Problem(), linear.examples(wide, y), 2**31 - 2) == eta0


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_no_rows_and_few_rows_are_trained(rows, generator):
    X, y = labelled_rows(generator)
    data, params = linear.examples(X[:rows], y[:rows]), np.ones(21, dtype=np.float32)
    eta0 = linear.first_step(Problem(), data, 20, ranks=4)
    assert eta0 > 0
    t = linear.train(Problem(), data, linear.visiting_order(rows, generator), params, eta0, 0)
    assert t == rows and np.isfinite(params).all()
    assert math.isnan(linear.objective(Problem(), data, params)) is (rows == 0)
    out = np.ones(21, dtype=np.float32)
    linear.subgradient(Problem(l2=0.5), data, np.zeros(0, dtype=np.int32), params, out)
    np.testing.assert_allclose(out[:-1], 0.5 * params[:-1])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 7, 20])
def test_any_parameter_that_is_not_finite_is_found(place, value, generator):
    params = np.zeros(21, dtype=np.float32)
    params[place] = value
    with pytest.raises(FloatingPointError):
        linear.train(Problem(), linear.examples(*labelled_rows(generator)), np.zeros(0, dtype=np.int32), params, 1.0, 0)


@pytest.mark.parametrize("intercept", [True, False])
def test_divergence_names_the_step_size(intercept, generator):
    X, y = labelled_rows(generator)
    params = np.zeros(21, dtype=np.float32)
    order = np.tile(np.arange(60, dtype=np.int32), 100)
    with pytest.raises(FloatingPointError, match=r"step size, .* \(at first 1e\+04\), is too large"):
        linear.train(Problem("squared-hinge", 0.0, intercept), linear.examples(X, y), order, params, 1e4, 0)


@pytest.mark.parametrize("wrong", [{"loss": "huber"}, {"l2": -1.0}, {"l2": math.nan}, {"l2": math.inf}], ids=str)
def test_bad_problems_are_refused(wrong):
    with pytest.raises(ValueError, match="is not valid: use hinge" if "loss" in wrong else "l2 must be"):
        Problem(**wrong)


# Learning


def learn(problem, data, features, generator, epochs=10, every=1000):
    params, t, n = np.zeros(features + 1, dtype=np.float32), 0.0, 0
    average, eta0 = params.copy(), linear.first_step(problem, data, features)
    for _ in range(epochs):
        order = linear.visiting_order(len(data.labels), generator)
        for start in range(0, len(order), every):
            t = linear.train(problem, data, order[start : start + every], params, eta0, t)
            linear.blend(average, params, n := n + 1)
    return average


@EVERY_LOSS
def test_training_comes_near_the_optimum(loss, generator):
    X, y = labelled_rows(generator, rows=1000)
    problem, data = Problem(loss, L2), linear.examples(X, y)
    everything, best = np.arange(1000, dtype=np.int32), np.zeros(21, dtype=np.float32)
    gradient, average = best.copy(), best.copy()
    for n in range(20_000):
        linear.subgradient(problem, data, everything, best, gradient)
        best -= np.float32(1 / (10 + L2 * n)) * gradient
        linear.blend(average, best, n + 1)
    learned = learn(problem, data, 20, generator, epochs=30, every=100)
    assert linear.objective(problem, data, learned) < 1.01 * linear.objective(problem, data, average)


def real_data(name, part, features):
    path = DATA / name / f"{part}.svm.xz"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    with lzma.open(path) as file:
        X, y = load_svmlight_file(file, n_features=features, dtype=np.float32)
    return X, y.astype(np.float32)


def shuffled(X, y, generator):
    return linear.examples(X, y, generator.permutation(len(y)))


@pytest.mark.serial
@pytest.mark.thorough
def test_rcv1_reaches_its_target(generator):
    data = shuffled(*real_data("rcv1-ccat", "train", 47_236), generator)
    test = linear.examples(*real_data("rcv1-ccat", "test", 47_236))
    problem = Problem("hinge", 1e-4, intercept=False)
    params = learn(problem, data, 47_236, generator)
    assert linear.objective(problem, data, params) <= 0.1900
    assert linear.accuracy(problem, test, params) >= 0.938


@pytest.mark.serial
def test_a9a_reaches_its_target(generator):
    data = shuffled(*real_data("a9a", "train", 123), generator)
    test = linear.examples(*real_data("a9a", "test", 123))
    problem = Problem("hinge", 1e-4)
    params = learn(problem, data, 123, generator)
    assert linear.objective(problem, data, params) <= 0.3550
    assert linear.accuracy(problem, test, params) >= 0.845


# Compilation


@pytest.mark.serial
@pytest.mark.thorough
def test_compiled_kernels_are_cached():
    """A second process loads the kernels. So ranks that wait for the first do not compile."""
    program = """
from malt.models.linear.compiled import kernel
kernel.compile()
stats = [dispatcher.stats for dispatcher, _ in kernel.signed]
print(sum(one.cache_misses.total() for one in stats), len(stats) - sum(one.cache_hits.total() for one in stats))"""

    def compiled():
        return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout

    compiled()  # what is not there yet
    assert compiled() == "0 0\n"


@pytest.mark.parametrize("intercept", [False, True])
def test_touched_weights_are_those_of_the_rows(intercept):
    X = csr_matrix(random_array((30, 50), density=0.1, dtype=np.float32))
    data = linear.examples(X, np.ones(30, np.float32))
    touched = linear.Touched(data, 50, intercept)
    assert touched.take().size == 0
    touched.note(np.array([3, 7], np.int32))
    touched.note(np.array([7, 20], np.int32))
    expected = sorted({*X[[3, 7, 20]].indices.tolist(), *([50] if intercept else [])})
    assert touched.take().tolist() == expected
    assert touched.take().size == 0
