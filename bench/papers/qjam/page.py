"""The tables and figures of docs/qjam.md, from the JSON beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bench.harness.document import Measured, Tables
from bench.papers.qjam.runs import Run
from dstorm.words import count

_HEADINGS = ("", "speedup of an iteration", "ms an iteration", "seconds in all", "speedup in all")


class Reported(NamedTuple):
    """What Qjam's authors report of some workers."""

    workers: int
    seconds: float
    iteration_s: float


QJAM = (Reported(1, 5030, 10.0), Reported(2, 2350, 4.7), Reported(4, 1253, 2.5), Reported(8, 914, 1.8),
        Reported(16, 703, 1.4))  # fmt: skip
QJAM_PATCHES = 100_000


def tables(found: Measured) -> Tables:
    """The tables of the page."""
    most, runs = found["about"]["patches"][-1], found["runs"]
    large, small = ([one for one in runs if (one["patches"] == most) == is_large] for is_large in (True, False))
    return {
        "iterations": [_HEADINGS, *_measured(large), *_hosts(found["modelled"]), *_qjam()],
        "few patches": [_HEADINGS, *_measured(small)],
    }


def figures(found: Measured) -> dict[str, object]:
    """What the sentences of the page say."""
    about, runs = found["about"], found["runs"]
    last = [one for one in runs if one["ranks"] == about["ranks"][-1]]
    return {
        **about, "error": found["error"], "others": found["others"], "patch_us": 1e6 * about["patch_s"],
        "first": ", ".join(f"{one['first_s']:.2f} s on {one['ranks']}" for one in found["modelled"]),
        "all_hosts": ", ".join(str(one["ranks"]) for one in found["modelled"]),
        "megabytes": ", ".join(f"{one['chunk_bytes'] / 1e6:.1f}" for one in last),
        "all_patches": ", ".join(f"{one['patches']:,}" for one in last),
        "later": sum(one["later_bytes"] for one in runs),
    }  # fmt: skip


def _measured(runs: Iterable[Run]) -> list[list[str]]:
    rows, alone = [], Reported(1, 0.0, 0.0)
    for one in runs:
        made = Reported(one["ranks"], one["seconds"], one["iteration_s"])
        alone = made if made.workers == 1 else alone
        name = f"apps.autoencoder, {one['patches']:,} patches, {count(made.workers, 'rank')}"
        rows.append(_row(name, made, alone))
    return rows


def _row(name: str, made: Reported, alone: Reported) -> list[str]:
    faster = alone.iteration_s / made.iteration_s, alone.seconds / made.seconds
    return [name, f"{faster[0]:.2f}", f"{1e3 * made.iteration_s:,.1f}", f"{made.seconds:,.2f}", f"{faster[1]:.2f}"]


def _hosts(modelled: Sequence[Run]) -> list[list[str]]:
    alone = modelled[0]["iteration_s"]
    return [
        [f"malt.map_reduce, {count(one['ranks'], 'simulated host')}",
         f"{alone / one['iteration_s']:.2f}", f"{1e3 * one['iteration_s']:,.1f}", "-", "-"]
        for one in modelled
    ]  # fmt: skip


def _qjam() -> list[list[str]]:
    return [_row(f"Qjam, {QJAM_PATCHES:,} patches, {count(one.workers, 'worker')}", one, QJAM[0]) for one in QJAM]
