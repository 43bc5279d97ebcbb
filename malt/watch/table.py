"""The view: a row a rank, from what all ranks show. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dstorm.words import duration, named
from malt.watch.ranks import Shown
from malt.watch.record import Record

ACROSS = "across"
"""The heading of a column that is there where ranks of several hosts exchange."""
EVERY = "every"
"""The same, where a Replica, or malt.Exchanges, says when ranks exchange."""
HEADINGS = (
    "rank", "done", "left", "loss", "examples/s", "out", "in", ACROSS, "merged", "overwritten", "lag", EVERY, "start",
    "training", "waiting", "",
)  # fmt: skip
"""The headings of the columns."""
LONG_S = 10.0
"""A rank for which another one has waited for so long holds it up."""
LATE_S = 3.0
"""A rank that has not answered for so long is named."""
_UNITS = ("B", "kB", "MB", "GB", "TB")


Row = tuple[str, ...]
"""The cells of a rank."""


def rows(shown: Sequence[Shown]) -> list[Row]:
    """A row for each rank."""
    records = [one.record for one in shown if one.record is not None]
    waiting, received = waiting_for(shown), Counter[int]()
    for record in records:
        received.update(record.sent)
    return [_row(one, received[one.rank], waiting.get(one.rank, [])) for one in shown]


def waiting_for(shown: Sequence[Shown], least_s: float = LONG_S) -> dict[int, list[int]]:
    """The ranks that have waited for `least_s` or longer, by each running rank that they wait for."""
    found: dict[int, list[int]] = {}
    running = {one.rank for one in shown if not one.state}
    for one in shown:
        if not one.state and one.record is not None and one.record.wait_s >= least_s:
            for rank in running.intersection(one.record.waits_for):
                found.setdefault(rank, []).append(one.rank)
    return found


def lines(rows: Sequence[Row], headings: Row = HEADINGS) -> str:
    """The rows as text, below the headings, in columns."""
    places = [
        place for place, name in enumerate(headings)
        if name not in (ACROSS, EVERY) or any(row[place] for row in rows)
    ]  # fmt: skip
    cells = [[row[place] for place in places] for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rendered = [
        "  ".join([*(cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)), row[-1]])
        for row in cells
    ]
    return "".join(f"{line.rstrip()}\n" for line in rendered)


def _row(one: Shown, received: int, held_up: Sequence[int]) -> Row:
    record = one.record
    if record is None:
        return str(one.rank), *[""] * (len(HEADINGS) - 2), _state(one, None, ())
    numbers = record.numbers
    return (
        str(one.rank), _done(record), "" if record.left_s is None or one.state else duration(record.left_s),
        f"{numbers['loss']:.4g}" if "loss" in numbers else "",
        "" if record.examples_per_s is None or one.state else f"{record.examples_per_s:,.0f}",
        _size(sum(record.sent.values())), _size(record.read + received),
        _size(record.across) if record.across else "",
        f"{record.merged:,}", f"{record.overwritten:,}", str(record.lag),
        f"{record.every:,}" if record.every else "",
        duration(record.start_s), duration(record.training_s), duration(record.waiting_s),
        _state(one, record, held_up),
    )  # fmt: skip


def _done(record: Record) -> str:
    epoch = record.numbers.get("epoch")
    if record.progress is not None:
        return f"{100 * record.progress:.0f} %"
    return f"{record.done:,}" if record.done else "" if epoch is None else f"epoch {epoch:g}"


def _state(one: Shown, record: Record | None, held_up: Sequence[int]) -> str:
    """Return the state of a rank, in words."""
    if one.state == "failed":
        return _failure(one)
    if one.state or record is None:
        return one.state or "starting"
    if one.age_s > LATE_S:
        return f"no answer for {one.age_s:.0f} s"
    if record.waits_for:
        return f"waits for {named(record.waits_for)} in {record.call} ({duration(record.wait_s)})"
    return f"holds up {named(held_up)}" if held_up else ""


def _failure(one: Shown) -> str:
    ago = "" if one.failed_s is None else f" {duration(one.failed_s)} ago"
    return f"failed{ago}{': ' if one.why else ''}{one.why}"


def _size(nbytes: float) -> str:
    for unit in _UNITS[:-1]:
        if round(nbytes) < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.3g} {_UNITS[-1]}"
