"""What a program of apps/ reports: a table with a line per epoch, the last line, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import malt
from apps.harness.marks import Mark
from malt import files


@dataclass(frozen=True)
class Column:
    """A measure as the table shows it."""

    key: str
    title: str
    form: str
    """A format specification, as ".4f"."""


_COUNTS = (
    Column("examples", "examples", ",d"),
    Column("seconds", "seconds", ".3f"),
)
TRAFFIC = (
    Column("bytes_sent", "bytes sent", ",d"),
    Column("merged", "merged", ",d"),
    Column("overwritten", "overwritten", ",d"),
)
_WIDTH = 13


@dataclass
class Report:
    """The run of one program, as its lowest live rank tells it."""

    header: Mapping[str, Any]
    """Program, version, MPI, ranks, graph, sync, seed, options: what the JSON file begins with."""
    measures: Sequence[Column]
    """How good the model is: the columns between the seconds and the traffic."""
    traffic: Sequence[Column] = TRAFFIC
    """What it took: the last columns."""
    resumed_from: int = 0
    """The epoch after which this run has resumed the training."""
    before: Mark = field(default_factory=Mark)
    """What all ranks had done by then."""
    epochs: list[dict[str, Any]] = field(default_factory=list)
    final: dict[str, Any] = field(default_factory=dict)
    lost_ranks: Callable[[], Sequence[Mapping[str, Any]]] = list
    """Those that have died so far; called when the report is written, as ranks may die during the evaluation too."""

    def add_epoch(self, mark: Mark, **measures: float | None) -> None:
        """Take down an epoch: its mark over all ranks, and how good the model was."""
        self.epochs.append({"epoch": self.resumed_from + len(self.epochs) + 1, **asdict(mark), **measures})

    def conclude(self, marks: Sequence[Mark], digest: str, **measures: float | None) -> None:
        """Take down the end of the run: how good the final model is, its hash, and what `marks`, over ranks, say."""
        last = marks[-1] if marks else self.before
        rate = last.examples / last.seconds if last.seconds else 0.0
        self.final = {**measures, "seconds": last.seconds, "examples_per_s": rate, "model_sha256": digest}

    def table(self) -> str:
        """The epochs, a line each, under a line of titles."""
        columns = [*_COUNTS, *self.measures, *self.traffic]
        lines = ["epoch" + "".join(f"{column.title:>{_WIDTH + 2}}" for column in columns)]
        for epoch in self.epochs:
            lines.append(
                f"{epoch['epoch']:<5}" + "".join(f"{_shown(epoch, column):>{_WIDTH + 2}}" for column in columns)
            )
        return "\n".join(lines)

    def last_line(self) -> str:
        """`final:`, the measures of the final model, and its hash."""
        reports = [
            f"{column.title} {_shown(self.final, column)}"
            for column in self.measures
            if self.final.get(column.key) is not None
        ]
        return f"final: {' '.join(reports)} model {self.final['model_sha256']}"

    def write(self, path: str) -> None:
        """Write all of it as JSON, complete or not at all. OSError: the file cannot be written."""
        epochs = {"resumed_from": self.resumed_from or None, "epochs": self.epochs}
        text = json.dumps({**self.header, **epochs, "final": self.final, "lost_ranks": self.lost_ranks()}, indent=1)
        files.write(path, lambda file: file.write(f"{text}\n".encode()))


def header(program: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a report begins with."""
    world = malt.init()
    common = {name: options.get(name) for name in ("graph", "sync", "seed")}
    rest = {name: value for name, value in options.items() if name not in common}
    return {
        "program": program,
        "version": malt.__version__,
        "mpi": world.library,
        "ranks": world.size,
        **common,
        "options": rest,
    }


def _shown(row: Mapping[str, Any], column: Column) -> str:
    value = row.get(column.key)
    return "-" if value is None else format(value, column.form)
