"""The faults that `malt run --inject` asks for. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_S = 0.1
"""The least mean time between two strikes."""
MOST_TIMES = 20.0
"""How many times slower a rank can be made. A slower one would be stopped for so long at a time that it seems lost."""

_FORM = "kill:30s, stop:30s, slow:RANKxTIMES and seed:NUMBER, with commas between them"
_WORD = re.compile(r"(kill|stop):(\d+(?:\.\d+)?)s|slow:(\d+)x(\d+(?:\.\d+)?)|seed:(\d+)", re.ASCII)


@dataclass(frozen=True)
class Faults:
    """The faults that are injected into the ranks of a job."""

    every_s: tuple[tuple[str, float], ...] = ()
    """`kill` or `stop`, and the mean time between two such strikes, in seconds."""
    slow: tuple[tuple[int, float], ...] = ()
    """A rank, and how many times slower it is made."""
    seed: int = 0
    """What the moments and the ranks are drawn from."""

    def __str__(self) -> str:
        """The value of --inject that asks for the same again."""
        words = [f"{kind}:{seconds:.12g}s" for kind, seconds in self.every_s]
        words += [f"slow:{rank}x{times:.12g}" for rank, times in self.slow]
        return ",".join([*words, f"seed:{self.seed}"])


def parsed(values: Sequence[str], ranks: int, seed: int) -> Faults:
    """The faults that the `values` of --inject name, for a job of so many `ranks`. `seed`: where they name none.

    ValueError: a word has another form, or comes twice; a number is too small or too large.
    """
    found: dict[tuple[str, int], float] = {}
    for word in ",".join(values).split(","):
        match = _WORD.fullmatch(word)
        if match is None:
            raise ValueError(f"faults are {_FORM}, not {word!r}")
        kind, seconds, rank, times, number = match.groups()
        what = (kind, 0) if kind else ("slow", int(rank)) if rank else ("seed", 0)
        if what in found:
            raise ValueError(f"{word} comes on top of another {word.partition(':')[0]}")
        found[what] = float(seconds or times or 0) if number is None else int(number)
        _check(word, what, found[what], ranks)
    seed = int(found.pop(("seed", 0), seed))
    if not found:
        raise ValueError(f"a seed alone strikes nobody: faults are {_FORM}")
    every_s = tuple((kind, value) for (kind, _), value in found.items() if kind != "slow")
    return Faults(every_s, tuple((rank, value) for (kind, rank), value in found.items() if kind == "slow"), seed)


def _check(word: str, what: tuple[str, int], value: float, ranks: int) -> None:
    kind, rank = what
    if kind in ("kill", "stop") and value < LEAST_S:
        raise ValueError(f"{word}: the mean time between two strikes is {LEAST_S:g} s or more")
    if kind == "slow" and rank >= ranks:
        raise ValueError(f"{word}: no rank {rank}: there are ranks 0 to {ranks - 1}")
    if kind == "slow" and not 1 < value <= MOST_TIMES:
        raise ValueError(f"{word}: a rank is made more than 1 and up to {MOST_TIMES:g} times slower")
