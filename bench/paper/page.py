"""The page of the measurements: docs/malt.md, from the JSON beside it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from bench.document import Measured, table
from bench.paper import failure, hosts, rcv1, speedup
from bench.paper.workloads import Workload

_LAST = 5
"""Epochs at the end, in which a rank that came back takes part."""
PAGE = """# The experiments of the MALT paper

Li, Kadav, Kruus and Ungureanu, *MALT: distributed data-parallelism for existing ML applications* (EuroSys 2015), train
linear SVMs, factors of ratings and networks on ranks that have hosts of their own. Here are the same experiments on
shapes of their data: as many features, as sparse, with fewer rows, so that all of it takes some minutes on two cores.
It is made by

    python -m bench.paper --write docs/malt.md

{shapes}

RCV1 is {news}. The others are made of a seed. alpha is dense. A row of DNA
has one of four letters at each of 200 places. Of the features of webspam one in 14 occurs at all, and most of these are
rare. KDD12 is the click problem of apps.mlp, and Netflix the film problem of apps.mf.

## Speedup

Seconds of training until a model is as good as that of one rank in the end, but for the share in the column *above*:
medians of {rounds} rounds, in which jobs of one rank and of {ranks} take turns, with a seed for each round. Ranks send
whole models under asp. Reading is left out. *Rows a second* and *epochs* are the two factors of the gain. Other
programs had {others:.1%} of the cores meanwhile.

{speedup}

![How many times as fast two ranks reach the end of one](pictures/malt.svg)

- Two ranks visit {least_rate:.2f} to {most_rate:.2f} times as many rows a second as one, by data set: the median is
  {rate:.2f}. They are slowest on webspam, where each exchange passes over 10^7 weights several times on each rank, and
  both share one memory.
- Epochs are what averaging costs. The mean of two models has moved as far as one of them, by twice the rows.
- RCV1 is small here: an epoch takes one rank {news_ms:.1f} ms. What two ranks win in an epoch they lose in the number
  of epochs and in exchanges.
- The paper has a host for each rank. Two cores share one memory: the gain of 10 or 20 ranks cannot appear here.

## Speedup on hosts of their own

The same as above for three linear SVMs, under asp, on simulated ranks with a host each: {network}, {latency:.1f} us
(`malt.simulate`, `malt.Network`), an exchange every {hosts_every:,} rows of a rank. A row takes what it takes one rank
here ({row_us}), and a message of a peer what an addition takes. Seconds are virtual; those of one rank
are the same rows at the same pace. -: not reached in {hosts_epochs} epochs.

{hosts}

![How many times as fast ranks on hosts of their own are](pictures/malt-hosts.svg)

- {hosts_best} gains most: {hosts_most:.1f} times as fast on {hosts_ranks} ranks along "{hosts_graph}". Its rows
  are many, its messages short, and the mean of models that have seen few rows each is good: few epochs are added.
- RCV1 is small here, {news_rows:,} rows: 20 ranks have {news_each:,} each, which is an exchange an epoch. What more
  ranks gain in an epoch they lose in epochs. And it is sent whole: {peers} messages of 189 KB take {sent_ms:.1f} ms,
  the {hosts_every:,} rows before them {rows_ms:.1f} ms. Under asp most of them are superseded before they leave. Below
  there are more rows.
- So the paper's gain on 10 ranks, which two cores cannot show, is there where rows are many. `malt plan` shows for a
  program of yours how many epochs are added, and how long an exchange takes beside its rows.

{rcv1}
## Bytes: rows of weights, or all of them

What all ranks send in an epoch, on simulated ranks, bsp, graph "all". A sparse vector sends the rows of weights that
were touched since the last exchange, with their numbers; where the whole array is shorter, it sends that. Counts are
exact, and the same in each run.

{traffic}

![What rows of weights take of the bytes of all weights](pictures/malt-bytes.svg)

- Few of the weights of RCV1, webspam and KDD12 are touched between two exchanges: {sparse_least:.0f} to
  {sparse_most:.0f} times fewer bytes.
- A row of alpha has all features, and a few rows of DNA have them all: there is nothing to win, and the marks of the
  rows add {marks:.0%}. Take dense vectors for such data.
- webspam is trained with whole models above: inside a host a copy of 40 MB takes less time than to find some 10^5 rows,
  and to merge them into 10^7 weights. Sparse vectors pay where the network is slower than memory.

## Bytes by graph

MB that all ranks send in the same epoch, and what they reach by it.

{graphs}

![MB that all ranks send in an epoch](pictures/malt-graphs.svg)

- On 8 ranks "halton" sends {halton} messages where "all" sends {all}: 24 and 56 an exchange. They are as
  long, so bytes follow their number.
- With fewer peers a model has less of the others after one epoch. It catches up: [Graphs](graphs.md) has 240 exchanges.
- "star" sends little, but all of it passes through rank 0, as through a parameter server: [MLlib](mllib.md) has
  the bytes of that rank. "exponential" has as many peers as "halton", and mixes faster.

## A failure

