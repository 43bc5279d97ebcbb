"""The seconds of a rank, split into start, training and waiting, as the view and all reports have them. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Split(NamedTuple):
    """The seconds of a rank from the start of its launcher on: of `malt run`, else of the process. They add up."""

    start_s: float
    """Up to its first counted step or exchange; up to now, where there was none so far."""
    training_s: float
    """From then on, without the waits."""
    waiting_s: float
    """From then on in waits for other ranks: in scatters, gathers and collective calls."""


def split(age_s: float, trained_s: float | None, waited_s: float) -> Split:
    """The seconds of a rank whose launcher began `age_s` ago, and which has trained for `trained_s`, waits included.

    `trained_s` is None before its first counted step or exchange. `waited_s`: its waits since then.
    """
    if trained_s is None:
        return Split(age_s, 0.0, 0.0)
    waiting_s = min(waited_s, trained_s)
    return Split(age_s - trained_s, trained_s - waiting_s, waiting_s)
