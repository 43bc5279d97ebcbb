"""Kernels without numba: they do what the compiled ones do, to the rounding, and neither raise nor warn where those go
on with infinity."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location

import numpy as np
import pytest

pytest.importorskip("numba")

from few_ratings import few_ratings
from few_rows import FEATURES, ORDER, readonly, readonly_rows

from malt.kernels import compiler
from malt.models.factors import compiled as compiled_factors
from malt.models.factors import problem
from malt.models.linear import LOSSES, SOFTMAX
from malt.models.linear import compiled as compiled_linear

pytestmark = pytest.mark.serial
CLASSES, RANK = 3, 5


@pytest.fixture
def interpreted(monkeypatch):
    """interpreted(module): a copy of it whose kernels are interpreted. Those of the module itself are compiled."""
    compiled_linear.compile_kernels()
    compiled_factors.train_kernel(RANK)
    monkeypatch.setattr(compiler, "TROUBLE", "numba is hidden")

    def copied(module):
        spec = spec_from_file_location(module.__name__, module.__file__)
        copy = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, module.__name__, copy)
        spec.loader.exec_module(copy)
        return copy

    return copied


def drawn(*shape, kind=np.float64):
    return np.random.default_rng(sum(shape)).uniform(0, 1, shape).astype(kind)


def calls(name, scale=1.0):
    """The arguments of calls of that kernel of linear models."""
    rows, losses = readonly_rows(scale), LOSSES.values()
    classes = rows._replace(labels=readonly((np.arange(10) % CLASSES).astype(np.float32)))
    params, doubles = drawn(FEATURES + 1, kind=np.float32), drawn(FEATURES + 1)
    read = {kind: readonly(drawn(FEATURES + 1, kind=kind)) for kind in "fd"}
    matrix, scores = readonly(drawn(FEATURES + 1, CLASSES)), np.zeros(CLASSES)
    return {
        "train": lambda: [(rows, ORDER, params.copy(), loss, 0.1, 0.3, 7.0, 0.01) for loss in losses],
        "train_classes": lambda: [
            (classes, ORDER, drawn(CLASSES, FEATURES + 1, kind=np.float32), scores, 0.1, 0.3, 7.0, 0.01)
        ],
        "blend": lambda: [(params, 2 * read["f"], 0.3)],
        "add_subgradient": lambda: [(rows, ORDER, read["f"], params.copy(), loss, 1.0) for loss in losses],
        "add_gradient": lambda: [
            (rows, read["d"], doubles.copy(), loss, one) for loss in losses for one in (drawn(0), drawn(10))
        ],
        "add_gradient_of_classes": lambda: [
            (classes, matrix, drawn(FEATURES + 1, CLASSES), scores, loss, one)
            for loss in (*losses, SOFTMAX) for one in (drawn(0), drawn(10))
        ],
        "ascend": lambda: [
            (rows, ORDER, drawn(10), doubles.copy(), loss, 0.2, bias)
            for loss in losses if loss != LOSSES["squared"] for bias in (0.0, 1.0)
        ],
        "weigh": lambda: [(rows, drawn(10), doubles, 0.2)],
        "mark": lambda: [(rows, ORDER, np.zeros(FEATURES, np.uint8))],
        "totals": lambda: [(rows, read["f"], loss, 2, 9) for loss in losses],
    }[name]()  # fmt: skip


KERNELS = [dispatcher.py_func.__name__ for dispatcher, _ in compiled_linear.kernel.signed]


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_linear_models(interpreted, name):
    plain = interpreted(compiled_linear)
    assert not hasattr(getattr(plain, name), "py_func")
    for mine, theirs in zip(calls(name), calls(name), strict=True):
        found, expected = getattr(plain, name)(*mine), getattr(compiled_linear, name)(*theirs)
        np.testing.assert_allclose(found or 0, expected or 0, rtol=1e-5)
        for one, other in zip(mine, theirs, strict=True):
            if isinstance(one, np.ndarray):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_what_overflows_neither_raises_nor_warns(interpreted, name):
    plain = interpreted(compiled_linear)
    found = [getattr(plain, name)(*arguments) for arguments in calls(name, scale=1e38)]
    assert not name.startswith("train") or False in found


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic"])
@pytest.mark.parametrize("alpha, z, q", [(0.5, -1e4, 0.0), (0.5, 1e4, 1e4), (0.5, -1e4, 2.0)])
def test_the_best_alpha_of_rows_out_of_scale(interpreted, loss, alpha, z, q):
    plain, numbers = interpreted(compiled_linear), [np.float64(number) for number in (alpha, z, q)]
    with np.errstate(all="ignore"):
        found = plain.best_alpha(LOSSES[loss], *numbers)
    assert found == pytest.approx(compiled_linear.best_alpha(LOSSES[loss], alpha, z, q), rel=1e-9)


@pytest.mark.parametrize("at_once", [2, 64])
@pytest.mark.parametrize("biases", [True, False])
def test_kernels_of_matrix_factorization(interpreted, monkeypatch, biases, at_once):
    generator = np.random.default_rng(5)
    users, items, ratings = few_ratings(generator)
    users, items, ratings = np.append(users, [3, 3]), np.append(items, [1, 1]), np.append(ratings, [1, -1])
    data = problem.shard(users, items, ratings, 6, generator)  # user 3 has rated item 1 several times
    plain = interpreted(compiled_factors)
    monkeypatch.setattr(plain.interpreted, "_AT_ONCE", at_once)
    found = []
    for made in (plain, compiled_factors):
        rows = [drawn(count, RANK + 1, kind=np.float32) for count in (6, 5)]
        for table in rows:
            table[:, -1] *= biases
        kept = [drawn(count, kind=np.float32) for count in (6, 5)]
        touched, order, kernel = np.zeros(5, bool), np.array([4, 2, 3, 0], np.int32), made.train_kernel(RANK)
        assert hasattr(kernel, "py_func") == (made is compiled_factors)
        for _ in range(3):
            made.train(kernel, data, order, *rows, kept, 0.1, touched, biases)
        pairs = np.array([[0, 3, -1, 2, -1], [4, -1, 2, 1, -1]], np.int32)
        predicted = made.predict(*rows, *pairs)
        error = made.squares(*rows, *pairs, np.ones(5, np.float32), 0.2, 0.8)
        nobody = made.predict(rows[0][:0], rows[1], np.full(1, -1, np.int32), np.zeros(1, np.int32))
        found.append([*rows, touched, predicted, error, nobody])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_divergence_is_no_warning(interpreted):
    generator = np.random.default_rng(5)
    data = problem.shard(*few_ratings(generator), 6, generator)
    plain, ones = interpreted(compiled_factors), np.ones(6, np.float32)
    rows, order = (drawn(6, 4, kind=np.float32), drawn(5, 4, kind=np.float32)), np.tile(np.arange(6, dtype=np.int32), 9)
    with pytest.raises(FloatingPointError, match="step size"):
        plain.train(plain.train_kernel(3), data, order, *rows, (ones, ones[:5]), 1e20, np.zeros(5, bool))
