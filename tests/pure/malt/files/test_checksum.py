"""The checksum of data: the same for a copy, another one where something has changed, whatever it lies in."""

from __future__ import annotations

import datetime
import enum
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
import pytest
from pandas import DataFrame
from scipy import sparse

from malt.files import checksum as module
from malt.files.checksum import Checksum, checksum

ROWS = np.random.default_rng(0).standard_normal((500, 7))
ORDER = np.random.default_rng(1).permutation(500)
NAMES = [f"row {row}" for row in range(500)]
COLOUR = enum.Enum("COLOUR", ["RED", "BLUE"])


@dataclass
class Pair:
    x: np.ndarray
    y: int
    made: object = field(default_factory=object, compare=False)


class Lazy(Sequence):
    """Rows that are read one by one."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        return Lazy(self.rows[place]) if isinstance(place, slice) else self.rows[place]


class ArrayLike:
    """What NumPy can read, and no more, as an array of h5py."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        return self.rows[place]

    def __array__(self, dtype=None, copy=None):
        return self.rows


def frame(rows, columns=("a", "b", "c", "d", "e", "f", "g")):
    return DataFrame({name: list(map(str, column)) if name == "a" else column
                      for name, column in zip(columns, rows.T, strict=True)})  # fmt: skip


def aligned(rows):
    """Records with room between their fields, in which there may be anything."""
    found = np.frombuffer(np.random.bytes(16 * len(rows)), np.dtype("i1,f8", align=True)).copy()
    found["f0"], found["f1"] = 1, rows[:, 0]
    return found


def masked(rows):
    found = np.ma.masked_array(rows.copy(), rows < -1)
    found.data[found.mask] = np.random.random(found.mask.sum())
    return found


KINDS = {
    "array": np.copy,
    "strided": lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
    "float16": lambda rows: rows.astype("f2"),
    "matrix": lambda rows: rows.copy().view(np.matrix),
    "texts": lambda rows: rows.astype("U9"),
    "dates": lambda rows: (1e6 * rows).astype("M8[s]"),
    "objects": lambda rows: rows.astype(object),
    "records": aligned,
    "masked": masked,
    "csr": lambda rows: sparse.csr_matrix(rows),
    "csr of ones": lambda rows: sparse.csr_array(np.where(rows > 0, 1.0, 0.0)),
    "lil": lambda rows: sparse.lil_array(rows),
    "frame": frame,
    "numbers": lambda rows: rows[:, 0].tolist(),
    "tuple": lambda rows: tuple(rows[:, 0].tolist()),
    "lists": lambda rows: rows.tolist(),
    "tuples": lambda rows: [(str(a), float(b)) for a, b, *_ in rows],
    "dicts": lambda rows: [dict(list(zip("ab", row[:2], strict=True))[:: np.random.choice([1, -1])]) for row in rows],
    "sets": lambda rows: [{str(a), str(b)} for a, b, *_ in rows],
    "arrays": lambda rows: [row.copy() for row in rows],
    "dataclasses": lambda rows: [Pair(row.copy(), 1) for row in rows],
    "enumerations": lambda rows: [COLOUR(1 + (row[0] > 0)) for row in rows],
    "days": lambda rows: [datetime.date.fromordinal(1000 + int(1e4 * row[0] ** 2)) for row in rows],
    "decimals": lambda rows: [Decimal(row[0]) for row in rows],
    "lazy": Lazy,
    "array-like": ArrayLike,
}


@pytest.mark.parametrize("samples", [1000, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_rows_have_one_checksum_and_the_same_in_another_order_another_one(monkeypatch, kind, samples):
    monkeypatch.setattr(module, "SAMPLES", samples)
    monkeypatch.setattr(module, "WHOLE_ROWS", samples)
    monkeypatch.setattr(module, "WHOLE_NBYTES", 100 * samples)
    make, found = KINDS[kind], Checksum(module.WHOLE_NBYTES)
    found.add(make(ROWS))
    assert found.unknown == ""
    assert found.number == checksum(make(ROWS), module.WHOLE_NBYTES)
    assert found.number != checksum(make(ROWS[ORDER]), module.WHOLE_NBYTES)
    assert found.number != checksum(make(ROWS[:-1]), module.WHOLE_NBYTES)


def test_names_shapes_and_dtypes_count():
    assert checksum(frame(ROWS)) != checksum(frame(ROWS, tuple("abcdefz")))
    assert len({checksum(one) for one in (ROWS, ROWS.reshape(7, 500), ROWS.view("i8"), list(ROWS[0]), ROWS[0])}) == 5
    assert checksum(["a", "bc"]) != checksum(["ab", "c"])


def test_a_rare_label_that_moves_is_seen():
    """Of 100,000 rows one is of the other class: no sample would find it."""
    labels = np.zeros((2, 100_000), np.int8)
    labels[[0, 1], [500, 90_000]] = 1
    assert checksum(labels[0]) != checksum(labels[1])


@pytest.mark.parametrize(
    "value", [object(), [1, object()], {"a": lambda: 0}, np.array([object(), 1]), (x for x in "a")]
)
def test_the_class_of_what_is_not_known_is_named(value):
    found = Checksum()
    found.add(value)
    assert found.unknown in ("object", "function", "generator")


def test_what_is_looked_at_stays_as_it_is():
    file, endless = io.TextIOWrapper(io.BytesIO(b"text")), [1]
    endless.append(endless)
    for value in (file, [file], endless):
        assert checksum(value) == checksum(value)
    assert file.read() == "text"


def test_a_large_array_is_not_read_whole():
    """Only what is asked for of a file that is mapped is read: this one has 8 TB."""
    endless = np.broadcast_to(np.float64(1), 1 << 40)
    assert checksum(endless) == checksum(endless)
    assert checksum(range(sys.maxsize)) != checksum(range(1, sys.maxsize))
