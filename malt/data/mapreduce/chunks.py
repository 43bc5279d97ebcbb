"""The chunks of a dataset: where it is cut follows from what it holds, not from the number of ranks.

Slices cannot be written to. Else a function that changes its rows would work where the data is another rank's copy, and
change the user's array where it is not.
"""

from __future__ import annotations

import dataclasses
import hashlib
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from malt.data.shards import bounds
from malt.files.checksum import checksum
from malt.files.values import Array, kind_of, pack
from vol import arguments

_CHUNK_NBYTES: Final = 1 << 20
"""What a chunk of rows holds at most: a core keeps it in its cache."""
_LEAST_CHUNKS: Final = 32
"""The fewest chunks of a dataset with as many rows, so that ranks have about equal parts."""
_COMPARED_NBYTES: Final = 1 << 18
"""Of larger arrays ranks compare samples: they do so in each call."""


class Rows:
    """Rows, cut into a power of two of chunks, or into single rows where there are fewer.

    They have the methods of an object that a user passes in chunks: slice(i) returns the same each time.
    """

    def __init__(self, rows: int, nbytes: int, cut: Callable[[int, int], Any]) -> None:
        wanted = max(_LEAST_CHUNKS, -(-nbytes // _CHUNK_NBYTES))
        self._rows, self._count, self._cut = rows, min(1 << (wanted - 1).bit_length(), rows), cut

    def chunks(self) -> int:
        """The number of chunks."""
        return self._count

    def slice(self, i: int) -> Any:
        """The rows of chunk `i`."""
        return self._cut(*bounds(self._rows, i, self._count))


class Known(NamedTuple):
    """The content hashes of a dataset that stays the same."""

    dataset: weakref.ref[Any]
    arrays: list[weakref.ref[Array]]
    """Its arrays, in the place of which there may be others by now."""
    digests: list[str]


_known: dict[int, Known] = {}
"""What is known of datasets, by id."""


class Own:
    """The dataset of this rank. TypeError, ValueError: it cannot be cut into chunks."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._chunks, self.kind, self._frozen = _chunked(dataset)
        """`kind`: what ranks that have the dataset must have alike."""
        self.digests = self._remembered()
        """The content hashes of all chunks; empty: they are not known."""
        self.count = arguments.whole("dataset: chunks()", self._chunks.chunks(), 0)
        if not self.count:
            raise ValueError("dataset is empty")

    def slice(self, chunk: int) -> Any:
        """The data of a chunk; its arrays cannot be written to."""
        found = self._chunks.slice(chunk)
        return _read_only(found) if isinstance(found, np.ndarray) else found

    def digest(self, chunk: int) -> str:
        """The content hash of a chunk. TypeError: it cannot be exchanged."""
        return pack(self.slice(chunk)).digest()

    def remember(self, digests: list[str]) -> None:
        """Remember the content hashes of all chunks for as long as the dataset is there, if slices stay the same."""
        self.digests, key = digests, id(self._dataset)
        if self._frozen is not None:
            with suppress(TypeError):  # not everything can be referred to weakly
                dataset = weakref.ref(self._dataset, lambda _: _known.pop(key, None))
                _known[key] = Known(dataset, list(map(weakref.ref, self._frozen)), digests)

    def _remembered(self) -> list[str]:
        known = _known.get(id(self._dataset))
        if self._frozen is None or known is None or len(known.arrays) != len(self._frozen):
            return []
        is_same = all(ref() is array for ref, array in zip(known.arrays, self._frozen, strict=True))
        return known.digests if is_same else []


def hash_of(digests: Sequence[str]) -> str:
    """A hash of content hashes; "" where there are none."""
    return hashlib.sha256("".join(digests).encode()).hexdigest() if digests else ""


def _chunked(dataset: Any) -> tuple[Any, list[Any], list[Array] | None]:
    """Return the chunks of `dataset`, a description that ranks must share, and its arrays if nothing can write to them.

    The arrays are None otherwise.
    """
    if all(callable(getattr(dataset, name, None)) for name in ("chunks", "slice")):
        return dataset, [type(dataset).__name__], []  # slice(i) returns the same each time
    if isinstance(dataset, np.ndarray) and not isinstance(dataset, np.ma.MaskedArray) and dataset.ndim:
        return _cut(len(dataset), [dataset], f"an array of shape {dataset.shape} of {dataset.dtype}", dataset)
    if isinstance(dataset, (list, tuple, range)):
        cut = _listed if isinstance(dataset, range) else _sliced
        return _cut(len(dataset), None, f"a list of {len(dataset):,}", dataset, cut)
    if (name := kind_of(dataset)) == "Dataset":
        kind, X = f"rows {dataset.rows.start:,} to {dataset.rows.stop:,} of a file", dataset.X
        return _cut(len(dataset.y), [X.data, X.indices, X.indptr, dataset.y], kind, dataset, _rows)
    if name == "Ratings":
        count = len(dataset.ratings)
        return _cut(count, [*vars(dataset).values()], f"{count:,} ratings", dataset, _ratings)
    if getattr(dataset, "format", None) == "csr":
        kind = f"a sparse matrix of shape {dataset.shape} of {dataset.dtype}"
        return _cut(dataset.shape[0], [dataset.data, dataset.indices, dataset.indptr], kind, dataset)
    raise TypeError(
        "dataset must be an array, a list, a range, a sparse matrix in CSR form, a malt.Dataset or malt.Ratings, an "
        f"object with chunks() and slice(i), or None, got {type(dataset).__name__}"
    )


def _sliced(dataset: Any, first: int, last: int) -> Any:
    return dataset[first:last]


def _listed(dataset: Any, first: int, last: int) -> Any:
    """As it comes to ranks to which it travels."""
    return list(dataset[first:last])


def _cut(
    rows: int, arrays: list[Array] | None, kind: str, dataset: Any, cut: Callable[[Any, int, int], Any] = _sliced
) -> tuple[Any, list[Any], list[Array] | None]:  # fmt: skip
    """Return the chunks of `rows` rows, a description that ranks must share, and `arrays` if nothing can write to them.

    `arrays`: those of the dataset; None: it is a list.
    """
    chunks = Rows(rows, sum(array.nbytes for array in arrays or ()), partial(cut, dataset))
    is_frozen = arrays is not None and all(map(_is_frozen, arrays))
    return chunks, [kind, f"checksum {checksum(dataset, _COMPARED_NBYTES):08x}"], arrays if is_frozen else None


def _rows(dataset: Any, first: int, last: int) -> Any:
    """Some rows of a malt.Dataset: one, too."""
    rows = slice(dataset.rows.start + first, dataset.rows.start + last)
    return dataclasses.replace(dataset, X=dataset.X[first:last], y=_read_only(dataset.y[first:last]), rows=rows)


def _ratings(ratings: Any, first: int, last: int) -> Any:
    """Some ratings of malt.Ratings."""
    chosen = {name: _read_only(getattr(ratings, name)[first:last]) for name in ("users", "items", "ratings")}
    return dataclasses.replace(ratings, **chosen)


def _read_only(array: Array) -> Array:
    """A view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _is_frozen(array: Any) -> bool:
    """Return whether nothing can write to the memory of `array` through it, or through what it is a view of."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    while isinstance(array, memoryview):
        array = array.obj
    try:
        return array is None or memoryview(array).readonly
    except TypeError:  # it may be anything
        return False
