"""The picture of a job in a terminal: the columns and the ranks that matter most, as far as there is room. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dstorm.words import duration
from malt.watch.ranks import Shown
from malt.watch.table import ACROSS, EVERY, HEADINGS, LATE_S, Row, lines, rows, waiting_for

_GIVEN_UP = (
    "merged", "in", ACROSS, "out", "overwritten", "lag", "start", EVERY, "training", "waiting", "examples/s", "loss",
    "left",
)  # fmt: skip
"""The columns that are left out where there is no room, the first one first."""
_STATE = 40
"""The room that the last column is given, whatever is in it: so the others stay where they are."""
_TEXT_ROWS = 6
"""A picture leaves so many rows of the terminal to what ranks print, where there are enough."""
_FRAME_ROWS = 3
"""The title, the headings and the line that counts the ranks that are not shown."""
_GAP = 2
"""Between two columns (malt/watch/table.py)."""


class Line(NamedTuple):
    """A row of the picture."""

    text: str
    kind: str = ""
    """title, heading, failed, slow, waiting or finished; empty: a rank that works."""


def picture(title: str, shown: Sequence[Shown], columns: int, height: int) -> list[Line]:
    """The picture of the ranks of a job, for a terminal of so many columns and rows.

    Each line is shorter than `columns`. Where there are more ranks than rows, those are shown that have failed, hold
    others up or are behind, and the last line counts the others.
    """
    holding = waiting_for(shown).keys()
    kinds = [_kind(one, one.rank in holding) for one in shown]
    chosen = _chosen(shown, kinds, max(1, height - _TEXT_ROWS - _FRAME_ROWS))
    cells = [tuple(map(_plain, row)) for row in rows(shown)]
    kept = _kept([cells[place] for place in chosen], columns - 1)
    narrow = [tuple(row[place] for place in kept) for row in [HEADINGS, *(cells[place] for place in chosen)]]
    heading, *below = lines(narrow[1:], narrow[0]).splitlines()
    drawn = [Line(_plain(title), "title"), Line(heading, "heading")]
    drawn += [Line(text, kinds[place]) for text, place in zip(below, chosen, strict=True)]
    left = [one for place, one in enumerate(shown) if place not in chosen]
    if left:
        drawn.append(Line(_summary(left), "heading"))
    return [Line(_cut(line.text, columns - 1), line.kind) for line in drawn[: max(0, height - 2)] if columns > 1]


def _kind(one: Shown, holds_up: bool) -> str:
    if one.state in ("failed", "stopped", "interrupted"):
        return "failed"
    if one.state in ("finished", "departed"):
        return "finished"
    if one.record is None:
        return "waiting"
    if holds_up or one.age_s > LATE_S:
        return "slow"
    return "waiting" if one.record.waits_for else ""


def _chosen(shown: Sequence[Shown], kinds: Sequence[str], room: int) -> list[int]:
    """The places of the ranks that are shown, in their order."""
    order = ("failed", "slow", "", "waiting", "finished")

    def badness(place: int) -> tuple[int, float]:
        record = shown[place].record
        done = record.progress if record is not None else None
        return order.index(kinds[place]), done if done is not None else 1.0

    return sorted(sorted(range(len(shown)), key=badness)[:room])


def _kept(rows: Sequence[Row], width: int) -> list[int]:
    """The places of the columns for which there is room. A column without an entry is left out."""
    lengths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    kept = [place for place, name in enumerate(HEADINGS) if lengths[place] or not name]
    widths = [max(length, len(name)) for length, name in zip(lengths, HEADINGS, strict=True)]
    widths[-1] = _STATE
    for name in _GIVEN_UP:
        if sum(widths[place] + _GAP for place in kept) - _GAP <= width:
            break
        kept = [place for place in kept if HEADINGS[place] != name]
    return kept


def _summary(left: Sequence[Shown]) -> str:
    """One line about the ranks that are not shown."""
    states = Counter(one.state or "running" for one in left)
    counted = ", ".join(f"{count} {state}" for state, count in states.items())
    ends = [one.record.left_s for one in left if one.record is not None and not one.state]
    longest = max((left_s for left_s in ends if left_s is not None), default=None)
    return f"and {len(left)} more: {counted}" + ("" if longest is None else f", the last for {duration(longest)}")


def _plain(text: str) -> str:
    """`text` without what would move the cursor: the name of a program, or its error, may be any text."""
    return text if text.isprintable() else "".join(one if one.isprintable() else " " for one in text)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
