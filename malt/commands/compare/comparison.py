"""Runs of a program on several numbers of ranks, measured, as a table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from dstorm.words import count

Line = Mapping[str, Any]
"""A line of malt/watch/metrics.py: rank, time, numbers of a report. None: a number that is not finite."""
_GAP = "   "
_FEW = 100
"""From here on a number is shown without decimals."""


class Run(NamedTuple):
    """A run on so many ranks."""

    ranks: int
    wall_s: float
    """From the start of the job to its end."""
    training_s: float | None = None
    """From the first exchange to the last, of the rank for which that is longest. None: nobody knows."""
    per_s: float | None = None
    """What all ranks have counted in that time, a second."""
    counts: str = "counts"
    """What that is: examples, where the program reports them."""
    losses: tuple[tuple[float, float], ...] = ()
    """The losses that the lowest rank has reported: seconds since the start of the job, and the loss."""


class _Span(NamedTuple):
    """The counts of a rank between two moments."""

    first: float
    last: float
    counts: float = 0.0


def measured(ranks: int, wall_s: float, began: float, replicas: Sequence[Line], reports: Sequence[Line]) -> Run:
    """Return the measurements in the lines of a run. Pure.

    `began`: when it did, by the clock of the lines. `replicas`: for each Replica what it has counted, in which time.
    `reports`: those of malt.report. Without a Replica a rank trains from its first report to its last.
    """
    trained = _by_rank(replicas, _of_replicas)
    counted = _by_rank([line for line in reports if line.get("examples") is not None], _of_reports)
    counts = "examples" if _seconds(counted) else "counts"
    spans = counted if counts == "examples" else trained
    seconds, whole = _seconds(spans), sum(span.counts for span in spans)
    return Run(
        ranks, wall_s, _seconds(trained) or _seconds(_by_rank(reports, _of_reports)) or None,
        whole / seconds if seconds and whole else None, counts, _losses(reports, began),
    )  # fmt: skip


def table(program: str, runs: Sequence[Run], cores: int) -> str:
    """Return the text printed for `runs`: a line for each number of ranks, in the order of the first round; sentences.

    Pure. Numbers are medians. Beside them stands the ratio to those of the first number of ranks.
    """
    numbers = list(dict.fromkeys(run.ranks for run in runs))
    found = {ranks: [run for run in runs if run.ranks == ranks] for ranks in numbers}
    rounds = min(map(len, found.values()))
    columns = [["ranks", *map(str, numbers)]]
    for title, value, is_speed in _columns(runs):
        medians = [_median(value, found[ranks]) for ranks in numbers]
        if any(one is not None for one in medians):
            columns.append([title, *_cells(medians, is_speed)])
    widths = [max(map(len, column)) for column in columns]
    lines = [
        _GAP.join(f"{word:{width}}" for word, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    ]
    head = f"{program}: medians of {rounds} runs each; " if rounds > 1 else f"{program}: one run each; "
    head += f"x: times as good as on {count(numbers[0], 'rank')}"
    return "\n".join([head, "", *lines, "", *_sentences(found, rounds, cores)])


# -- private ----------------------------------------------------------------------------------------------


def _by_rank(lines: Iterable[Line], span: Callable[[Sequence[Line]], _Span]) -> list[_Span]:
    ranks: dict[int, list[Line]] = {}
    for line in lines:
        ranks.setdefault(line["rank"], []).append(line)
    return [span(mine) for mine in ranks.values()]


def _of_replicas(lines: Sequence[Line]) -> _Span:
    first = min(line["time"] - line["seconds"] for line in lines)
    return _Span(first, max(line["time"] for line in lines), sum(line["counts"] for line in lines))


def _of_reports(lines: Sequence[Line]) -> _Span:
    first, last = lines[0], lines[-1]
    return _Span(first["time"], last["time"], (last.get("examples") or 0) - (first.get("examples") or 0))


def _seconds(spans: Sequence[_Span]) -> float:
    """The longest of `spans`. 0: there is none."""
    return max((span.last - span.first for span in spans), default=0.0)


def _losses(reports: Sequence[Line], began: float) -> tuple[tuple[float, float], ...]:
    with_loss = [line for line in reports if line.get("loss") is not None]
    lowest = min((line["rank"] for line in with_loss), default=0)
    return tuple((line["time"] - began, line["loss"]) for line in with_loss if line["rank"] == lowest)


def _columns(runs: Sequence[Run]) -> list[tuple[str, Callable[[Run], float | None], bool]]:
    """Titles, what a run has there, and whether more is better."""
    counts = "examples" if all(run.counts == "examples" for run in runs) else "counts"
    columns: list[tuple[str, Callable[[Run], float | None], bool]] = [
        ("wall s", lambda run: run.wall_s, False),
        ("training s", lambda run: run.training_s, False),
        (f"{counts}/s", lambda run: run.per_s if run.counts == counts else None, True),
    ]
    if all(run.losses for run in runs):
        equal = max(min(loss for _, loss in run.losses) for run in runs)  # each run comes to it
        reached = lambda run: next(seconds for seconds, loss in run.losses if loss <= equal)  # noqa: E731
        columns.append((f"s to loss {equal:.4g}", reached, False))
    return columns


def _median(value: Callable[[Run], float | None], runs: Sequence[Run]) -> float | None:
    values = [one for run in runs if (one := value(run)) is not None]
    return median(values) if values else None


def _cells(values: Sequence[float | None], is_speed: bool) -> list[str]:
    """The words of a column, aligned: a number, and how it stands to the first one."""
    texts = ["-" if value is None else _shown(value) for value in values]
    width = max(map(len, texts))
    cells = [f"{text:>{width}}" for text in texts]
    first = values[0]
    for place, value in enumerate(values):
        if place and first and value:
            cells[place] += f"  {value / first if is_speed else first / value:.2f} x"
    return cells


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= _FEW else f"{value:.2f}"


def _sentences(found: Mapping[int, Sequence[Run]], rounds: int, cores: int) -> list[str]:
    """Return sentences on the time outside the training, the spread of the runs, and cores that are too few."""
    lines = []
    rest = {ranks: _median(lambda run: None if run.training_s is None else run.wall_s - run.training_s, runs)
            for ranks, runs in found.items()}  # fmt: skip
    if all(one is not None for one in rest.values()):
        each = ", ".join(f"{seconds:.2f} s on {count(ranks, 'rank')}" for ranks, seconds in rest.items())
        lines.append(f"Start and end, besides the training: {each}.")
    if rounds > 1:
        walls = [[run.wall_s for run in runs] for runs in found.values()]
        apart = max(max(one) / min(one) - 1 for one in walls)
        lines.append(f"Runs on the same number of ranks differ by up to {apart:.0%} in wall seconds.")
    crowded = [ranks for ranks in found if ranks > max(1, cores)]
    lines += [f"{ranks} ranks take turns on {count(cores, 'core')}." for ranks in crowded]
    return lines
