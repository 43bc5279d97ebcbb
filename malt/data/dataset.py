"""Labelled sparse rows of svmlight files: parsed once, later mapped into memory."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dstorm import Transport
from dstorm.words import shown
from malt.data.reader_group import readers
from malt.data.rows import StoredRows, shared_rows
from malt.data.shards import bounds
from malt.data.text.svmlight import MAX_INDEX, as_singles
from malt.files.paths import text_of
from malt.launch.machine import memory
from malt.session import session
from malt.session.world.agreement import agree, succeed

RAW: Final = "raw"
"""The value of `labels` for labels that stay as in the file."""
MAX_WIDTH: Final = MAX_INDEX + 1
"""The largest number of features. int32 holds it, and each index."""

_DEPTH: Final = 2
"""The default depth of malt.vector: messages that may wait from each sender."""
_STRAY: Final = 1000
"""The largest feature looks stray if columns outnumber _WIDE, and non-zeros by more than this factor."""
_WIDE: Final = 1 << 20

Features = scipy.sparse.csr_array
Array = TypeVar("Array", bound=NDArray[Any])


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of an svmlight file.

    All arrays are read-only. `data` and `indices` of X are views of memory that the ranks of a host share.
    """

    X: Features
    """The features: float32, of shape (len(y), columns). The indices are int32, ascending in each row."""
    y: NDArray[np.float32]
    """The labels: -1 or +1, or those of the file."""
    rows: slice
    """The row numbers in the file, from 0: start and stop."""
    labels: tuple[float, ...] | str
    """The labels of the file that became -1 and +1, or its only label; "raw" if the labels are those of the file."""
    zero_based: bool
    """Whether the file counts features from 0: column j of X is then feature j, else feature j + 1."""
    largest_line: int = 0
    """The first line of the file, from 1, with its largest feature; 0 without features."""
    nonzeros: int = 0
    """The number of non-zeros in the whole file."""


@dataclass(frozen=True)
class Request:
    """The checked arguments of load_svmlight."""

    path: str
    n_features: int | None
    zero_based: bool | None
    labels: tuple[float, ...] | str | None


def load_svmlight(
    path: str | os.PathLike[str], n_features: int | None = None, labels: Sequence[float] | str | None = None, *,
    transport: Transport | None = None, zero_based: bool | None = None,
) -> Dataset:  # fmt: skip
    """Return this rank's rows of an svmlight file. Collective.

    Of n rows, rank r of N gets those from r * n // N up to (r + 1) * n // N. If ranks have failed, only the live ranks
    count, in rank order.

    `path`: plain text, or .gz, .bz2 or .xz. The ranks of a host parse it once, a part each, and keep the result beside
    the file, or else in ~/.cache/malt, or else in memory. Later loads map that into memory, until the file
    changes or another one takes its place.
    `n_features`: the number of columns of X; by default what the whole file needs.
    `labels`: the two labels that become -1 and +1; by default the smaller and the larger label of the file. An only
    label becomes +1 if it is above 0, else -1. With "raw", or by default with more than two labels, y holds the labels
    of the file as float32. Integers that float32 does not hold, 2**24 + 1 and others above, are refused.
    `zero_based`: whether the file counts features from 0; by default whether index 0 occurs in it.

    Load test data with the arguments of the training data:
        test = load_svmlight("test.svm", train.X.shape[1], zero_based=train.zero_based, labels=train.labels)

    All ranks raise the same error. OSError: the file cannot be read. ValueError: it is not svmlight (the message starts
    with FILE:LINE), is empty, differs between hosts or does not fit the arguments; or an argument is bad or differs
    between ranks. RuntimeWarning, on the lowest rank, without `n_features`: because of one feature, whose FILE:LINE it
    gives, models as wide as X do not fit in memory, or X has far more columns than the file has non-zeros.
    """
    transport = transport or session.world().reading
    with transport.calling("malt.load_svmlight"):
        ranks = readers(transport)
        part = _load(path, n_features, transport, zero_based, labels, ranks.index(transport.rank), len(ranks))
    if n_features is None and transport.rank == ranks[0] and (trouble := _too_wide(part, transport, ranks)):
        width = part.X.shape[1]
        warnings.warn(f"{os.fsdecode(path)}:{part.largest_line}: feature {width - part.zero_based:,} makes {width:,} "
                      f"columns, {trouble}: correct the line, or pass n_features={width}",
                      RuntimeWarning, stacklevel=2)  # fmt: skip
    return part


