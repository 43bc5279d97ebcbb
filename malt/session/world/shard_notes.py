"""Notes of what malt.shard was given on this rank, which ranks compare in later collective calls.

malt.shard is local. It cannot see that another rank was given other rows, or the same rows in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dstorm import Transport
from malt.files.checksum import Checksum
from malt.session.world import agreement
from malt.session.world.agreement import Checked, Description

MOST = 16
"""The first so many calls of a session with rows are noted, and the first so many barriers compare notes. A barrier
that compares takes several times as long as one that does not."""
NUMBER = ""
"""The kind of rows of which malt.shard was given the number alone."""


class ShardNotes:
    """The notes of one rank, and the number of them that all ranks have compared."""

    def __init__(self) -> None:
        self._notes: list[list[Any]] = []
        """Of a call with rows: its number, from 1; how many rows, of which kind, their checksum, the seed."""
        self._calls = 0
        self._compared = 0
        self._barriers = 0
        self._is_silent = False
        """Whether this rank has come back: its calls are not those of the others, in number."""

    @property
    def state(self) -> dict[str, int]:
        """The numbers that are the same on all ranks, for ranks that rejoin."""
        return {"compared": self._compared, "barriers": self._barriers}

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Go on as the others, by their `state`. Rows that this rank is given from here on are not compared."""
        self._compared, self._barriers = state["compared"], state["barriers"]
        self._is_silent = True

    def note(self, count: int, seed: int | None, rows: Any = None) -> str:
        """Note what malt.shard was given: `count` rows, or that number alone, and the seed that shuffles them. Local.

        Returns the class of rows that cannot be compared, or "". A loop may give the same number each epoch: it is
        noted once.
        """
        self._calls += 1
        if len(self._notes) >= MOST:
            return ""
        found = Checksum()
        if rows is not None:
            found.add(rows)
        note = [self._calls, count, NUMBER if rows is None else kind_of(rows), found.number, seed]
        if rows is not None or note[1:] not in (one[1:] for one in self._notes):
            self._notes.append(note)
        return found.unknown

    def agree(
        self, transport: Transport, what: str, check: Callable[[], tuple[Checked, Description]]
    ) -> tuple[Checked, dict[int, dict[str, Any]]]:
        """Do as malt.session.world.agreement.agree, and as `compare`. Collective."""
        checked, reports, _ = self.agree_and_send(transport, what, check, lambda _: b"")
        return checked, reports

    def agree_and_send(
        self, transport: Transport, what: str, check: Callable[[], tuple[Checked, Description]],
        data: Callable[[Checked], bytes],
    ) -> tuple[Checked, dict[int, dict[str, Any]], dict[int, bytes]]:  # fmt: skip
        """Do as malt.session.world.agreement.agree_and_send, and as `compare`. Collective."""

        def noted() -> tuple[Checked, Description]:
            checked, description = check()
            return checked, {**description, "_shards": fresh} if (fresh := self._fresh) else description

        checked, reports, sent = agreement.agree_and_send(transport, what, noted, data)
        if all("_shards" in one for one in reports.values()):
            self._check({rank: one["_shards"] for rank, one in reports.items()})
        return checked, reports, sent

    @property
    def _fresh(self) -> list[list[Any]]:
        """The notes that are not compared yet."""
        return [] if self._is_silent else self._notes[self._compared :]

    @property
    def are_due(self) -> bool:
        """True if `compare` will exchange notes. The same on all ranks."""
        return self._barriers < MOST

    def compare(self, transport: Transport) -> None:
        """Compare the notes that all ranks have made and not compared yet. Collective.

        After MOST calls it does nothing. ValueError, the same on all ranks: two ranks were given different rows. It is
        raised once.
        """
        if self.are_due:
            self._barriers += 1
            self._check(agreement.exchange(transport, self._fresh, shared=True))

    def _check(self, reports: Mapping[int, Sequence[Any]]) -> None:
        """Raise ValueError where the reports of ranks differ."""
        self._compared += min(map(len, reports.values()))
        if problem := difference(reports):
            raise ValueError(problem)


def difference(reports: Mapping[int, Sequence[Any]]) -> str:
    """The first difference between the notes of ranks, in words. "": there is none. Pure.

    `reports`: the notes by rank.
    """
    lowest = min(reports)
    for place in range(min(map(len, reports.values()))):
        for rank, notes in reports.items():
            (call, *first), (_, *other) = reports[lowest][place], notes[place]
            if other != first:
                return (
                    f"malt.shard, call {call}: rank {lowest} gave {_in_words(*first)}, rank {rank} gave "
                    f"{_in_words(*other)}; all must give the same rows, in the same order, or some are trained on "
                    f"twice and some never{_remedy(first, other)}"
                )
    return ""


def _remedy(first: Sequence[Any], other: Sequence[Any]) -> str:
    """Return a remedy if the same number of rows of one kind seem to be in another order."""
    (*shape, number, _), (*other_shape, other_number, _) = first, other
    if shape != other_shape or number == other_number:
        return ""
    return (
        ": if they are shuffled, ranks draw from different generators: "
        "malt.shard(len(rows), shuffle=True, seed=epoch) has one order for all"
    )


def _in_words(count: int, kind: str, number: int, seed: int | None) -> str:
    rows = f"the number {count:,}" if kind == NUMBER else f"{count:,} rows of {kind}, checksum {number:08x}"
    return rows if seed is None else f"{rows}, shuffled with seed {seed}"


def kind_of(rows: Any) -> str:
    """Return the kind of `rows`, in words: their dtype, if they have one."""
    if isinstance(rows, (list, tuple)):
        return "a list"
    return str(getattr(rows, "dtype", "") or f"a {type(rows).__name__}")
