"""Kernels without numba: they do what the compiled ones do, to the rounding, and neither raise nor warn where those go
on with infinity."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location

import numpy as np
import pytest
from few_ratings import few_ratings
from few_rows import FEATURES, ORDER, readonly, readonly_rows

from malt.kernels import Kernels, compiler
from malt.models.factors import problem
from malt.models.linear import LOSSES as LINEAR
from malt.models.linear import SOFTMAX
from malt.models.trees.bundles import Layout
from malt.models.trees.losses import LOSSES, Scale
from malt.models.trees.splits import SPLIT

ROWS, COLUMNS, NEURONS, RANK = 10, 4, 3, 5
SCRATCH = "divide", 2
"""The kernel, and which of its arguments is memory whose contents do not count."""
SCALE = Scale(2.0**20, 2.0**24, 40)
LAYOUT = Layout(*map(np.array, ([4, 4, 4, 4], [0, 1, 2, 2], [-1, -1, 3, 3], [0, 0, 1, 5], [0, 5, 10, 19])))
"""Features 2 and 3 share a column, of which none is for their bin 3; all have a bin of missing values."""


@pytest.fixture
def both(monkeypatch):
    """both(name): that module, whose kernels are compiled, and a copy of it whose kernels are interpreted."""

    def found(name):
        module = import_module(name)
        spec = spec_from_file_location(name, module.__file__)
        copy = module_from_spec(spec)
        monkeypatch.setattr(Kernels, "slowest", Kernels.slowest)
        with monkeypatch.context() as hidden:
            hidden.setattr(compiler, "TROUBLE", "numba is hidden")
            hidden.setitem(sys.modules, name, copy)
            spec.loader.exec_module(copy)
        return module, copy

    return found


def drawn(seed, *shape, kind=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(kind)


def uniform(*shape, kind=np.float64):
    return np.random.default_rng(sum(shape)).uniform(0, 1, shape).astype(kind)


def linear(scale=1.0):
    """The arguments of calls of the kernels of linear models, by name."""
    rows, losses = readonly_rows(scale), LINEAR.values()
    classes = rows._replace(labels=readonly((np.arange(ROWS) % 3).astype(np.float32)))
    params, doubles, scores = uniform(FEATURES + 1, kind=np.float32), uniform(FEATURES + 1), np.zeros(3)
    read = {kind: readonly(uniform(FEATURES + 1, kind=kind)) for kind in "fd"}
    matrix = readonly(uniform(FEATURES + 1, 3))
    weights = uniform(0), uniform(ROWS)
    return {
        "train": [(rows, ORDER, params.copy(), loss, 0.1, 0.3, 7.0, 0.01) for loss in losses],
        "train_classes": [(classes, ORDER, uniform(3, FEATURES + 1, kind=np.float32), scores, 0.1, 0.3, 7.0, 0.01)],
        "blend": [(params, 2 * read["f"], 0.3)],
        "add_subgradient": [(rows, ORDER, read["f"], params.copy(), loss, 1.0) for loss in losses],
        "add_gradient": [(rows, read["d"], doubles.copy(), loss, one) for loss in losses for one in weights],
        "add_gradient_of_classes": [
            (classes, matrix, uniform(FEATURES + 1, 3), scores, loss, one)
            for loss in (*losses, SOFTMAX) for one in weights
        ],
        "ascend": [
            (rows, ORDER, uniform(ROWS), doubles.copy(), loss, 0.2, bias)
            for loss in losses if loss != LINEAR["squared"] for bias in (0.0, 1.0)
        ],
        "weigh": [(rows, uniform(ROWS), doubles, 0.2)],
        "mark": [(rows, ORDER, np.zeros(FEATURES, np.uint8))],
        "totals": [(rows, read["f"], loss, 2, 9) for loss in losses],
    }  # fmt: skip


def words():
    made = np.random.default_rng(1).integers(-(1 << 18), 1 << 18, (ROWS, 2)).astype(np.int32)
    made[:, 1] = np.abs(made[:, 1])
    return made


def fours():
    return np.random.default_rng(2).integers(0, 5, (ROWS, COLUMNS)).astype(np.uint8)


SPANS = np.array([[0, ROWS], [0, 6], [6, ROWS]], np.int64)


def histogram():
    """Those of two nodes, whose columns have the same sums."""
    made = np.random.default_rng(3).integers(0, 1 << 16, (2, 19, 2))
    made[:, :, 1] += 1 << SCALE.bits
    made[:, 5:10].sum(axis=1)
    return made.astype(np.int64)


def splits():
    made = np.zeros(2, SPLIT)
    made["gain"], made["feature"], made["bin"], made["goes_left"] = (1.0, 0.5), (1, 3), (1, 2), (2, 1)
    made["g"], made["word"] = 1000, (3 << SCALE.bits) + 12345
    return made


def tree():
    """A root and two leaves."""
    return [readonly(np.array(one, kind)) for one, kind in (
        ([1, 0, 0], "i4"), ([2, 0, 0], "i4"), ([True, False, False], "?"), ([1, 1, 2], "i4"), ([2, 1, 2], "i4"),
        ([0.0, 0.5, -0.25], "f8"),
    )]  # fmt: skip


def scores(loss):
    return drawn(4, ROWS, kind=np.float64) if LOSSES[loss] != LOSSES["softmax"] else np.linspace(0.1, 0.9, ROWS)


LABELS = readonly(np.where(np.arange(ROWS) % 3, 1, -1).astype(np.float32))
STARTS = readonly(np.array([0, 5, 10, 15, 20, 21, 22, 23], np.int64))
DATA = readonly_rows()


def generator():
    return np.random.default_rng(7)


def topics():
    words = np.array([0, 1, 1, 2, 0, 0, 3, 3], np.int32)
    return np.array([[0, 3, 4], [4, 6, 8]]), words, np.array([0, 1] * 4, np.int32)


CALLS = {
    "malt.models.linear.compiled": {name: lambda name=name: linear()[name] for name in linear()},
    "malt.models.trees.losses": {
        "largest_gradient": lambda: [(LOSSES[one], scores(one), LABELS) for one in LOSSES],
        "gradients": lambda: [(LOSSES[one], scores(one), LABELS, SCALE, words()) for one in LOSSES],
        "softmax": lambda: [(drawn(5, 3, ROWS, kind=np.float64),)],
        "total_loss": lambda: [(LOSSES[one], scores(one), LABELS) for one in ("logistic", "squared")],
    },
    "malt.models.trees.histograms": {
        "add_histograms": lambda: [(
            fours().view(np.uint32), np.arange(ROWS, dtype=np.int32)[::-1].copy(), SPANS, readonly(np.array([1, 2])),
            words(), 1 << SCALE.bits, STARTS, readonly(np.array([0, 5, 10, 15])), np.zeros(80, np.int64),
            np.zeros(2 * 23, np.int64),
        )],
        "complete": lambda: [(
            np.arange(38, dtype=np.int64), readonly(np.array([0, 5, 10, 19])), histogram(), readonly(np.array([1])),
            readonly(np.array([0])), np.zeros((2, 19, 2), np.int64),
        )],
    },
    "malt.models.trees.splits": {
        "best_splits": lambda: [(
            histogram(), histogram()[:, :5].sum(axis=1) * 2, LAYOUT, readonly(np.arange(4)), 0, missing, SCALE, 0.1, 1,
            np.zeros(2, SPLIT),
        ) for missing in (False, True)],
        "divide": lambda: [(
            np.ascontiguousarray(fours().T), np.arange(ROWS, dtype=np.int32), np.zeros(ROWS, np.int32),
            readonly(np.array([1, 2])), splits(), LAYOUT, True, SCALE.bits, *(np.zeros(8, np.int32) for _ in range(2)),
            np.zeros(8, bool), *(np.zeros(8, np.int32) for _ in range(2)), np.zeros((8, 2), np.int64),
            np.concatenate([SPANS, np.zeros((5, 2), np.int64)]), 3,
        )],
        "add_leaves": lambda: [(
            drawn(4, ROWS, kind=np.float64), np.arange(ROWS, dtype=np.int32), SPANS, histogram()[0, :3].copy(),
            np.array([1, 1, 2], np.int32), SCALE, 0.1, 0.3, np.zeros(3),
        )],
        "add_tree": lambda: [(fours(), *tree(), 0, 4, drawn(4, ROWS, kind=np.float64))],
    },
    "malt.models.trees.bundles": {
        "count_uncommon": lambda: [(fours(), readonly(np.array([0, 1, 2, 3], np.uint8)))],
        "find_conflicts": lambda: [(fours(), readonly(np.array([0, 2, 3])), readonly(np.arange(4).astype(np.uint8)))],
        "encode": lambda: [(fours(), LAYOUT, 4, np.zeros((ROWS, 4), np.uint8))],
    },
    "malt.models.trees.binning": {
        "fill_bins": lambda: [(
            *DATA[:3], np.sort(drawn(6, 2 * FEATURES, kind=np.float64)), readonly(np.arange(FEATURES) * 2),
            np.full(FEATURES - 1, 9, np.uint8), np.zeros((ROWS, FEATURES), np.uint8),
        )],
    },
    "malt.models.networks.compiled": {
        "forward": lambda: [(DATA, ORDER, readonly(drawn(1, FEATURES + 1, NEURONS)), drawn(2, 6, NEURONS))],
        "backward": lambda: [(DATA, ORDER, readonly(drawn(1, 6, NEURONS)), drawn(2, FEATURES + 1, NEURONS))],
        "lower": lambda: [(drawn(1, 4, NEURONS),)],
        "errors": lambda: [(np.exp(drawn(1, 4, NEURONS)), readonly(np.array([0, 2, 1, 1])))],
        "momentum": lambda: [(drawn(1, 5), drawn(2, 5), drawn(3, 5), np.float32(0.9), np.float32(0.1))],
        "adam": lambda: [(
            drawn(1, 5), drawn(2, 5), np.abs(drawn(3, 5)), drawn(4, 5), tuple(map(np.float32, (0.1, 0.01, 0.1, 1e-8)))
        )],
        "backward_touched": lambda: [(
            DATA, ORDER, readonly(drawn(1, 6, NEURONS)), np.full(FEATURES + 1, -1, np.int32), np.zeros(30, np.int32),
            np.zeros((30, NEURONS), np.float32),
        )],
        "adagrad": lambda: [(
            drawn(1, 6, NEURONS), np.abs(drawn(2, 6, NEURONS)), drawn(3, 6, NEURONS),
            readonly(np.array([0, 3, 5], np.int32)), readonly(drawn(4, 3, NEURONS)), np.float32(0.1), np.float32(0.01),
        )],
        "mark_touched": lambda: [(
            DATA, ORDER, drawn(1, FEATURES + 1, NEURONS), drawn(2, FEATURES + 1, NEURONS),
            np.zeros(FEATURES + 1, np.uint8), np.zeros(FEATURES + 1, np.int32), 0,
        )],
        "settle": lambda: [(drawn(1, 4, NEURONS), drawn(2, 4, NEURONS), np.array([0, 1, 0, 1], np.uint8))],
    },
    "apps.kmeans.kernels": {
        "assign": lambda: [(
            points(), ORDER, drawn(1, FEATURES, 3, kind=np.float64), np.abs(drawn(2, 3, kind=np.float64)),
            np.zeros(ROWS, np.int32), np.zeros(ROWS), np.zeros((3, FEATURES)), np.zeros(3),
        )],
        "closer": lambda: [(
            points(), drawn(1, FEATURES, 3, kind=np.float64), np.abs(drawn(2, 3, kind=np.float64)), np.full(ROWS, 2.0),
            np.zeros((3, ROWS)),
        )],
    },
    "apps.lda.kernels": {
        "count": lambda: [(topics()[0], 1, *topics()[1:], 0, np.zeros((4, 2), np.float32), np.zeros(2))],
        "sweep": lambda: [(
            topics()[0], 0, *topics()[1:], 0, np.full((4, 2), 3, np.float32), np.full(2, 9.0), 0.1, 0.01, 4, generator()
        )],
        "draw": lambda: [(topics()[1], np.abs(drawn(1, 4, 40)), generator(), np.zeros(8, np.int32))],
        "complete": lambda: [(np.array([0, 4, 8]), topics()[1], np.abs(drawn(1, 4, 2)), 0.1)],
    },
    "apps.embed.kernels": {
        "draw": lambda: [(
            links(), np.array([0, 2], np.int32), np.zeros(4, np.int32), 2, p, 0.5, generator(),
            np.zeros((20, 4), np.int32),
        ) for p in (1.0, 2.0)],
        "exchange_end": lambda: [(pairs(), 0, 2, *(np.zeros(3, np.int32) for _ in range(2)))],
        "products": lambda: [(drawn(1, 3, 5), drawn(2, 3, 5), pairs(), np.zeros((4, 3), np.float32))],
        "learn": lambda: [(drawn(1, 3, 5), drawn(2, 3, 5), pairs(), 3 * drawn(3, 4, 3), 0.1)],
    },
}  # fmt: skip


def points():
    from apps.kmeans.kernels import Points

    squares = [float(np.square(DATA.values[a:b]).sum()) for a, b in zip(DATA.starts, DATA.starts[1:], strict=False)]
    return Points(*DATA[:3], readonly(np.array(squares)))


def links():
    from apps.embed.graph import Links

    return Links(
        np.array([0, 2, 4, 6]), np.array([1, 2, 0, 2, 0, 1], np.int32), np.array([0.5, 1.0, 0.2]),
        np.array([1, 1, 0], np.int32),
    )  # fmt: skip


def pairs():
    return np.array([[0, 1, 2, 2], [1, 0, 0, 2], [2, 2, 1, 0], [0, 2, 1, 1]], np.int32)


@pytest.mark.parametrize("module, name", [(module, name) for module, names in CALLS.items() for name in names])
def test_kernels(both, module, name):
    compiled, plain = both(module)
    assert hasattr(getattr(compiled, name), "py_func") and not hasattr(getattr(plain, name), "py_func")
    for mine, theirs in zip(CALLS[module][name](), CALLS[module][name](), strict=True):
        found, expected = getattr(plain, name)(*mine), getattr(compiled, name)(*theirs)
        same(found, expected)
        for place, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            if isinstance(one, np.ndarray) and (name, place) != SCRATCH:
                same(one, other)


def same(found, expected):
    if isinstance(expected, np.ndarray) and expected.dtype.names:
        for field in expected.dtype.names:
            np.testing.assert_allclose(found[field], expected[field], rtol=1e-12)
    elif expected is not None:
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def test_all_kernels_with_a_signature_are_called():
    for module, names in CALLS.items():
        found = import_module(module)
        made = [getattr(found, name) for name in ("kernel", "exact") if hasattr(found, name)]
        assert {one.py_func.__name__ for each in made for one, _ in each.signed} <= set(names)


@pytest.mark.parametrize("name", linear())
def test_what_overflows_neither_raises_nor_warns(both, name):
    _, plain = both("malt.models.linear.compiled")
    found = [getattr(plain, name)(*arguments) for arguments in linear(scale=1e38)[name]]
    assert not name.startswith("train") or False in found


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic"])
@pytest.mark.parametrize("alpha, z, q", [(0.5, -1e4, 0.0), (0.5, 1e4, 1e4), (0.5, -1e4, 2.0)])
def test_the_best_alpha_of_rows_out_of_scale(both, loss, alpha, z, q):
    compiled, plain = both("malt.models.linear.compiled")
    with np.errstate(all="ignore"):
        found = plain.best_alpha(LINEAR[loss], *map(np.float64, (alpha, z, q)))
    assert found == pytest.approx(compiled.best_alpha(LINEAR[loss], alpha, z, q), rel=1e-9)


@pytest.fixture
def factors(both, monkeypatch):
    """As `both` of matrix factorization, whose kernels are made for each number of factors."""
    compiled, plain = both("malt.models.factors.compiled")
    compiled.train_kernel(RANK)
    monkeypatch.setattr(compiler, "TROUBLE", "numba is hidden")
    return compiled, plain


@pytest.mark.parametrize("at_once", [2, 64])
@pytest.mark.parametrize("biases", [True, False])
def test_kernels_of_matrix_factorization(factors, monkeypatch, biases, at_once):
    users, items, ratings = few_ratings(generator())
    users, items, ratings = np.append(users, [3, 3]), np.append(items, [1, 1]), np.append(ratings, [1, -1])
    data = problem.shard(users, items, ratings, 6, generator())  # user 3 has rated item 1 several times
    compiled, plain = factors
    monkeypatch.setattr(plain.interpreted, "_AT_ONCE", at_once)
    found = []
    for made in (plain, compiled):
        rows = [uniform(count, RANK + 1, kind=np.float32) for count in (6, 5)]
        for table in rows:
            table[:, -1] *= biases
        kept = [uniform(count, kind=np.float32) for count in (6, 5)]
        touched, order, kernel = np.zeros(5, bool), np.array([4, 2, 3, 0], np.int32), made.train_kernel(RANK)
        assert hasattr(kernel, "py_func") == (made is compiled)
        for _ in range(3):
            made.train(kernel, data, order, *rows, kept, 0.1, touched, biases)
        pairs = np.array([[0, 3, -1, 2, -1], [4, -1, 2, 1, -1]], np.int32)
        predicted = made.predict(*rows, *pairs)
        error = made.squares(*rows, *pairs, np.ones(5, np.float32), 0.2, 0.8)
        nobody = made.predict(rows[0][:0], rows[1], np.full(1, -1, np.int32), np.zeros(1, np.int32))
        found.append([*rows, touched, predicted, error, nobody])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_divergence_is_no_warning(factors):
    plain, ones, generated = factors[1], np.ones(6, np.float32), generator()
    data = problem.shard(*few_ratings(generated), 6, generated)
    rows = uniform(6, 4, kind=np.float32), uniform(5, 4, kind=np.float32)
    order = np.tile(np.arange(6, dtype=np.int32), 9)
    with pytest.raises(FloatingPointError, match="step size"):
        plain.train(plain.train_kernel(3), data, order, *rows, (ones, ones[:5]), 1e20, np.zeros(5, bool))
