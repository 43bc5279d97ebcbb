"""The page of the measurements: docs/modes.md, and its pictures, from the JSON beside it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from bench.mllib.gantt import Lanes, picture
from bench.modes.training import Count
from bench.modes.way import AVERAGES, GRAPHS, Way

Measured = Mapping[str, Any]
"""What `python -m bench.modes` writes as JSON."""
AXIS_S = 0.008
"""Where the picture of time ends."""
WIDTH = 120
PAGE = """# Who waits for whom: modes, graphs, a slow rank

Li et al., *MALT* (EuroSys 2015), compare who waits while ranks write models into each other's memory: all for all
(bsp), for the last message to be taken (notify-ack), nobody (asp); and along which graph they send. Between lies ssp:S,
where a rank is at most S steps ahead of those that send to it. Here are apps.svm and apps.mlp in each mode, on the
graphs all, halton and star, where all passes through rank 0 as through a parameter server; and with one average an
epoch, as map/reduce has it. It is made by

    python -m bench.modes --write docs/modes.md

{ranks} simulated ranks have an equal part of the rows each, and a host of their own, on the network "{network}" of
`malt plan`: {latency_us:g} us, {gbit:g} Gbit/s. The clock is virtual: a row takes what the kernel takes on one core of
this machine, on the slow rank, the last, {slow:g} times as long; merges take no time; and a scatter lasts until its
messages are there, also under asp, where real ranks of several hosts go on meanwhile. So the counters are the same in
each run, and the milliseconds for the same time of a row. All ways have the same rows and the settings of the programs.
The model of rank 0 counts, after each of its exchanges.

*Epochs*: rows that all ranks have visited. *Waited*: for other ranks; *exchanged*: for messages on their way; both the
mean of all ranks. The *hottest rank* sends and receives most; *a step*: in each of its exchanges, in models. *Lag*: how
many steps of the receiver a merged model is old, the mean and the most. *Overwritten*: models that a newer one has
replaced before they were merged. A training that has not reached the objective was given up after so long.

{sections}

## What shows, and what does not

{shows}

## On real ranks

apps.svm as a user runs it, on {real_name}, graph all: seconds to the end of the epoch that reaches the objective, of
{rounds} runs in turns. Other programs had {others:.1%} of the cores meanwhile.

{jobs}

{differs}
"""
HEAD = "{what}; an exchange every {every:,} rows. A model is {nbytes:,} bytes, a row takes {row_us:.2g} us."
SECTION = """## {name}

{head}

Evenly fast ranks:

{even}

One rank {slow:g} times as slow:

{table}

{pictures}"""
PICTURES = {
    "apps.svm": """![Milliseconds to the objective beside a slow rank](pictures/modes-svm.svg)

![MB that the hottest rank moves until then](pictures/modes-bytes.svg)

What each rank does in the first milliseconds on the graph all, where rank 7 is slow:

![Under asp nobody waits for the slow rank](pictures/modes-gantt.svg)""",
    "apps.mlp": "![Milliseconds to the objective beside a slow rank](pictures/modes-mlp.svg)",
}
"""By the name of the program."""
SHOWS = """\
**A slow rank.** Under bsp a rank of apps.mlp waits {mlp_share:.0%} of the time on the graph all, one of
apps.svm {svm_share:.0%}; under asp none ever waits. asp is {mlp_all}, {mlp_halton} and {mlp_star} times
as fast as bsp with apps.mlp on all, halton and star, {svm_all} and {svm_halton} times with apps.svm on
all and halton. The paper has up to 6 times. {slow:g} is the most there can be beside a rank {slow:g}
times as slow. Less is left as messages take as long in each mode, and as asp visits fewer rows of the
slow rank and merges its old models, which takes more epochs.

**Evenly fast ranks** gain nothing: asp takes {even_mlp} of bsp's time with apps.mlp and {even_svm} with
apps.svm on all. Nobody waits for long under bsp either, and a model that is a step old helps less:
{even_epochs_asp:.1f} epochs of apps.svm, not {even_epochs_bsp:.1f}. MALT-2 reports 28.1 s with a barrier
and 20.7 s without, at a larger loss, on 8 ranks, which are never as even as simulated ones.

**ssp:S** lets ranks go S steps ahead of those that send to them, and then at their pace: on all ssp:4
takes {ssp_mlp} of bsp's time with apps.mlp, ssp:1 {ssp1_mlp}. Along halton most ranks do not hear from
the slow one itself, and each rank between adds S steps: there ssp:4 takes {ssp_halton}. Where ranks are
evenly fast ssp is asp.

**notify-ack** waits as bsp does, as a slow rank takes messages as seldom as it sends, and merges older
models: beside a slow rank it takes {ack_mlp} of bsp's time with apps.mlp on all, {ack_svm} with
apps.svm. It overwrites nothing, which means of models do not need: increments do.

