"""The outputs of a program: its report, the file of its model; checks of all files before it begins.

The report is a table with a line per epoch, the last line, and the same as JSON.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import malt
from apps.harness.marks import Mark
from malt import files

_FORMAT: Final = 1


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    key: str
    title: str
    form: str
    """A format specification, for example ".4f"."""


_COUNTS = (
    Column("examples", "examples", ",d"),
    Column("seconds", "seconds", ".3f"),
)
TRAFFIC = (
    Column("bytes_sent", "bytes sent", ",d"),
    Column("merged", "merged", ",d"),
    Column("overwritten", "overwritten", ",d"),
)
_ACROSS = Column("bytes_across", "across hosts", ",d")
"""A column that is there where ranks of several hosts exchange: beside the bytes sent."""
_SPLIT = {"start_s": "start", "training_s": "training", "waiting_s": "waiting"}
"""What seconds are split into."""
_WIDTH = 13


@dataclass
class Report:
    """The run of one program, as its lowest live rank reports it. Local."""

    header: Mapping[str, Any]
    """The beginning of the JSON file: program, version, MPI, ranks, graph, sync, seed, options."""
    measures: Sequence[Column]
    """The columns that say how good the model is. They stand between the seconds and the traffic."""
    traffic: Sequence[Column] = TRAFFIC
    """The columns of the traffic, the last of the table."""
    resumed_from: int = 0
    """The epoch after which this run resumed the training."""
    before: Mark = field(default_factory=Mark)
    """What all ranks had done by that epoch."""
    epochs: list[dict[str, Any]] = field(default_factory=list)
    final: dict[str, Any] = field(default_factory=dict)
    lost_ranks: Callable[[], Sequence[Mapping[str, Any]]] = list
    """Returns the ranks that have failed so far. Called when the report is written, as ranks may fail until then."""

    def add_epoch(self, mark: Mark, **measures: float | None) -> None:
        """Add an epoch: its mark over all ranks, and how good the model was."""
        self.epochs.append({"epoch": self.resumed_from + len(self.epochs) + 1, **asdict(mark), **measures})

    def conclude(self, marks: Sequence[Mark], digest: str, **measures: float | None) -> None:
        """Add the end of the run: how good the final model is, its hash, and the seconds and rate of the last mark."""
        last = marks[-1] if marks else self.before
        rate = last.examples / last.seconds if last.seconds else 0.0
        split = {key: getattr(last, key) for key in (*_SPLIT, "every")}
        self.final = {**measures, "seconds": last.seconds, "examples_per_s": rate, **split, "model_sha256": digest}

    def table(self) -> str:
        """The table: a line of titles, a line per epoch, a line about start, training, waiting and the interval.

        Measures of which none is known are left out.
        """
        known = {key for row in (*self.epochs, self.final) for key, value in row.items() if value is not None}
        columns = [*_COUNTS, *(column for column in self.measures if column.key in known), *self._traffic()]
        lines = ["epoch" + "".join(f"{column.title:>{_WIDTH + 2}}" for column in columns)]
        for epoch in self.epochs:
            lines.append(
                f"{epoch['epoch']:<5}" + "".join(f"{_shown(epoch, column):>{_WIDTH + 2}}" for column in columns)
            )
        return "\n".join([*lines, *self._split()])

    def _split(self) -> list[str]:
        """The line about the last epoch: how seconds are split, and the interval in use. Empty: there is no epoch."""
        if not self.epochs:
            return []
        last = self.epochs[-1]
        every = f"; an exchange every {last['every']:,d}" if last["every"] else ""
        return [", ".join(f"{name} {last[key]:.3f} s" for key, name in _SPLIT.items()) + every]

    def _traffic(self) -> list[Column]:
        columns = list(self.traffic)
        if TRAFFIC[0] in columns and any(row["bytes_across"] for row in self.epochs):
            columns.insert(columns.index(TRAFFIC[0]) + 1, _ACROSS)
        return columns

    def last_line(self) -> str:
        """The last line: `final:`, the measures of the final model, and its hash."""
        measures = [
            f"{column.title} {_shown(self.final, column)}"
            for column in self.measures
            if self.final.get(column.key) is not None
        ]
        return f"final: {' '.join(measures)} model {self.final['model_sha256']}"

    def write(self, path: str) -> None:
        """Write the report as JSON, complete or not at all. OSError: the file cannot be written."""
        epochs = {"resumed_from": self.resumed_from or None, "epochs": self.epochs}
        text = json.dumps({**self.header, **epochs, "final": self.final, "lost_ranks": self.lost_ranks()}, indent=1)
        files.write(path, lambda file: file.write(f"{text}\n".encode()))


def header(program: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The beginning of a report. Local."""
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


def check_outputs(options: Namespace, inputs: Iterable[tuple[str, str | os.PathLike[str] | None]]) -> None:
    """Check that outputs (--save, --json, --checkpoint, --picture) can be written, each a file of its own. Collective.

    `inputs` are the files that are read, each with its name on the command line. --save may name the file of --model,
    which is read whole before it is replaced. The check comes before anything is read. OSError, on all ranks: a folder
    is missing or not writable, or a path is a folder or a device. ValueError, on all ranks: an output is also an input
    or another output.
    """

    def check() -> None:
        taken = [(name, path) for name, path in inputs if path is not None]
        for option in ("--save", "--json", "--checkpoint", "--picture"):
            if (path := getattr(options, option[2:], None)) is None:
                continue
            if not path:  # a variable of the shell that is not set
                raise ValueError(f"{option} needs the name of a file, not ''")
            _check_writable(path)
            for name, other in taken:
                if _is_same_file(path, other) and (option, name) != ("--save", "--model"):
                    raise ValueError(f"{path}: {option} needs a file of its own, and {name} is that file")
            taken.append((option, path))

    malt.together(check)


def _check_writable(path: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if os.path.exists(path) and not os.path.isfile(path):  # a device, say, which the file would replace
        raise OSError(errno.EINVAL, "not a regular file", path)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _is_same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Return whether two paths lead to one file, whether or not it exists yet. Local."""
    with contextlib.suppress(OSError):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


def save_model(path: str, program: str, **arrays: Any) -> None:
    """Write the model of a program as .npz, complete or not at all. OSError: the file cannot be written. Local."""
    files.save_npz(path, format=_FORMAT, program=program, **arrays)


def load_model(path: str, program: str) -> dict[str, Any]:
    """The arrays that `save_model` wrote. ValueError: the file is no model of `program`. OSError. Local."""
    found: dict[str, Any] = files.load_npz(path)
    if str(found.pop("program", None)) != program:
        raise ValueError(f"{path}: not a model of {program}")
    if str(found.pop("format", _FORMAT)) != str(_FORMAT):  # the first files of some programs have no number
        raise ValueError(f"{path}: a model of {program}, but not of format {_FORMAT}, which this version reads")
    return found
