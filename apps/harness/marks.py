"""What a rank has done by the end of each epoch: examples, seconds, traffic."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from apps.harness.agreement import by_rank


@dataclass
class Clock:
    """Seconds of training: runs between `start` and `stop`, and stands while something is loaded or evaluated."""

    seconds: float = 0.0
    _since: float = 0.0

    def start(self) -> None:
        self._since = time.perf_counter()

    def stop(self) -> None:
        self.seconds += time.perf_counter() - self._since


@dataclass(frozen=True)
class Mark:
    """What one rank has done by the end of one of its epochs: totals since the start."""

    examples: int = 0
    seconds: float = 0.0
    bytes_sent: int = 0
    bytes_dense: int = 0
    merged: int = 0
    overwritten: int = 0
    rows_sent: int = 0
    """By sparse vectors."""


def mark(examples: int, seconds: float, vectors: Sequence[Any], rows_sent: int = 0) -> Mark:
    """This rank's mark now. `vectors`: what carries the model; bytes_dense is what their whole arrays would have
    been."""
    traffic = [vector.statistics() for vector in vectors]
    nbytes = [vector.array.nbytes for vector in vectors]
    return Mark(
        examples,
        seconds,
        bytes_sent=sum(one.bytes_sent for one in traffic),
        bytes_dense=sum(one.sent * each for one, each in zip(traffic, nbytes, strict=True)),
        merged=sum(one.gathered for one in traffic),
        overwritten=sum(one.overwritten for one in traffic),
        rows_sent=rows_sent,
    )


def over_ranks(marks: Sequence[Mark], before: Mark = Mark()) -> list[Mark]:
    """The marks of all who live, epoch by epoch: counts summed, the seconds of the slowest. Collective.

    A rank with fewer epochs stands at its last. `before`: what all ranks have done before this run.
    """
    reports = by_rank([asdict(one) for one in marks])
    everyone = [[Mark(**one) for one in theirs] for theirs in reports.values()]
    epochs = max(map(len, everyone))
    padded = [theirs + [theirs[-1] if theirs else Mark()] * (epochs - len(theirs)) for theirs in everyone]
    return [after(before, _combined(at_epoch)) for at_epoch in zip(*padded, strict=True)]


def after(before: Mark, mark: Mark) -> Mark:
    """`mark`, counted on from `before`."""
    totals = asdict(before)
    return Mark(**{key: totals[key] + number for key, number in asdict(mark).items()})


def _combined(marks: Iterable[Mark]) -> Mark:
    rows = [asdict(one) for one in marks]
    return Mark(**{key: (max if key == "seconds" else sum)(row[key] for row in rows) for key in rows[0]})