**Halton.** A rank moves {halton_step:.0f} models an exchange, on all {all_step:.0f}. Until the objective
the hottest rank of apps.svm moves {halton_saves:.1f} times fewer bytes, in {halton_epochs:.1f} epochs,
not {all_epochs:.1f}. It saves time where exchanges take long beside computation: under bsp it takes
{halton_time} of the time of all with apps.svm, {halton_time_mlp} with apps.mlp.

**Star.** Rank 0 moves {star_step:.0f} models an exchange, as much as each rank on all, and other ranks
2. A rank averages its model with that of rank 0 alone, so models stay apart: apps.svm{star_svm}. A
parameter server that owns the model does better: ranks that own parts in [MLlib](mllib.md).

**An average an epoch** moves fewest bytes, by reduce-scatter {average_step:.1f} models an exchange. With
even ranks apps.mlp takes {average_mlp:.1f} times as long with it as under bsp on all:
{average_mlp_epochs:.1f} epochs, not {bsp_mlp_epochs:.1f}. apps.svm takes {average_svm:.2f} of the time,
as its messages take long beside its computation; beside a slow rank, for which all wait,
{average_svm_slow:.1f} times as long as under asp along halton."""
DIFFERS = """\
Two ranks have a core each, and are evenly fast. Four share two cores: while one waits another one runs,
so a mode that waits loses little, and nobody is {slow:g} times as slow as the others. The seconds are
those of whole epochs, with the merges, which take no time in the simulation. Beside a rank that sleeps
as one {slow:g} times as slow would compute, asp with changes and rows dealt by speed is measured beside a
blocking exchange in [Benchmarks](benchmarks.md)."""


def lanes(way: Way, one: Count) -> Lanes:
    """What each rank has done when, until the picture ends. Pure."""
    ranks = [[(kind, round(start, 7), round(end, 7)) for kind, start, end in lane if start < AXIS_S]
             for lane in one.lanes]  # fmt: skip
    return Lanes(way.name, int(one.steps) if math.isfinite(one.steps) else 0, one.seconds, ranks)


def gantt(measured: Measured) -> str:
    """The picture of the runs on one axis. Pure."""
    return picture([Lanes(*one) for one in measured["lanes"]], AXIS_S)


def table(one: Measured, pace: str) -> str:
    """A table in Markdown of what each way has taken. Pure."""
    lines = [f"| | ms to {one['measure']} | epochs | waited, ms | exchanged, ms | hottest rank, MB | a step | lag "
             "| most | overwritten |", "|---" * 10 + "|"]  # fmt: skip
    return "\n".join([*lines, *(f"| {row['way']} | {' | '.join(_cells(row, one['nbytes']))} |" for row in one[pace])])


def _cells(row: Measured, nbytes: int) -> Iterable[str]:
    if row["steps"] == "diverges":
        return [row["steps"], *["-"] * 8]
    taken = f"{1e3 * row['seconds']:.1f}" if _is_reached(row) else row["steps"]
    is_average = row["way"] == AVERAGES.name
    merged = ["-"] * 3 if is_average else [f"{row['lag']:.2f}", f"{row['most_lag']}", f"{row['overwritten']:,}"]
    return [taken, f"{row['epochs']:.1f}", f"{1e3 * row['waited_s']:.1f}", f"{1e3 * row['exchanged_s']:.1f}",
            f"{row['hottest'] / 1e6:,.1f}", f"{a_step(row, nbytes):.1f}", *merged]  # fmt: skip


def _is_reached(row: Measured) -> bool:
    return isinstance(row["steps"], int)


def a_step(row: Measured, nbytes: int) -> float:
    """What the hottest rank moves in an exchange of rank 0, in models. Pure."""
    return float(row["hottest"] / row["exchanges"] / nbytes)


def jobs(measured: Measured) -> str:
    """A table in Markdown of what each mode has taken on real ranks. Pure."""
    lines = [f"| ranks | | s to objective {measured['target']:.4g} | from, to | epochs | all ranks send, MB | "
             "overwritten |", "|---" * 7 + "|"]  # fmt: skip
    for one in measured["jobs"]:
        times = [math.inf if seconds is None else seconds for seconds in one["seconds"]]
        lines.append(
            f"| {one['ranks']} | {one['sync']} | {_seconds(median(times))} | {_seconds(min(times))}, "
            f"{_seconds(max(times))} | {one['epochs']:g} | {one['sent'] / 1e6:,.1f} | {one['overwritten']:.0%} |"
        )
    return "\n".join(lines)


def _seconds(value: float) -> str:
    return "not reached" if math.isinf(value) else f"{value:.3f}"


def text(measured: Measured) -> str:
    """The page in Markdown. Pure."""
    about = measured["about"]
    sections = [
        SECTION.format(
            name=name, head=_filled(HEAD.format(**one, row_us=1e6 * measured["row_s"][name])),
            slow=about["slow"], even=table(one, "even"), table=table(one, "slow"), pictures=PICTURES[name],
        )
        for name, one in measured["counts"].items()
    ]  # fmt: skip
    return PAGE.format(
        **about, sections="\n\n".join(sections), shows=_shows(measured), others=measured["others"],
        real_name=measured["real"]["name"], jobs=jobs(measured["real"]),
        differs=_filled(DIFFERS.format(slow=about["slow"])),
    )  # fmt: skip


class Rows:
    """The rows of a program, by pace and way. Pure."""

    def __init__(self, measured: Measured, name: str) -> None:
        self._one = measured["counts"][name]

    def row(self, pace: str, sync: str, graph: str) -> Measured:
        """That of a mode along a graph; without a mode that of an average an epoch."""
        name = Way(graph, sync).name
        return next(row for row in self._one[pace] if row["way"] == name)

    def step(self, sync: str, graph: str) -> float:
        """As `a_step`, where ranks are even."""
        return a_step(self.row("even", sync, graph), self._one["nbytes"])

    def times(self, slower: Measured, faster: Measured) -> float:
        """How many times as long one takes as the other; NaN where one does not reach the objective."""
        return slower["seconds"] / faster["seconds"] if _is_reached(slower) and _is_reached(faster) else math.nan

    def gain(self, graph: str) -> str:
        """How many times as fast asp is as bsp beside a slow rank."""
        return f"{self.times(*(self.row('slow', sync, graph) for sync in ('bsp', 'asp'))):.1f}"

    def of_bsp(self, sync: str, graph: str) -> str:
        """The time of a mode as a part of that of bsp beside a slow rank."""
        return f"{self.times(self.row('slow', sync, graph), self.row('slow', 'bsp', graph)):.2f}"

    def share(self) -> float:
        """The share of its time that a rank waits under bsp beside a slow one."""
        row = self.row("slow", "bsp", "all")
        return float(row["waited_s"] / row["seconds"])

    def part(self, one: tuple[str, str], other: tuple[str, str]) -> str:
        """The time of one mode and graph as a part of that of another, where ranks are even."""
        return f"{self.times(self.row('even', *one), self.row('even', *other)):.2f}"


def _shows(measured: Measured) -> str:
    """What the page says of its tables."""
    svm, mlp = Rows(measured, "apps.svm"), Rows(measured, "apps.mlp")
    asp, bsp, halton = ("asp", "all"), ("bsp", "all"), ("bsp", "halton")
    average = ("", AVERAGES.graph)
    rows = {name: svm.row("even", *way) for name, way in (("asp", asp), ("bsp", bsp), ("halton", halton))}
    star = svm.row("even", "bsp", "star")
    ends = f" takes {star['epochs']:.1f} epochs" if _is_reached(star) else " does not reach its objective"
    shows = SHOWS.format(
        slow=measured["about"]["slow"], mlp_share=mlp.share(), svm_share=svm.share(),
        **{f"mlp_{graph}": mlp.gain(graph) for graph in GRAPHS}, svm_all=svm.gain("all"), svm_halton=svm.gain("halton"),
        even_mlp=mlp.part(asp, bsp), even_svm=svm.part(asp, bsp), even_epochs_asp=rows["asp"]["epochs"],
        even_epochs_bsp=rows["bsp"]["epochs"], halton_step=svm.step(*halton), all_step=svm.step(*bsp),
        halton_saves=rows["bsp"]["hottest"] / rows["halton"]["hottest"], halton_epochs=rows["halton"]["epochs"],
        all_epochs=rows["bsp"]["epochs"], halton_time=svm.part(halton, bsp), halton_time_mlp=mlp.part(halton, bsp),
        star_step=svm.step("bsp", "star"), star_svm=ends, average_step=svm.step(*average),
        average_mlp=float(mlp.part(average, bsp)), average_svm=float(svm.part(average, bsp)),
        average_mlp_epochs=mlp.row("even", *average)["epochs"], bsp_mlp_epochs=mlp.row("even", *bsp)["epochs"],
        average_svm_slow=svm.times(svm.row("slow", *average), svm.row("slow", "asp", "halton")),
        ssp_mlp=mlp.of_bsp("ssp:4", "all"), ssp1_mlp=mlp.of_bsp("ssp:1", "all"),
        ssp_halton=mlp.of_bsp("ssp:4", "halton"), ack_mlp=mlp.of_bsp("notify-ack", "all"),
        ack_svm=svm.of_bsp("notify-ack", "all"),
    )  # fmt: skip
    return "\n".join(_filled(f"- {text}", "  ") for text in shows.split("\n\n"))


def _filled(text: str, indent: str = "") -> str:
    """A paragraph in lines of at most WIDTH characters."""
    lines = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)
