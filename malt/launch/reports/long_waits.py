"""The lines that the launcher prints on long waits: who waits for whom, and where those are. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dstorm.words import named
from malt.watch.ranks import Shown
from malt.watch.table import waiting_for

REPORT_S = 30.0
"""After how long a wait is reported."""
_LINES = 40
"""A report has at most so many lines."""
_WAITS, _STACKS = 8, 3
"""The most waits and the most stacks of one report."""


class LongWaits:
    """The waits of one job. Each rank that holds others up is reported once."""

    def __init__(self) -> None:
        self._reported: set[int] = set()

    def due(self, shown: Sequence[Shown]) -> list[int]:
        """Return the ranks that a report is due about: they hold others up, and do not wait themselves.

        Where all that are waited for wait, in a circle, it is all of them. Empty: no report is due.
        """
        awaited = waiting_for(shown, REPORT_S).keys()
        waiting = {one.rank for one in shown if one.record is not None and one.record.waits_for}
        due = sorted((awaited - waiting or awaited) - self._reported)
        self._reported.update(due)
        return due


def longest_s(shown: Sequence[Shown]) -> float:
    """For how long the rank has waited that has waited longest."""
    return max((one.record.wait_s for one in shown if one.record is not None and not one.state), default=0.0)


def report(shown: Sequence[Shown], stacks: Mapping[int, str], job: int) -> str:
    """The report, as text: who waits for whom in which call, and the main threads of `stacks`, by rank.

    `job`: the number that `malt stacks` takes.
    """
    waits: dict[tuple[tuple[int, ...], str], list[Shown]] = {}
    for one in shown:
        if not one.state and one.record is not None and one.record.wait_s >= REPORT_S:
            waits.setdefault((one.record.waits_for, one.record.call), []).append(one)
    lines = [_wait(whom, call, those) for (whom, call), those in list(waits.items())[:_WAITS]]
    lines.append(f"malt run: `malt stacks {job}` prints all threads of all ranks; of those that are waited for:")
    shown_stacks = list(stacks.items())[:_STACKS]
    for place, (rank, text) in enumerate(shown_stacks):
        stack = [f"rank {rank}:", *text.rpartition("\n\n")[2].splitlines()]  # the main thread comes last
        room = (_LINES - len(lines)) // (len(shown_stacks) - place)
        lines += stack if len(stack) <= room else [*stack[: room - 1], f"  ... and {len(stack) - room + 1} more"]
    return "".join(f"{line}\n" for line in lines)


def _wait(whom: Sequence[int], call: str, those: Sequence[Shown]) -> str:
    longest = max(one.record.wait_s for one in those if one.record is not None)
    who, s = named([one.rank for one in those]), "" if len(those) > 1 else "s"
    return f"malt run: {who} wait{s} for {named(whom)} in {call} ({longest:.0f} s)"
