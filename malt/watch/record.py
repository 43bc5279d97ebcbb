"""The record that a rank shows of itself at one moment, as a line of JSON. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from malt.watch.split import Split

_NUMBERS = (
    "read", "across", "merged", "overwritten", "lag", *Split._fields, "every", "wait_s", "done"
)  # fmt: skip
_NUMBERS_OR_NONE = "progress", "left_s", "examples_per_s"


@dataclass(frozen=True)
class Counters:
    """The counters of a rank's exchanges. Numbers are totals of this session."""

    sent: dict[int, int] = field(default_factory=dict)
    """Bytes sent, by receiver."""
    read: int = 0
    """Bytes read from the memory of other ranks."""
    across: int = 0
    """Those of the bytes sent that went to another host."""
    merged: int = 0
    """Messages merged."""
    overwritten: int = 0
    """Messages that were never merged, as a newer one took their place."""
    lag: int = 0
    """How many steps behind the update was that was merged last, of the sender that is furthest behind."""
    start_s: float = 0.0
    """The seconds of this rank up to its first counted step or exchange (split.py)."""
    training_s: float = 0.0
    """Those from then on, without the waits."""
    waiting_s: float = 0.0
    """Those of the waits."""
    every: int = 0
    """The counts between two exchanges, now (malt/session/world/world.py). 0: nothing says when this rank exchanges."""
    waits_for: tuple[int, ...] = ()
    """The ranks that it waits for now."""
    call: str = ""
    """The call that waits."""
    wait_s: float = 0.0
    """How long it has waited."""


@dataclass(frozen=True)
class Record(Counters):
    """The record that a rank shows of itself."""

    numbers: dict[str, float] = field(default_factory=dict)
    """The newest of each number that malt.report was given, by name."""
    progress: float | None = None
    """The part of the work that is done, 0 to 1. None: not known."""
    left_s: float | None = None
    """Seconds that the rest will take. None: not known."""
    done: int = 0
    """The number of items that the outermost malt.progress has done."""
    examples_per_s: float | None = None
    """Examples a second. None: malt.report was given none."""

    def text(self) -> str:
        """The record as one line of JSON, which `parsed` reads."""
        return json.dumps(asdict(self))


def parsed(text: str) -> Record | None:
    """The record that `Record.text` has written. None: it is none."""
    try:
        fields: dict[str, Any] = json.loads(text)
        fields["sent"] = {int(rank): int(nbytes) for rank, nbytes in fields["sent"].items()}
        fields["waits_for"] = tuple(map(int, fields["waits_for"]))
        made = Record(**fields)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    return made if _is_sound(made) else None


def _is_sound(record: Record) -> bool:
    """Return whether the values are of their types: else another program, or version, has written them."""
    if not (isinstance(record.call, str) and isinstance(record.numbers, dict)):
        return False
    numbers = [getattr(record, name) for name in _NUMBERS]
    numbers += [one for name in _NUMBERS_OR_NONE if (one := getattr(record, name)) is not None]
    return all(isinstance(one, (int, float)) for one in (*numbers, *record.numbers.values()))
