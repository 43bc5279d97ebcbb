"""Counts, ranks, times and values in words, for messages. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_NAMED = 6
"""The most ranks that are named one by one."""
_SHOWN = 100
"""The most characters of a value that a message shows."""


def count(number: int, noun: str) -> str:
    """Return the number and the noun, in the plural unless there is one. Pure."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def named(ranks: Sequence[int]) -> str:
    """The ranks in words, at most so many of them: "ranks 0, 1 and 5 more"."""
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:_NAMED]))}{more}"


def shown(value: object) -> str:
    """Return the repr of a value for a message: in one line, and cut where it is long. Pure."""
    text = " ".join(map(str.strip, repr(value).split("\n")))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def duration(seconds: float) -> str:
    """A time in words: 2.5 s, 12 s, 3:05 or 1:02:30."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