def open_svmlight(
    path: str | os.PathLike[str], n_features: int | None = None, labels: Sequence[float] | str | None = None, *,
    transport: Transport | None = None, zero_based: bool | None = None,
) -> Dataset:  # fmt: skip
    """Return all rows of an svmlight file, in memory that the ranks of a host share. Collective.

    Arguments and errors are those of `load_svmlight`.
    """
    transport = transport or session.world().reading
    with transport.calling("malt.open_svmlight"):
        return _load(path, n_features, transport, zero_based, labels, rank=0, size=1)


def _too_wide(part: Dataset, transport: Transport, ranks: Sequence[int]) -> str:
    """Return what is wrong with the width of X, for the warning, or "". Local."""
    width = part.X.shape[1]
    beside = sum(transport.hosts[rank] == transport.hosts[transport.rank] for rank in ranks)
    senders = min(transport.size - 1, max(3, (transport.size - 1).bit_length()))  # as in the graph "auto"
    need, free = beside * (1 + _DEPTH * senders) * width * part.X.dtype.itemsize, memory.free_memory()
    if free is not None and need > free:
        return (f"models of which, one a rank, take {memory.shown(need)} with their messages on this host, where "
                f"{memory.shown(free)} of memory are free")  # fmt: skip
    if width > max(_WIDE, _STRAY * part.nonzeros):
        return f"and there are only {part.nonzeros:,} non-zeros in the file"
    return ""


def _load(
    path: Any, n_features: Any, transport: Transport, zero_based: Any, labels: Any, rank: int, size: int
) -> Dataset:
    """Return part `rank` of `size` of the rows of the file. Collective."""

    def check() -> tuple[Request, dict[str, Any]]:
        """Return the request of this rank, and its fields, which must be the same on all ranks. Local."""
        request = _request(path, n_features, zero_based, labels)
        return request, vars(request)

    request, _ = agree(transport, "malt.load_svmlight", check)
    stored = shared_rows(request.path, transport)
    return succeed(transport, lambda: _dataset(stored, request, *bounds(stored.summary.rows, rank, size)))


def _request(path: Any, n_features: Any, zero_based: Any, labels: Any) -> Request:
    if zero_based not in (None, False, True):
        raise ValueError(f"zero_based must be True, False or None, got {shown(zero_based)}")
    return Request(
        path=text_of(path),
        n_features=None if n_features is None else _width(n_features),
        zero_based=None if zero_based is None else bool(zero_based),
        labels=None if labels is None else _known(labels),
    )


def _width(n_features: Any) -> int:
    is_whole = isinstance(n_features, (int, np.integer)) and not isinstance(n_features, bool)
    if not is_whole or not 1 <= n_features <= MAX_WIDTH:
        raise ValueError(f"n_features must be an integer from 1 to {MAX_WIDTH}, got {shown(n_features)}")
    return int(n_features)


def _known(labels: Any) -> tuple[float, ...] | str:
    if isinstance(labels, str) and labels == RAW:
        return RAW
    pair: tuple[float, ...] = ()
    with contextlib.suppress(TypeError, ValueError):  # a lone number, or text
        pair = () if isinstance(labels, str) else tuple(float(label) for label in labels)
    if len(pair) not in (1, 2) or len(set(pair)) < len(pair) or not all(map(math.isfinite, pair)):
        raise ValueError(f"labels must be the two that become -1 and +1, or the only one, got {shown(labels)}; "
                         f"{RAW!r} leaves them as in the file")  # fmt: skip
    return pair