apps.svm on {failing_rows:,} rows like those of DNA, {failing} ranks, bsp, an exchange every {every} rows, under `malt
run --survive`. Ranks are paced at {pace:,.0f} rows a second, so that four of them on two cores are as fast as on four.
In the second run a rank is killed in epoch {killed_in}, half-way through its rows. In the third, with --rejoin, it
comes back.

{failure}

![The objective over seconds: no failure, one of four ranks killed, and that rank back](pictures/malt-failure.svg)

- The epoch of the failure takes {stall:.2f} s longer than in the other run. On its own host a process that has ended is
  seen at once, and nobody waits for it.
- Its rows, {lost_rows:,}, are dealt to the others. From the next epoch on they visit a third more rows each, and an
  epoch takes {longer:.2f} times as long.
- The last epoch ends after {ends[0]:.2f} s at {reached[0]:.4f} without a failure, after {ends[1]:.2f} s at
  {reached[1]:.4f} with one.
- The rank that comes back is a new process. It reads its rows, and is given the model, the step sizes and the epoch of
  a neighbour while all train on: it is back {away:.1f} s after its failure. An epoch then takes {again:.2f} times as
  long as without a failure. The last ends after {ends[2]:.2f} s, at {reached[2]:.4f}.
- Where every {period:g} s one of the ranks is killed, another one each time, and comes back, a training of {long:.0f} s
  makes {goodput:.1%} of the epochs a second that it makes without failures. That is under asp, where nobody waits.

## Lines that a port changes

Of the programs in [Examples](examples.md), each serial and parallel: lines of code, counted by their difference.

{lines}

