"""Rows like those of text, generated from a seed: sparse, of length 1, about topics of two classes.

    malt run -n 2 -m bench.benchmarks.svm.planted FOLDER [options of apps.svm]

It runs apps.svm on the rows that `write` has put into FOLDER.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import malt
from apps import harness
from apps.svm import program

ROWS, COLUMNS, TOPICS = 300_000, 47_000, 10
_DRAWN = 77
"""Columns that are drawn for a row, with replacement: about 76 different ones."""
_HEAD = 30
"""The popularity of column number j, counted from 0, is a power law: 1 / (j + _HEAD)."""
_ON_TOPIC = (4.0, 4.0)
"""The beta distribution of the share of a row's columns that come from its topic."""
_FLIPPED = 0.03
"""The share of the labels that are wrong."""


def made(seed: int = 0, count: int | None = None) -> malt.Dataset:
    """`count` rows, by default ROWS, which the seed determines. Local.

    Half of the topics are of class +1. Each topic has its own order of columns, by popularity; the rest of a row comes
    from an order that all share.
    """
    generator = np.random.default_rng(seed)
    count = count or ROWS
    topics = generator.integers(TOPICS, size=count)
    uniform = generator.random((count, _DRAWN), np.float32)
    places = (_HEAD * np.expm1(uniform * np.float32(np.log1p(COLUMNS / _HEAD)))).astype(np.int32)
    is_on_topic = generator.random((count, _DRAWN), np.float32) < generator.beta(*_ON_TOPIC, (count, 1))
    first = np.where(is_on_topic, (1 + topics[:, np.newaxis]) * (COLUMNS // (TOPICS + 1)), 0)
    X = _counted(((places + first) % COLUMNS).astype(np.int32))
    X.data = 1 + np.log(X.data)
    X.data /= np.repeat(np.sqrt(np.add.reduceat(X.data**2, X.indptr[:-1])), np.diff(X.indptr))
    labels = np.where((topics % 2 == 0) ^ (generator.random(count) < _FLIPPED), 1, -1)
    return dataset(X, labels.astype(np.float32))


def _counted(columns: np.ndarray[Any, Any]) -> csr_array:
    """How often each row has each column."""
    ends = np.arange(len(columns) + 1, dtype=np.int32) * _DRAWN  # scikit-learn takes no other
    X = csr_array((np.ones(columns.size, np.float32), columns.ravel(), ends), shape=(len(columns), COLUMNS))
    X.sum_duplicates()
    return X


def dataset(X: csr_array, y: np.ndarray[Any, Any]) -> malt.Dataset:
    """The rows as apps.svm wants them."""
    return malt.Dataset(X, y, slice(0, len(y)), (-1.0, 1.0), True, nonzeros=X.nnz)


def write(data: malt.Dataset, folder: Path) -> None:
    """Write the rows to `folder`, as arrays that ranks can map into memory."""
    X = data.X
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "labels": data.y, "columns": X.shape[1]}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def read(folder: Path) -> malt.Dataset:
    """The rows that `write` has written: read-only, in memory that the ranks of a host share."""
    *parts, labels = (np.load(folder / f"{name}.npy", "r") for name in ("data", "indices", "indptr", "labels"))
    columns = int(np.load(folder / "columns.npy"))
    return dataset(csr_array(tuple(parts), shape=(len(labels), columns)), labels)


class Program(program.Program):
    """apps.svm, with a folder of arrays in place of the file of rows."""

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        return []

    def read(self, options: Namespace) -> tuple[malt.Dataset, malt.Dataset | None]:
        return read(Path(options.train)), None


def run(arguments: Sequence[str]) -> None:
    """Run the program on every rank. Collective. BadInput, FloatingPointError: as in `harness.run`."""
    harness.run(Program(), arguments)


if __name__ == "__main__":
    harness.main("bench.benchmarks.svm.planted", run)
