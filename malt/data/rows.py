"""The columns of a store of svmlight rows: labels, indptr, indices (from 0) and values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dstorm import Transport
from malt.data import loading
from malt.data.loading import Format
from malt.data.store import Contents, Piece, Store
from malt.data.text import svmlight
from malt.data.text.svmlight import MAX_INDEX, Part, Rows

DTYPES: Final = {"labels": "<f8", "indptr": "<i8", "indices": "<i4", "values": "<f4"}
REPORTED_LABELS: Final = 3
"""The number of different labels that a rank reports: enough to distinguish two classes from more."""


@dataclass(frozen=True)
class Summary:
    """Facts about all rows of a file."""

    rows: int
    nonzeros: int
    zero_based: bool
    """Whether index 0 occurs."""
    columns: int
    """The largest column + 1: the smallest possible number of features."""
    labels: tuple[float, ...]
    """The smallest different labels, ascending; up to REPORTED_LABELS."""
    largest_line: int = 0
    """The first line of the file, from 1, with the largest column; 0 without columns."""

    def contents(self) -> Contents:
        """Return the columns and facts of a store of these rows. Local."""
        lengths = {"labels": self.rows, "indptr": self.rows + 1, "indices": self.nonzeros, "values": self.nonzeros}
        columns = {name: [dtype, lengths[name]] for name, dtype in DTYPES.items()}
        return Contents(columns, {**vars(self), "labels": list(self.labels)})


@dataclass(frozen=True, eq=False)
class StoredRows:
    """All rows of a file. The arrays are read-only: views of a mapped file, or of memory of this process."""

    rows: Rows
    summary: Summary
    is_mapped: bool

    @classmethod
    def of(cls, store: Store) -> StoredRows:
        """Return the rows in `store`. Local. ValueError, TypeError, KeyError: its columns are not of rows."""
        facts = store.contents.facts
        summary = Summary(**{**facts, "labels": tuple(facts["labels"])})
        if store.contents != summary.contents() or not 0 <= summary.columns <= MAX_INDEX + 1:
            raise ValueError("other columns than of rows, or a feature out of range")
        rows = Rows(**store.columns)
        if rows.indptr[0] != 0 or rows.indptr[-1] != summary.nonzeros:
            raise ValueError("indptr does not span the non-zeros")
        return cls(rows, summary, store.is_mapped)


@dataclass(frozen=True)
class Report:
    """A rank's report on the part that it has parsed."""

    lines: int
    rows: int
    nonzeros: int
    smallest: int | None
    """The smallest index; None without indices."""
    largest: int | None
    """The largest index; None without indices."""
    largest_line: int
    """The first line with the largest index, from 1 in this part."""
    labels: list[float]
    """The smallest different labels, ascending; up to REPORTED_LABELS."""
    problem: tuple[int, str] | None
    """The first bad line, from 1 in this part, and what is wrong with it."""

    @classmethod
    def of(cls, part: Part) -> Report:
        """Return the report of a part. Local."""
        filled = [chunk.indices for chunk in part.chunks if chunk.indices.size]
        labels = [np.unique(chunk.labels)[:REPORTED_LABELS] for chunk in part.chunks]
        return cls(
            lines=part.lines,
            rows=sum(chunk.labels.size for chunk in part.chunks),
            nonzeros=sum(indices.size for indices in filled),
            smallest=min((int(indices.min()) for indices in filled), default=None),
            largest=part.largest if filled else None,
            largest_line=part.largest_line,
            labels=np.unique(np.concatenate(labels))[:REPORTED_LABELS].tolist() if labels else [],
            problem=None if part.problem is None else (part.problem.line, part.problem.what),
        )


def shared_rows(path: str, transport: Transport) -> StoredRows:
    """Return all rows of a file, the same on all ranks. Collective. Raises the errors of `loading.shared`."""
    return StoredRows.of(loading.shared(path, FORMAT, transport))


def _combine(path: str, parts: Sequence[Any]) -> Contents:
    reports = [Report(**one) for one in parts]
    _raise_first_problem(path, reports)
    smallest = min((report.smallest for report in reports if report.smallest is not None), default=1)
    largest = max((report.largest for report in reports if report.largest is not None), default=0)
    widest = [place for place, report in enumerate(reports) if report.largest == largest][:1]
    return Summary(
        rows=sum(report.rows for report in reports),
        nonzeros=sum(report.nonzeros for report in reports),
        zero_based=smallest == 0,
        columns=largest + (smallest == 0),
        labels=tuple(sorted({label for report in reports for label in report.labels})[:REPORTED_LABELS]),
        largest_line=sum(sum(one.lines for one in reports[:place]) + reports[place].largest_line for place in widest),
    ).contents()


def _raise_first_problem(path: str, reports: Sequence[Report]) -> None:
    """Raise a ValueError for the first bad line of the file, or if the file has no rows."""
    lines = 0
    for report in reports:
        if report.problem:
            line, what = report.problem
            raise ValueError(f"{path}:{lines + line}: {what}")
        lines += report.lines
    if not any(report.rows for report in reports):
        raise ValueError(f"{path}: there are no rows in it, only blank lines and comments")


def _pieces(part: Part, contents: Contents, before: Sequence[Any]) -> Iterator[Piece]:
    base = np.int32(0 if contents.facts["zero_based"] else 1)
    row, nonzero = sum(one["rows"] for one in before), sum(one["nonzeros"] for one in before)
    yield "indptr", row, np.array([nonzero])
    for chunk in part.chunks:
        yield "labels", row, chunk.labels
        yield "indptr", row + 1, chunk.indptr[1:] + nonzero
        yield "indices", nonzero, chunk.indices - base
        yield "values", nonzero, chunk.values
        row, nonzero = row + chunk.labels.size, nonzero + chunk.indices.size


FORMAT: Final = Format(
    kind="rows",
    read=lambda path, part, parts: svmlight.read_part(path, part, parts),
    report=lambda part: dataclasses.asdict(Report.of(part)),
    combine=_combine,
    pieces=_pieces,
    check=StoredRows.of,
)
