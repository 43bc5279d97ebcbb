"""Columns of bins: a feature each, or a bundle of features that exclude each other (Ke et al., NIPS 2017, section 4).

Features exclude each other where no row of any rank has two of them outside of their common bins. No conflict is
allowed, so a histogram of columns has all bins of all features: the sums of a common bin are those of the node less
those of the feature's other bins.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from malt.kernels import Kernels
from malt.kernels.compiler import types
from malt.models.common import gathered
from malt.models.trees.binning import Binning
from malt.models.trees.losses import array_of

MOST_COMPARED: Final = 1024
"""Features are compared with so many at most, those beside them: so the time does not grow with their square."""
_VALUES: Final = 256
"""Of a byte."""
_BITS: Final = 64

_U1_2, _READ_I8 = array_of(types.u1, 2), array_of(types.i8, readonly=True)

kernel = Kernels(slower=300)


class Layout(NamedTuple):
    """The places of the bins of features. Missing values have the bin above those of values."""

    widths: NDArray[np.int64]
    """The number of bins of values, by feature."""
    column: NDArray[np.int64]
    """Of each feature."""
    common: NDArray[np.int64]
    """The bin that stands for itself in no column, by feature; -1: the feature has a column for itself, with all."""
    shift: NDArray[np.int64]
    """What the other bins begin with in the column, by feature."""
    starts: NDArray[np.int64]
    """Column c has the bins starts[c]:starts[c + 1] of a histogram."""


LAYOUT: Final[Any] = types.NamedUniTuple(array_of(types.i8), len(Layout._fields), Layout)
"""The type of a Layout."""


def bundled(bins: NDArray[np.uint8], binning: Binning) -> Layout:
    """Columns of features that exclude each other in the rows of all ranks; the same on all ranks. Collective.

    `bins`: those of this rank's rows. The layout does not depend on how many ranks there are, nor on who has which
    rows. A rank that fails in the call may have counted or not, as all others will see when a tree grows.
    """
    members = [[feature] for feature in range(len(binning.widths))]
    common = binning.common.astype(np.uint8)
    uncommon = _of_all(count_uncommon(bins, common)[: len(members)]).sum(axis=0)
    total = int(_of_all(np.array([len(bins)])).sum())
    candidates = np.flatnonzero(uncommon + _least_other(uncommon) <= total)
    for first in range(0, len(candidates), MOST_COMPARED):
        some = candidates[first : first + MOST_COMPARED]
        conflicts = np.bitwise_or.reduce(_of_all(find_conflicts(bins, some, common)), axis=0)
        sizes = binning.widths[some] + binning.has_missing - 1
        for one in _first_fit(np.unpackbits(conflicts.view(np.uint8), axis=1, bitorder="little"), sizes):
            for feature in some[one]:
                members[feature] = []
            members[some[one[0]]] = some[one].tolist()
    return _layout([one for one in members if one], binning)


def encoded(bins: NDArray[np.uint8], layout: Layout, missing: int) -> NDArray[np.uint8]:
    """The columns of rows, of which `bins` are given: shape (rows, columns rounded up to fours). Local.

    It is `bins` itself where nothing differs.
    """
    if (layout.common < 0).all() and (missing < 0 or (layout.widths == missing).all()):
        return bins
    columns = np.zeros((len(bins), -(-(len(layout.starts) - 1) // 4) * 4), np.uint8)
    encode(bins, layout, missing, columns)
    return columns


def _of_all(array: NDArray[Any]) -> NDArray[Any]:
    """The arrays of all live ranks. Collective."""
    return np.array([*gathered(array).values()])


def _least_other(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The least count of another feature, by feature; where there is none, more than any rows."""
    if len(counts) < 2:
        return np.full_like(counts, 1 << 60)
    least, second = np.partition(counts, 1)[:2]
    return np.asarray(np.where(np.arange(len(counts)) == counts.argmin(), second, least))


