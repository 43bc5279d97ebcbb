"""The reports of the ranks of a run (malt.report): curves, speeds, and the outcome in one sentence. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dstorm.words import count
from malt.watch.trace.layout import INTERVAL
from malt.watch.trace.reading import Trace

Points = list[tuple[float, float]]
_PLACES = ("rank", "time", "epoch", "epochs", "examples", "step")
"""Numbers that say where a report stands: of these nothing is drawn."""
_FEW = 4
"""The most ranks that are listed one by one."""


def names(traces: Iterable[Trace]) -> list[str]:
    """The names of all numbers that were reported, loss first, but for those that say where a report stands."""
    found = dict.fromkeys(name for trace in traces for one in trace.metrics for name in one)
    return sorted((name for name in found if name not in _PLACES), key=lambda name: name != "loss")


def over_time(trace: Trace, name: str) -> dict[int, Points]:
    """The numbers of that name, over seconds, by rank."""
    found: dict[int, Points] = {}
    for one in trace.metrics:
        if name in one:
            found.setdefault(one["rank"], []).append((one["time"], one[name]))
    return found


def over_examples(trace: Trace, name: str) -> dict[int, Points]:
    """The same over the examples of all ranks. Empty where none are reported."""
    found: dict[int, Points] = {}
    examples: dict[int, float] = {}
    for one in trace.metrics:
        if "examples" in one:
            examples[one["rank"]] = one["examples"]
        if name in one and examples:
            found.setdefault(one["rank"], []).append((sum(examples.values()), one[name]))
    return found


def examples_per_s(trace: Trace) -> dict[int, float]:
    """Return how many examples each rank trained on a second, from its first report of them to its last."""
    found = {}
    for rank, points in over_time(trace, "examples").items():
        seconds = points[-1][0] - points[0][0]
        grown = sum(max(b - a, 0.0) for (_, a), (_, b) in pairwise(points))  # less where a rank has begun anew
        if seconds > 0:
            found[rank] = grown / seconds
    return found


def intervals(trace: Trace) -> list[str]:
    """Return the choices of "auto": the last interval of each Replica, in words."""
    found: dict[str, dict[int, int]] = {}
    for rank in trace.ranks:
        for text in rank.names:
            every, _, name = text.removeprefix(INTERVAL).partition(" ")
            if text.startswith(INTERVAL) and every.isdecimal():
                found.setdefault(name, {})[rank.rank] = int(every)
    return [f"{name}: {_by_rank(chosen)}" for name, chosen in found.items()]


def outcome(trace: Trace, failures: Sequence[tuple[int, float]]) -> str:
    """Return the outcome of the run, in one sentence. `failures`: as in Summary."""
    seconds = trace.job.get("seconds", trace.until)
    who = count(trace.size, "rank")
    if failures:
        who += f", of which {len(failures)} failed,"
    sentence = f"{who} {_end(trace.job)} after {seconds:.3g} s"
    told = [_course(trace, name) for name in names([trace])[:1]]
    if speeds := examples_per_s(trace):
        told.append(f"{sum(speeds.values()):,.0f} examples/s")
    return f"{sentence}: {', '.join(told)}." if told else f"{sentence}. No number was reported (malt.report)."


def speeds(trace: Trace) -> str:
    """The examples a second of all ranks and of each, in words. "": nobody reported them."""
    found = examples_per_s(trace)
    return f"{sum(found.values()):,.0f} in all; {_by_rank(found)}" if found else ""


def _end(job: Mapping[str, Any]) -> str:
    status = job.get("status")
    if status is None:
        return "ran"
    return "finished" if status == 0 else f"ended with status {status:g}"


def _course(trace: Trace, name: str) -> str:
    """Return the course of a number, as the mean over the ranks that reported it."""
    curves = [*over_time(trace, name).values()]
    first, last = (sum(points[place][1] for points in curves) / len(curves) for place in (0, -1))
    return f"{name} {last:.4g}" if first == last else f"{name} from {first:.4g} to {last:.4g}"


def _by_rank(numbers: Mapping[int, float]) -> str:
    """Numbers by rank in words: each, if they are few."""
    if len(set(numbers.values())) == 1:
        return f"{next(iter(numbers.values())):,.0f} on each rank"
    if len(numbers) <= _FEW:
        return ", ".join(f"{number:,.0f} on rank {rank}" for rank, number in sorted(numbers.items()))
    return f"{min(numbers.values()):,.0f} to {max(numbers.values()):,.0f} a rank"
