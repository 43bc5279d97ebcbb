"""The page of the measurements: docs/angel.md, from the JSON beside it."""

from __future__ import annotations

from collections.abc import Iterable

from bench.angel.comparison import ABOVE, HISTORY, L1, L2, OPTIMIZERS, PARTS, PLACES, RANK_0, Row
from bench.document import Measured, table

PAGE = """# Spark on Angel: vectors through one rank, or in parts on all

*Spark on Angel* (2017) keeps the vectors of an optimizer on a parameter server. In Spark they lie on the driver: all
gradients come to it, and it sends the weights to all. Here are its experiments with apps.logistic, whose ranks have a
part of {rows:,} rows each, sparse ones of {features:,} features. In these rows {present:,} features occur.

- **through rank 0**: `--allreduce star`. Gradients of all features come to rank 0, which adds them up and sends the sum
  to all. Every rank keeps the weights and the history of L-BFGS, as the driver does.
- **--sharded**: each rank has a part of the weights and of the history. A rank pulls the weights of its own features,
  and pushes their gradients to the owners. The two loops of L-BFGS exchange numbers alone.

Both make the same iterations. A training ends at {above:g} above the optimum, as a part of it: mean logistic loss, l2
{l2:g}, for OWL-QN l1 {l1:g}, m = {history}. It is made by

    python -m bench.angel --write docs/angel.md

## Seconds, bytes, memory

![Seconds to 1e-3 above the optimum](pictures/angel.svg)

![MB that the hottest rank moves until then](pictures/angel-bytes.svg)

![MB of memory that training takes on rank 0](pictures/angel-memory.svg)

{table}

Seconds are medians of {rounds} rounds in turns, on two cores, of which other programs had {others:.1%} meanwhile. A
rank *moves* what it sends and receives. Bytes are those of the whole run: an evaluation before the first step, one at
the end, and those that measure the objective after each epoch of sgd. *Memory of training* is the most that rank 0 has
had, less what it had when rows were read and all was compiled; pages of other ranks' parts that it has read count, too.

- Training takes {memory_star:.0f} MB on rank 0 with L-BFGS through rank 0, {memory_parts:.0f} MB in parts on {ranks}
  ranks: {memory_less:.1f} times less. Spark's driver goes from 50 to 5 GB.
- The hottest rank moves {moved_less} times fewer bytes with sgd, L-BFGS and OWL-QN on {ranks} ranks.
- In parts a training on {ranks} ranks is {faster} times as fast with sgd, L-BFGS and OWL-QN; on {few} ranks
  {faster_few} times. Angel's authors report {reported} times, of Spark on a cluster.
- {cores}

## On {hosts} hosts

{epochs} iterations of L-BFGS on {hosts} simulated ranks, each on a host of its own, on a network of 1 Gbit/s and 100 us
(`malt.simulate`, `malt.Network`). Computing takes no time here: seconds are those of the exchange, the same each time.

{modelled}

The link of rank 0 carries the gradients of all ranks, one after the other, and the sums to all. The parts take
{less:.0f} times less time.
"""
_CORES = """Two cores are not eight hosts: bytes go through the memory that both cores share, at GB/s, and four ranks
  take turns on two cores. What is seen here is that a rank updates its part alone, and not the wire."""


def text(found: Measured) -> str:
    """The page in Markdown. Pure."""
    about, rows, modelled = found["about"], found["rows"], found["modelled"]
    few, ranks = about["ranks"][0], about["ranks"][-1]
    star, parts = (_one(rows, "lbfgs", place.name, ranks) for place in PLACES)
    hosts = {one["place"]: one for one in modelled}
    return PAGE.format(
        rows=about["rows"], features=about["features"], present=about["present"], rounds=about["rounds"],
        above=ABOVE, l2=L2, l1=L1, history=HISTORY, table=_table(rows, about["ranks"]), others=found["others"],
        memory_star=_training_mb(star), memory_parts=_training_mb(parts), ranks=ranks, few=few,
        memory_less=_training_mb(star) / _training_mb(parts), moved_less=_each(rows, ranks, "moved", ".0f"),
        faster=_each(rows, ranks, "seconds", ".1f"), faster_few=_each(rows, few, "seconds", ".1f"),
        reported=_listed([f"{one.reported:g}" for one in OPTIMIZERS]), cores=_CORES, hosts=about["hosts"],
        epochs=about["modelled_epochs"], modelled=_modelled(modelled),
        less=hosts[RANK_0.name]["seconds"] / hosts[PARTS.name]["seconds"],
    )  # fmt: skip


def _one(rows: Iterable[Row], optimizer: str, place: str, ranks: int) -> Row:
    wanted = {"optimizer": optimizer, "place": place, "ranks": ranks}
    return next(one for one in rows if wanted.items() <= one.items())


def _training_mb(row: Row) -> float:
    return float(row["most_mb"] - row["before_mb"])


def _each(rows: Iterable[Row], ranks: int, what: str, form: str) -> str:
    """How many times less of something the parts take than rank 0, by optimizer."""
    found = []
    for optimizer in OPTIMIZERS:
        star, parts = (_one(rows, optimizer.name, place.name, ranks)[what] for place in PLACES)
        times = max(star) / max(parts) if what == "moved" else star / parts
        found.append(format(times, form))
    return _listed(found)


def _listed(texts: list[str]) -> str:
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def _table(rows: Iterable[Row], ranks: Iterable[int]) -> str:
    lines = []
    for optimizer in OPTIMIZERS:
        for some in ranks:
            for place in PLACES:
                one = _one(rows, optimizer.name, place.name, some)
                mb = [f"{nbytes / 1e6:,.1f}" for nbytes in (max(one["moved"]), sum(one["moved"]) // 2)]
                memory = [f"{_training_mb(one):,.0f}", f"{one['most_mb']:,.0f}"]
                name = f"{place.name}, {optimizer.name}, {some} ranks"
                lines.append([name, f"{one['seconds']:.2f}", str(one["epochs"]), *mb, *memory])
    headings = ("", "seconds", "epochs", "hottest rank, MB", "all ranks, MB", "memory of training, rank 0, MB",
                "most memory of rank 0, MB")  # fmt: skip
    return table(headings, lines)


def _modelled(rows: Iterable[Row]) -> str:
    lines = [
        [one["place"], f"{1e3 * one['seconds']:,.1f}", f"{max(one['moved']) / 1e6:,.1f}",
         f"{sum(one['moved']) / 2e6:,.1f}"]
        for one in rows
    ]  # fmt: skip
    return table(("", "virtual ms an iteration", "hottest rank, MB in all", "all ranks, MB"), lines)