def _dataset(stored: StoredRows, request: Request, first: int, last: int) -> Dataset:
    """Return rows first:last, as views if the columns are mapped. Local."""
    zero_based = stored.summary.zero_based if request.zero_based is None else request.zero_based
    labels = request.labels or (stored.summary.labels if len(stored.summary.labels) <= 2 else RAW)
    written = stored.rows.labels[first:last]
    return Dataset(
        X=_features(stored, request, zero_based, first, last),
        y=_frozen(_singles(written, request.path, first) if isinstance(labels, str)
                  else _signs(written, labels, request.path, first)),
        rows=slice(first, last),
        labels=labels,
        zero_based=zero_based,
        largest_line=stored.summary.largest_line,
        nonzeros=stored.summary.nonzeros,
    )  # fmt: skip


def _features(stored: StoredRows, request: Request, zero_based: bool, first: int, last: int) -> Features:
    summary, rows = stored.summary, stored.rows
    shift = int(zero_based) - int(summary.zero_based)  # column 0 of the store: feature 0 if present, else 1
    width = _checked_width(request, zero_based, summary.columns + shift if summary.nonzeros else 0)
    begin, end = int(rows.indptr[first]), int(rows.indptr[last])
    values, indices = rows.values[begin:end], rows.indices[begin:end]
    if shift < 0 and summary.zero_based:
        raise ValueError(f"{request.path}: feature 0 is in the file, so it cannot be read with zero_based=False")
    if shift > 0:
        indices = _frozen(indices + np.int32(shift))
    if not stored.is_mapped and last - first < summary.rows:  # a view would keep all rows in memory; this is a copy
        values, indices = _frozen(values.copy()), _frozen(indices.copy())
    return _csr(values, indices, rows.indptr[first : last + 1] - begin, width)


def _checked_width(request: Request, zero_based: bool, needed: int) -> int:
    if request.n_features is None:
        return needed
    if request.n_features < needed:
        counted = f"feature {needed - 1}, counted from 0," if zero_based else f"feature {needed}, counted from 1,"
        raise ValueError(f"{request.path}: n_features is {request.n_features}, but {counted} is in the file: "
                         f"it takes {needed}")  # fmt: skip
    return request.n_features


def _csr(values: Any, indices: Any, indptr: NDArray[np.int64], width: int) -> Features:
    """Return the matrix of these arrays, without copies.

    The constructor of csr_array would copy views of much larger arrays, and make the indices 64-bit if indptr is.
    """
    matrix: Any = scipy.sparse.csr_array((indptr.size - 1, width), dtype=np.float32)
    fits = indptr[-1] <= np.iinfo(np.int32).max
    matrix.data, matrix.indices = values, indices
    matrix.indptr = _frozen(indptr.astype(np.int32) if fits else indptr)
    matrix.has_canonical_format = True  # so scipy does not check it
    return cast(Features, matrix)


def _singles(labels: NDArray[np.float64], path: str, first: int) -> NDArray[np.float32]:
    """Return `labels`, those of the rows from `first` on, as float32.

    ValueError: a label is too large, or an integer that float32 rounds: two classes could become one.
    """
    singles = as_singles(labels)
    changed = np.flatnonzero((singles != labels) & (labels == np.rint(labels)))  # so is each that is too large
    if changed.size:
        place = int(changed[0])
        label, single = labels[place], singles[place]
        what = f"{label:.0f}, which float32 rounds to {single:.0f}: use smaller numbers"
        what = what if np.isfinite(single) else f"{label:g}, which is too large for float32"
        raise ValueError(f"{path}: row {first + place}, counted from 0, has label {what}")
    return singles


def _signs(labels: NDArray[np.float64], known: tuple[float, ...], path: str, first: int) -> NDArray[np.float32]:
    """Return -1 and +1 for `labels`, those of the rows from `first` on. ValueError: a label is not in `known`."""
    *lower, upper = known
    low = lower[0] if lower else upper
    strange = np.flatnonzero((labels != low) & (labels != upper))
    if strange.size:
        place = int(strange[0])
        raise ValueError(f"{path}: row {first + place}, counted from 0, has label {_shown(labels[place])}, "
                         f"which is not one of {', '.join(map(_shown, known))}")  # fmt: skip
    if not lower:
        return np.full(labels.size, 1.0 if upper > 0 else -1.0, np.float32)
    return np.where(labels == upper, np.float32(1), np.float32(-1))


def _shown(label: float) -> str:
    return f"{label:.0f}" if label == round(label) else repr(float(label))


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array
