"""The view: a row a rank, from what all ranks show. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from malt.watch.ranks import Shown
from malt.watch.record import Record

HEADINGS = ("rank", "done", "left", "loss", "examples/s", "out", "in", "merged", "overwritten", "lag", "waited", "")
"""The headings of the columns."""
LONG_S = 10.0
"""A rank for which another one has waited for so long holds it up."""
_LATE_S = 3.0
"""A rank that has not answered for so long is named."""
_NAMED = 6
"""The most ranks that one cell names."""
_UNITS = ("B", "kB", "MB", "GB", "TB")


Row = tuple[str, ...]
"""The cells of a rank."""


def rows(shown: Sequence[Shown]) -> list[Row]:
    """A row for each rank."""
    records = {one.rank: one.record for one in shown if one.record is not None}
    running = {one.rank for one in shown if not one.state}
    held_up = {
        rank: sorted(other for other in running & records.keys() if _is_held_up(records[other], rank))
        for rank in running
    }
    return [_row(one, records, held_up.get(one.rank, [])) for one in shown]


def lines(rows: Sequence[Row]) -> str:
    """The rows as text, below the headings, in columns."""
    cells = [HEADINGS, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rendered = [
        "  ".join([*(cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)), row[-1]])
        for row in cells
    ]
    return "".join(f"{line.rstrip()}\n" for line in rendered)


def _row(one: Shown, records: dict[int, Record], held_up: Sequence[int]) -> Row:
    record = one.record
    if record is None:
        return str(one.rank), *[""] * (len(HEADINGS) - 2), one.state or "no session yet"
    received = record.read + sum(other.sent.get(one.rank, 0) for other in records.values())
    numbers = record.numbers
    return (
        str(one.rank), _done(record), "" if record.left_s is None or one.state else _duration(record.left_s),
        f"{numbers['loss']:.4g}" if "loss" in numbers else "",
        "" if record.examples_per_s is None or one.state else f"{record.examples_per_s:,.0f}",
        _size(sum(record.sent.values())), _size(received), f"{record.merged:,}", f"{record.overwritten:,}",
        str(record.lag), _duration(record.waited_s), _state(one, record, held_up),
    )  # fmt: skip


def _done(record: Record) -> str:
    epoch = record.numbers.get("epoch")
    if record.progress is not None:
        return f"{100 * record.progress:.0f} %"
    return f"{record.done:,}" if record.done else "" if epoch is None else f"epoch {epoch:g}"


def _state(one: Shown, record: Record, held_up: Sequence[int]) -> str:
    """What a rank is in."""
    if one.state:
        return one.state
    if one.age_s > _LATE_S:
        return f"no answer for {one.age_s:.0f} s"
    if record.waits_for:
        return f"waits for {_named(record.waits_for)} in {record.call} ({_duration(record.wait_s)})"
    return f"holds up {_named(held_up)}" if held_up else ""


def _is_held_up(record: Record, by: int) -> bool:
    return by in record.waits_for and record.wait_s >= LONG_S


def _named(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:_NAMED]))}{more}"


def _size(nbytes: float) -> str:
    for unit in _UNITS[:-1]:
        if round(nbytes) < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.3g} {_UNITS[-1]}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