The paper changes the type of the gradient, shards the data, and adds scatter and gather. The SVM does just that; a
`malt.Replica` takes fewer lines.
"""


def shape(one: Workload) -> dict[str, Any]:
    """What the page says of a workload."""
    fields = ("name", "kind", "rows", "weights", "nonzeros", "measure")
    return {**{field: getattr(one, field) for field in fields}, "real": one.words[0] == "apps.svm"}


def text(measured: Measured) -> str:
    """The page in Markdown. Pure."""
    return PAGE.format(
        shapes=_shapes(measured), news=_news(measured), ranks=speedup.RANKS, rounds=measured["rounds"],
        others=measured["others"], speedup=_speedup(measured), traffic=_traffic(measured), graphs=_graphs(measured),
        failing_rows=measured["failure"]["rows"], failing=failure.RANKS, every=failure.EVERY, pace=1 / failure.PACE_S,
        killed_in=failure.KILLED_IN, failure=_failure(measured), lines=_lines(measured),
        hosts=_hosts("like", measured["hosts"]), rcv1=_rcv1(measured["rcv1"]),
        **_host_numbers(measured), **_speed_numbers(measured), **_byte_numbers(measured), **_failure_numbers(measured),
    )  # fmt: skip


def _shapes(measured: Measured) -> str:
    return table(
        ["like", "trained", "rows", "weights", "features a row"],
        [[one["name"], one["kind"], f"{one['rows']:,}", f"{one['weights']:,}", f"{one['nonzeros']:,.0f}"]
         for one in measured["shapes"]],
    )  # fmt: skip


def _news(measured: Measured) -> str:
    real = measured["shapes"][0]["real"]
    return "rcv1-ccat, the news stories themselves" if real else "made of a seed here, rows like those of text"


def _speedup(measured: Measured) -> str:
    rows = []
    for one in measured["speedup"]:
        pairs = [alone / several for alone, several in zip(one["one"], one["several"], strict=True)]
        rows.append([
            one["name"], one["measure"].replace("_", " "), f"{one['target']:.4f}",
            f"{one['close'] - 1:.1%}", _seconds(one["one"]),
            _seconds(one["several"]), f"{one['ratio']:.2f}", f"{min(pairs):.2f}, {max(pairs):.2f}",
            f"{one['rate']:.2f} x",
            " / ".join(_number(count) for count in one["epochs"]),
        ])  # fmt: skip
    heads = ["like", "measure", "goal", "above", "1 rank, s", f"{speedup.RANKS} ranks, s", "times as fast", "from, to",
             "rows a second", "epochs, 1 / 2 ranks"]  # fmt: skip
    return table(heads, rows)


def _speed_numbers(measured: Measured) -> dict[str, float]:
    rates = [one["rate"] for one in measured["speedup"]]
    news = measured["speedup"][0]
    return {
        "least_rate": min(rates), "most_rate": max(rates), "rate": statistics.median(rates),
        "news_ms": 1e3 * statistics.median(news["one"]) / news["epochs"][0],
    }  # fmt: skip


def _hosts(first: str, found: Sequence[Measured]) -> str:
    heads = [first, "1 rank, ms", *(f"{ranks} ranks" for ranks in hosts.RANKS), "epochs, 1 rank",
             *(f"{ranks} ranks" for ranks in hosts.RANKS)]  # fmt: skip
    rows = []
    for one in found:
        alone, epochs = one["one"]
        for graph, several in one["graphs"].items():
            gains = (f"{alone / seconds:.1f}" if seconds < math.inf else "-" for seconds, _ in several)
            later = (f"{count:.0f}" if count < math.inf else "-" for _, count in several)
            rows.append([f"{one['name']}, {graph}", f"{1e3 * alone:.1f}", *gains, _number(epochs), *later])
    return table(heads, rows)


def _rcv1(found: Measured) -> str:
    return rcv1.section(found, _hosts("above the end", rcv1.to_the_ends(found)))


def _host_numbers(measured: Measured) -> dict[str, Any]:
    found = measured["hosts"]
    news = next(one for one in found if one["name"] == "RCV1")
    most = max(
        (one["one"][0] / seconds, one["name"], ranks, graph)
        for one in found for graph, many in one["graphs"].items()
        for ranks, (seconds, _) in zip(hosts.RANKS, many, strict=True)
    )  # fmt: skip
    shape = next(one for one in measured["shapes"] if one["name"] == "RCV1")
    peers = hosts.RANKS[-1] - 1
    return {
        "network": hosts.NETWORK,
        "latency": 1e6 * hosts.LATENCY_S,
        "hosts_every": hosts.EVERY,
        "hosts_epochs": hosts.EPOCHS,
        "peers": peers,
        "row_us": ", ".join(f"{one['name']} {1e6 * one['row_s']:.2f} us" for one in found),
        "sent_ms": 1e3 * peers * 4 * shape["weights"] / hosts.BANDWIDTH,
        "rows_ms": 1e3 * hosts.EVERY * news["row_s"],
        "news_rows": shape["rows"],
        "news_each": shape["rows"] // hosts.RANKS[-1],
        "hosts_most": most[0],
        "hosts_best": most[1],
        "hosts_ranks": most[2],
        "hosts_graph": most[3],
    }


def _byte_numbers(measured: Measured) -> dict[str, float]:
    graphs = {one["name"]: one["graphs"] for one in measured["traffic"]}
    fewer = {name: found["all"]["dense"] / found["all"]["sent"] for name, found in graphs.items()}
    sparse = [fewer[name] for name in ("RCV1", "webspam", "KDD12")]
    messages = {graph: graphs["RCV1"][graph]["messages"] for graph in ("halton", "all")}
    return {"sparse_least": min(sparse), "sparse_most": max(sparse), "marks": 1 / fewer["alpha"] - 1, **messages}


def _failure_numbers(measured: Measured) -> dict[str, Any]:
    found, struck = measured["failure"], failure.KILLED_IN - 1
    runs = [found[name] for name in failure.RUNS]
    without, killed, rejoined = ([now[0] - before[0] for before, now in pairwise(run)] for run in runs)
    return {
        "stall": killed[struck - 1] - without[struck - 1], "lost_rows": found["lost"]["rows"],
        "longer": statistics.median(killed[struck:]) / statistics.median(without),
        "period": measured["goodput"]["period_s"], "goodput": measured["goodput"]["goodput"],
        "long": measured["goodput"]["killed"]["seconds"],
        "away": found["back"]["back_at_s"] - found["back"]["at_s"],
        "again": statistics.median(rejoined[-_LAST:]) / statistics.median(without),
        "ends": [run[-1][0] for run in runs], "reached": [run[-1][1] for run in runs],
    }  # fmt: skip


def _seconds(taken: list[float]) -> str:
    return _number(statistics.median(taken), ".3f")


def _number(value: float, form: str = ".0f") -> str:
    return format(value, form) if math.isfinite(value) else "not reached"


def _traffic(measured: Measured) -> str:
    rows = []
    for one in measured["traffic"]:
        found = one["graphs"]["all"]
        share = f"{100 * found['sent'] / found['dense']:.1f}"
        sizes = (_megabytes(found[key]) for key in ("dense", "sent"))
        rows.append([one["name"], str(one["ranks"]), f"{found['messages']:,}", *sizes, share])
    return table(["like", "ranks", "messages", "all weights, MB", "rows touched, MB", "% of all"], rows)


def _megabytes(nbytes: float) -> str:
    return f"{nbytes / 1e6:,.2f}"


def _graphs(measured: Measured) -> str:
    found = measured["traffic"]
    heads = ["graph", *(f"{one['name']}, {one['ranks']} ranks" for one in found), f"{found[0]['name']}, objective"]
    rows = [[graph, *(_megabytes(one["graphs"][graph]["sent"]) for one in found), f"{reached['measured']:.4f}"]
            for graph, reached in found[0]["graphs"].items()]  # fmt: skip
    return table(heads, rows)


def _failure(measured: Measured) -> str:
    runs = [measured["failure"][name] for name in failure.RUNS]
    heads = ["epoch", "without a failure, s", "objective", f"one of {failure.RANKS} killed, s", "objective",
             "it comes back, s", "objective"]  # fmt: skip
    rows = [[str(epoch), *(f"{value:.4f}" for run in both for value in run)]
            for epoch, both in enumerate(zip(*runs, strict=True), 1)]  # fmt: skip
    return table(heads, rows)


def _lines(measured: Measured) -> str:
    rows = [[title, *map(str, counts)] for title, *counts in measured["lines"]]
    return table(["", "lines, serial", "parallel", "added", "changed"], rows)