def _first_fit(conflicts: NDArray[np.uint8], sizes: NDArray[np.int64]) -> list[list[int]]:
    """Bundles of two or more, in which none conflict: each feature is in the first into which it fits. Local."""
    bundles: list[list[int]] = []
    blocked, room = np.empty(conflicts.shape, np.uint8), np.full(len(conflicts), _VALUES - 1)
    for one, size in enumerate(sizes.tolist()):
        here = len(bundles)
        fits = np.flatnonzero((blocked[:here, one] == 0) & (room[:here] >= size))
        place = int(fits[0]) if len(fits) else here
        if place == here:
            bundles.append([])
            blocked[place] = 0
        bundles[place].append(one)
        blocked[place] |= conflicts[one]
        room[place] -= size
    return [bundle for bundle in bundles if len(bundle) > 1]


def _layout(members: list[list[int]], binning: Binning) -> Layout:
    """The layout of columns with these features."""
    widths = binning.widths
    sizes = widths + binning.has_missing
    column, shift = np.empty(len(widths), np.int64), np.zeros(len(widths), np.int64)
    common, lengths = np.full(len(widths), -1), np.empty(len(members), np.int64)
    commonest = np.where(binning.common == binning.missing, widths, binning.common)
    for place, features in enumerate(members):
        column[features] = place
        lengths[place] = sizes[features[0]]
        if len(features) > 1:
            ends = 1 + np.cumsum(sizes[features] - 1)
            shift[features], lengths[place] = ends - (sizes[features] - 1), ends[-1]
            common[features] = commonest[features]
    return Layout(widths, column, common, shift, np.append(0, np.cumsum(lengths)))


class Share(NamedTuple):
    """Columns one after the other."""

    origin: int
    """Their first bin in the histogram of all columns."""
    starts: NDArray[np.int64]
    """From there on, column c of them has the bins starts[c]:starts[c + 1]."""
    features: NDArray[np.int64]
    """Theirs, ascending."""

    @property
    def columns(self) -> int:
        """The number of columns."""
        return len(self.starts) - 1

    @property
    def bins(self) -> int:
        """The number of bins of all columns."""
        return int(self.starts[-1])


def share_of(layout: Layout, place: int, count: int) -> Share:
    """The share of the rank in `place` of `count`. Local."""
    goals = np.array([place, place + 1]) * layout.starts[-1] // count
    first, last = np.searchsorted(layout.starts, goals)
    starts, origin = layout.starts[first : last + 1], int(layout.starts[first])
    return Share(origin, starts - origin, np.flatnonzero((first <= layout.column) & (layout.column < last)))


@kernel(_U1_2, array_of(types.u1, readonly=True))
def count_uncommon(bins: Any, common: Any) -> Any:
    """In how many rows each feature has another bin than its common one."""
    counts = np.zeros(bins.shape[1], np.int64)
    for i in range(bins.shape[0]):
        for f in range(common.size):
            counts[f] += bins[i, f] != common[f]
    return counts


@kernel(_U1_2, _READ_I8, array_of(types.u1, readonly=True))
def find_conflicts(bins: Any, features: Any, common: Any) -> Any:
    """Bit b of row a: whether a row has both features[a] and features[b] outside of their common bins."""
    conflicts = np.zeros((features.size, (features.size + _BITS - 1) // _BITS), np.uint64)
    mask, found = np.zeros(conflicts.shape[1], np.uint64), np.empty(features.size, np.int64)
    for i in range(bins.shape[0]):
        count = 0
        for k in range(features.size):
            found[count] = k
            count += bins[i, features[k]] != common[features[k]]
        if count > 1:
            mask[:] = 0
            for k in found[:count]:
                mask[k // _BITS] |= np.uint64(1) << np.uint64(k % _BITS)
            for k in found[:count]:
                for word in range(mask.size):
                    conflicts[k, word] |= mask[word]
    return conflicts


@kernel(_U1_2, LAYOUT, types.i8, _U1_2)
def encode(bins: Any, layout: Any, missing: Any, columns: Any) -> None:
    """columns[i] = the columns of row i, of which `bins` has the bins. `missing`: the bin of missing values."""
    for i in range(bins.shape[0]):
        for f in range(layout.widths.size):
            b = np.int64(bins[i, f])
            if b == missing:
                b = layout.widths[f]
            if b != layout.common[f]:
                columns[i, layout.column[f]] = layout.shift[f] + b - (0 <= layout.common[f] < b)
