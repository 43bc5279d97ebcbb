"""The page of the measurements: docs/qjam.md, from the JSON beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bench.document import Measured, table
from bench.qjam.runs import Run

PAGE = """# Qjam: a sparse autoencoder through malt.map_reduce

*Qjam* (2010) runs a Python function on slices of a dataset on many machines, and adds up the results. Its authors train
a sparse autoencoder by L-BFGS on 100,000 patches of pictures, some 500 iterations, on 1 to 16 workers. Here is the same
training by apps.autoencoder: {iterations} iterations, 25 hidden units, a thread a rank, patches of {pictures}. It is
made by

    python -m bench.qjam --write docs/qjam.md

![How many times as fast an iteration is as on one rank](pictures/qjam.svg)

{table}

- apps.autoencoder: {cores} cores, medians of {rounds} rounds in turns. Other programs had {others:.1%} of the cores
  meanwhile. Four ranks share two cores.
- Qjam: what its authors report, a machine a worker.
- Hosts: {hosts} simulated hosts of a rank each, on a network of 1 Gbit/s and 100 us (`malt.simulate`,
  `malt.Network`), with as many patches as Qjam has. Two cores show no more than two workers; these show more. A patch
  takes {patch_us:.2f} us, as on one rank above, and seconds are virtual. Chunks are of 1 MiB: on many hosts some have
  one more than others. The first iteration, in which chunks travel from the host that has them, takes
  {first}.

With fewer patches the exchange and the optimizer, which all ranks have, take a larger part:

{small}

The losses of the iterations on several ranks differ by {error:.1e} at most from those on one, relatively. Chunks travel
in the first iteration ({megabytes} MB on {ranks} ranks, of {patches} patches); afterwards {later:,} bytes of chunks do.
"""
_HEADINGS = ("", "speedup of an iteration", "ms an iteration", "seconds in all", "speedup in all")


class Reported(NamedTuple):
    """What Qjam's authors report of some workers."""

    workers: int
    seconds: float
    iteration_s: float


QJAM = (Reported(1, 5030, 10.0), Reported(2, 2350, 4.7), Reported(4, 1253, 2.5), Reported(8, 914, 1.8),
        Reported(16, 703, 1.4))  # fmt: skip
QJAM_PATCHES = 100_000


def text(found: Measured) -> str:
    """The page in Markdown. Pure."""
    about, runs, modelled = found["about"], found["runs"], found["modelled"]
    most, ranks = about["patches"][-1], about["ranks"][-1]
    large = [one for one in runs if one["patches"] == most]
    small = [one for one in runs if one["patches"] != most]
    last = [one for one in runs if one["ranks"] == ranks]
    return PAGE.format(
        iterations=about["iterations"], pictures=about["pictures"], cores=about["cores"], rounds=about["rounds"],
        others=found["others"], hosts=_joined([str(one["ranks"]) for one in modelled]),
        table=table(_HEADINGS, [*_measured(large), *_hosts(modelled), *_qjam()]),
        small=table(_HEADINGS, _measured(small)),
        patch_us=1e6 * about["patch_s"], error=found["error"], ranks=ranks,
        first=_joined([f"{one['first_s']:.2f} s on {one['ranks']}" for one in modelled]),
        megabytes=_joined([f"{one['chunk_bytes'] / 1e6:.1f}" for one in last]),
        patches=_joined([f"{one['patches']:,}" for one in last]), later=sum(one["later_bytes"] for one in runs),
    )  # fmt: skip


def _measured(runs: Iterable[Run]) -> list[list[str]]:
    rows, alone = [], Reported(1, 0.0, 0.0)
    for one in runs:
        made = Reported(one["ranks"], one["seconds"], one["iteration_s"])
        alone = made if made.workers == 1 else alone
        name = f"apps.autoencoder, {one['patches']:,} patches, {_many(made.workers, 'rank')}"
        rows.append(_row(name, made, alone))
    return rows


def _row(name: str, made: Reported, alone: Reported) -> list[str]:
    faster = alone.iteration_s / made.iteration_s, alone.seconds / made.seconds
    return [name, f"{faster[0]:.2f}", f"{1e3 * made.iteration_s:,.1f}", f"{made.seconds:,.2f}", f"{faster[1]:.2f}"]


def _hosts(modelled: Sequence[Run]) -> list[list[str]]:
    alone = modelled[0]["iteration_s"]
    return [
        [f"malt.map_reduce, {_many(one['ranks'], 'simulated host')}",
         f"{alone / one['iteration_s']:.2f}", f"{1e3 * one['iteration_s']:,.1f}", "-", "-"]
        for one in modelled
    ]  # fmt: skip


def _qjam() -> list[list[str]]:
    return [_row(f"Qjam, {QJAM_PATCHES:,} patches, {_many(one.workers, 'worker')}", one, QJAM[0]) for one in QJAM]


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s'[: count > 1]}"


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(texts)
