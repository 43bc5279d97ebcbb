"""Bundles of features that exclude each other: against trees of separate columns, on simulated ranks."""

import numpy as np
import pytest
from scipy import sparse

import malt
from malt.models import trees
from malt.models.trees import bundles


def drawn(seed, is_sparse):
    """Rows of three categories one-hot, two columns of few entries, two dense ones; and labels."""
    draw = np.random.default_rng(seed)
    codes = draw.integers(0, [5, 9, 3], (600, 3))
    parts = [(codes[:, [k]] == np.arange(codes[:, k].max() + 1)) * draw.integers(1, 4, (600, 1)) for k in range(3)]
    few = draw.integers(-3, 4, (600, 2)) * (draw.permutation(600)[:, np.newaxis] % 2 == [0, 1])
    X = np.hstack([*parts, few, draw.standard_normal((600, 2)).round(1)]).astype(np.float32)
    X = X[:, draw.permutation(X.shape[1])]
    y = np.where(codes[:, 0] + 2 * (codes[:, 1] % 2) + few.sum(axis=1) + draw.standard_normal(600) > 3, 1, -1)
    if not is_sparse:
        X[(X != 0) & (draw.random(X.shape) < 0.1)] = np.nan
    return sparse.csr_matrix(X) if is_sparse else X, y.astype(np.float32)


def separate(bins, binning):
    """A column for each feature."""
    widths, features = binning.widths, np.arange(len(binning.widths))
    starts = np.append(0, np.cumsum(widths + binning.has_missing))
    return bundles.Layout(widths, features, np.full_like(features, -1), np.zeros_like(features), starts)


def grown(X, y, has_missing, loss="logistic"):
    """live(rank): the layout, and the bytes of trees that ranks grow of their shards."""

    def live(rank):
        binning = trees.bins_of(X, 16, has_missing, 0)
        mine = np.arange(len(y))[rank :: malt.size()]
        grower = trees.Grower(binning.bins(X[mine]), binning, trees.Growth(loss, 4, min_rows=5), len(y))
        scores = np.zeros(len(mine))
        made = [grower.grow(scores, y[mine]) for _ in range(4)]
        return grower.layout, b"".join(array.tobytes() for tree in made for array in tree)

    return live


@pytest.mark.parametrize("small_nbytes", [0, 1 << 17], ids=["each", "all"])
@pytest.mark.parametrize(("is_sparse", "has_missing"), [(True, False), (True, True), (False, True)])
def test_trees_are_those_of_separate_columns(monkeypatch, is_sparse, has_missing, small_nbytes):
    monkeypatch.setattr("malt.models.trees.growing.SMALL_NBYTES", small_nbytes)
    X, y = drawn(0, is_sparse)
    for loss in ("logistic", "squared"):
        with monkeypatch.context() as patched:
            patched.setattr(bundles, "bundled", separate)
            [(plain, expected)] = malt.simulate(grown(X, y, has_missing, loss), 1)
        found = [one for ranks in (1, 2, 4) for one in malt.simulate(grown(X, y, has_missing, loss), ranks)]
        assert {made for _, made in found} == {expected}
        assert len({layout.column.tobytes() for layout, _ in found}) == 1
        columns, features = (len(layout.starts) - 1 for layout in (found[0][0], plain))
        assert columns <= features / 2


def layout_of(X, size=1):
    """The columns of features on each of `size` ranks, of which rank r has every row r, r + size, ..."""

    def live(rank):
        binning = trees.bins_of(rows, 255, False, 0)
        return bundles.bundled(binning.bins(rows[rank :: malt.size()]), binning)

    rows = sparse.csr_matrix(X.astype(np.float32))
    return malt.simulate(live, size)


def test_one_row_of_one_rank_is_a_conflict():
    X = np.zeros((40, 3))
    X[:10, 0] = X[10:20, 1] = X[20:30, 2] = 1
    assert all(layout.column.tolist() == [0, 0, 0] for layout in layout_of(X, 3))
    X[4, 1] = 1  # rank 1 has this row
    assert all(layout.column.tolist() == [0, 1, 0] for layout in layout_of(X, 3))


def test_dense_features_are_not_compared(monkeypatch):
    monkeypatch.setattr(bundles, "find_conflicts", None)
    X = np.random.default_rng(0).standard_normal((500, 6))
    [layout] = layout_of(X)
    assert layout.column.tolist() == list(range(6))
    assert (layout.common == -1).all()


def test_a_column_has_256_values_at_most():
    X = np.zeros((1000, 5))
    for feature in range(5):
        X[200 * feature : 200 * feature + 100, feature] = np.arange(1, 101)
    for size in (1, 2):
        for layout in layout_of(X, size):
            assert layout.column.tolist() == [0, 0, 1, 1, 2]
            assert np.diff(layout.starts).tolist() == [201, 201, 101]


def test_many_features_are_compared_with_those_beside_them(monkeypatch):
    monkeypatch.setattr(bundles, "MOST_COMPARED", 4)
    X = np.eye(10)
    assert layout_of(X)[0].column.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
