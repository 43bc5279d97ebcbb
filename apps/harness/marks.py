"""The clock of training, and totals at the end of each epoch: examples, seconds, traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import malt
from malt.models import by_rank


@dataclass
class Clock:
    """Counts the seconds between `start` and `stop`. It is stopped while data is loaded or a model evaluated. Local.

    In a simulation the seconds are virtual.
    """

    seconds: float = 0.0
    _since: float = 0.0

    def start(self) -> None:
        malt.init().begin_training()
        self._since = malt.clock()

    def stop(self) -> None:
        self.seconds += malt.clock() - self._since


@dataclass(frozen=True)
class Mark:
    """Totals of one rank from the start of training to the end of an epoch."""

    examples: int = 0
    seconds: float = 0.0
    bytes_sent: int = 0
    bytes_across: int = 0
    """Those that went to another host."""
    bytes_dense: int = 0
    merged: int = 0
    overwritten: int = 0
    rows_sent: int = 0
    """Rows that sparse vectors have sent."""
    start_s: float = 0.0
    """Seconds from the start of the launcher to the start of training."""
    training_s: float = 0.0
    """Seconds from then on, without the waits. In contrast to `seconds` the clock is not stopped."""
    waiting_s: float = 0.0
    """Those of the waits."""
    every: int = 0
    """The counts between two exchanges, now. 0: nothing says when this rank exchanges."""


_MEANS = "start_s", "training_s", "waiting_s", "every"
"""What is a mean over ranks, so that the seconds still add up."""


def mark(examples: int, seconds: float, vectors: Sequence[Any], rows_sent: int = 0) -> Mark:
    """This rank's mark now. Local.

    `vectors` carry the model. bytes_dense is what their messages would have taken with whole arrays.
    """
    traffic = [vector.statistics() for vector in vectors]
    nbytes = [vector.array.nbytes for vector in vectors]
    world = malt.init()
    return Mark(
        examples,
        seconds,
        bytes_sent=sum(one.bytes_sent for one in traffic),
        bytes_across=sum(one.bytes_across for one in traffic),
        bytes_dense=sum(one.sent * each for one, each in zip(traffic, nbytes, strict=True)),
        merged=sum(one.gathered for one in traffic),
        overwritten=sum(one.overwritten for one in traffic),
        rows_sent=rows_sent,
        **world.split(sum(one.waited_s for one in traffic))._asdict(),
        every=world.every,
    )


def over_ranks(marks: Sequence[Mark], before: Mark = Mark()) -> list[Mark]:
    """The marks of all live ranks, combined by epoch. Collective.

    Counts are sums, `seconds` those of the slowest rank, and start, training, waiting and `every` are means.

    The last mark of a rank with fewer epochs counts for those that it lacks. `before`: what all ranks did before this
    run. Counts of ranks that have left as the job shrank are added (`leave_behind`).
    """
    everyone = [_marks(theirs) for theirs in by_rank([asdict(one) for one in marks]).values()]
    epochs = max(map(len, everyone))
    found = [after(before, _combined(at_epoch)) for at_epoch in zip(*_padded(everyone, epochs), strict=True)]
    crew = malt.init().crew
    left = [_marks(theirs) for theirs in (() if crew is None else crew.left_behind())]
    for one in _padded([list(map(_counts, theirs)) for theirs in left], epochs):
        found = list(map(after, found, one))
    return found


def leave_behind(marks: Callable[[], Sequence[Mark]]) -> None:
    """Have marks() added by the other ranks where this one leaves as the job shrinks (malt scale). Local."""
    if (crew := malt.init().crew) is not None:
        crew.leave_behind = lambda: [asdict(one) for one in marks()]


def _marks(report: Sequence[Mapping[str, Any]]) -> list[Mark]:
    return [Mark(**one) for one in report]


def _padded(everyone: Sequence[list[Mark]], epochs: int) -> list[list[Mark]]:
    """The marks of each rank, of so many epochs."""
    return [(theirs + [theirs[-1] if theirs else Mark()] * (epochs - len(theirs)))[:epochs] for theirs in everyone]


def _counts(mark: Mark) -> Mark:
    """The counts of `mark`: nothing that a sum over ranks would falsify."""
    return replace(mark, **dict.fromkeys(("seconds", *_MEANS), 0))


def after(before: Mark, mark: Mark) -> Mark:
    """The totals of `before` and `mark` together."""
    totals = asdict(before)
    return Mark(**{key: totals[key] + number for key, number in asdict(mark).items()})


def _combined(marks: Iterable[Mark]) -> Mark:
    rows = [asdict(one) for one in marks]
    found = {key: (max if key == "seconds" else sum)(row[key] for row in rows) for key in rows[0]}
    means = {key: found[key] / len(rows) for key in _MEANS}
    return Mark(**{**found, **means, "every": round(means["every"])})
