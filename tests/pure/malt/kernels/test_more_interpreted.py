"""Kernels of trees, networks and programs without numba: they do what the compiled ones do, to the rounding."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location

import numpy as np
import pytest

pytest.importorskip("numba")

from few_rows import FEATURES, ORDER, readonly_rows

from malt.kernels import Kernels, compiler
from malt.models.trees.bundles import Layout
from malt.models.trees.losses import LOSSES, Scale
from malt.models.trees.splits import SPLIT

pytestmark = pytest.mark.serial
ROWS, COLUMNS, NEURONS = 10, 4, 3
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


def readonly(array):
    array.flags.writeable = False
    return array


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
