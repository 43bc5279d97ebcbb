"""Notes of what malt.shard was given on this rank, which ranks compare in later collective calls.

malt.shard is local. It cannot see that another rank was given another array, or the same rows in another order.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dstorm import Transport
from malt.world import agreement
from malt.world.agreement import Checked, Description

MOST = 16
"""The first so many arrays of a session are noted, and the first so many barriers compare notes. A barrier that
compares takes several times as long as one that does not."""
_SAMPLES = 1000
_STRIDE = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio: its multiples do not recur in step with any row length."""


class ShardNotes:
    """The notes of one rank, and the number of them that all ranks have compared."""

    def __init__(self) -> None:
        self._notes: list[Sequence[Any]] = []
        self._compared = 0
        self._barriers = 0
        self._is_silent = False
        """Whether this rank has come back: its calls are not those of the others, in number."""

    @property
    def state(self) -> dict[str, int]:
        """What is the same on all ranks: for ranks that come back."""
        return {"compared": self._compared, "barriers": self._barriers}

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Go on as the others, by their `state`. Arrays that this rank is given from here on are not compared."""
        self._compared, self._barriers = state["compared"], state["barriers"]
        self._is_silent = True

    def note(self, array: Any, seed: int | None) -> None:
        """Note `array`, which malt.shard was given, and the seed that shuffles its rows, or None. Local."""
        if len(self._notes) < MOST:
            self._notes.append([array.shape[0], str(array.dtype), checksum(array), seed])

    def agree(
        self, transport: Transport, what: str, check: Callable[[], tuple[Checked, Description]]
    ) -> tuple[Checked, dict[int, dict[str, Any]]]:
        """Do as malt.world.agreement.agree, and as `compare`. Collective."""

        def noted() -> tuple[Checked, Description]:
            checked, description = check()
            return checked, {**description, "_shards": self._fresh}

        checked, reports = agreement.agree(transport, what, noted)
        self._check({rank: one["_shards"] for rank, one in reports.items()})
        return checked, reports

    @property
    def _fresh(self) -> list[Sequence[Any]]:
        """The notes that are not compared yet."""
        return [] if self._is_silent else self._notes[self._compared :]

    @property
    def are_due(self) -> bool:
        """Whether `compare` will exchange notes. The same on all ranks."""
        return self._barriers < MOST

    def compare(self, transport: Transport) -> None:
        """Compare the notes that all ranks have made and not compared yet. Collective.

        After MOST calls it does nothing. ValueError, the same on all ranks: two ranks were given different arrays. It
        is raised once.
        """
        if self.are_due:
            self._barriers += 1
            self._check(agreement.exchange(transport, self._fresh, shared=True))

    def _check(self, reports: Mapping[int, Sequence[Any]]) -> None:
        """Raise ValueError where the reports of ranks differ."""
        start = self._compared
        self._compared += min(map(len, reports.values()))
        if problem := difference(reports, start):
            raise ValueError(problem)


def difference(reports: Mapping[int, Sequence[Any]], start: int = 0) -> str:
    """The first difference between the notes of ranks, in words. "": there is none. Pure.

    `reports`: the notes by rank. `start`: the number of the first of them, from 0.
    """
    lowest = min(reports)
    for place in range(min(map(len, reports.values()))):
        for rank, notes in reports.items():
            if notes[place] != reports[lowest][place]:
                return (
                    f"malt.shard, call {start + place + 1} with an array: rank {lowest} gave "
                    f"{_in_words(reports[lowest][place])}, rank {rank} gave {_in_words(notes[place])}; all must give "
                    "the same array, in the same order, or some rows are trained on twice and some never"
                )
    return ""


def _in_words(note: Sequence[Any]) -> str:
    count, dtype, checksum, seed = note
    shuffled = "" if seed is None else f", shuffled with seed {seed}"
    return f"{count:,} rows of {dtype}, checksum {checksum:08x}{shuffled}"


def checksum(array: Any) -> int:
    """The CRC-32 of up to _SAMPLES elements; of the stored ones of a sparse matrix; 0 if elements cannot be picked."""
    stored = array.data if hasattr(array, "nnz") else array
    if not isinstance(stored, np.ndarray) or stored.dtype.hasobject or not stored.size:
        return 0
    multiples = np.arange(_SAMPLES, dtype=np.uint64) * np.uint64(_STRIDE)
    places = np.arange(stored.size) if stored.size <= _SAMPLES else multiples % np.uint64(stored.size)
    return zlib.crc32(stored.flat[places.astype(np.intp)].tobytes())
