"""The page of the measurements: docs/ps2.md, from the JSON beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from bench.document import Measured, table
from bench.ps2.steps import EXCHANGE, Record
from bench.ps2.ways import MOVED_BY_ADAM, RANK_0, WAYS, WORKERS, ZIP

PAGE = """# PS2: a step where the vectors lie

Zhang et al., *PS2: Parameter Server on Spark* (SIGMOD 2019), keep the vectors that belong together on the same server,
range by range. Adam changes w by its gradient and by two vectors of its own. Where they lie together a step moves none
of them. Where workers pull and push, 7 K values move for K parameters: w, both vectors and the gradient go to a worker,
and all but the gradient come back. Here are three ways to make that step of the same sharded vectors of float32:

- **where they lie**: `w.zip(malt.optim.adam(), mean, variance, gradient)`. Each rank works on its part.
- **pull, update, push**: a worker for each part, which is not its owner: rank r takes the rows of rank r + 1.
- **through rank 0**: rank 0 pulls all rows, makes the step, and pushes the changes.

It is made by

    python -m bench.ps2 --write docs/ps2.md

## A step of Adam

Milliseconds until all ranks have made it, between two barriers: medians of {rounds} rounds, in which the ways take
turns, on two cores. Other programs had {others:.1%} of them meanwhile.

![Milliseconds of a step of Adam on 10^7 parameters](pictures/ps2.svg)

{seconds}

Before each step the gradients of all ranks come to the owners (`push`), and after it the weights to all ranks (`pull`).
That is the same in all three ways, and is measured apart:

{exchange}

What ranks move, in MB: what a rank sends and receives. A byte counts once in all, and at both ends.

![MB that the hottest rank moves in a step of Adam on 10^7 parameters](pictures/ps2-bytes.svg)

{bytes}

- Where they lie, {zip_moved} bytes move. A worker for each part moves {workers_moved:.2f} K values. Through rank 0
  {rank_0_moved:.2f} K move on {ranks} ranks: the rows of rank 0 do not leave it.
- Through rank 0 the hottest rank moves {rank_0_share:.0%} of all bytes. With a worker for each part it moves
  {workers_share:.0%} on {ranks} ranks, as a worker and as an owner.
- On {length} parameters and 2 ranks a step where they lie is {faster[0]:.1f} times as fast as pull, update and push,
  and {faster[1]:.1f} times as fast as through rank 0. {four}
  Inside a host a byte moves at the speed of memory, so less is gained than the bytes say.

## A dot

`w.dot(gradient)`; the same by workers that pull both vectors, whose results are added up; the same by rank 0.

{dots}

Each rank sends a number of 8 bytes to each other one: {dot_sent} bytes on {ranks} ranks, however long the vectors are.
What the others move are rows alone, without the sums of their results.

## On {modelled_ranks} hosts

The same code on {modelled_ranks} simulated ranks, each on a host of its own, on a network of 1 Gbit/s and 100 us
(`malt.simulate`, `malt.Network`), with {modelled_length} parameters. A rank makes the step of an element in
{adam_ns:g} ns, as about here. Seconds are virtual, the same in each run.

{modelled}

With the exchange of gradients and weights a step takes {whole[0]:,.0f} ms where they lie, {whole[1]:,.0f} by pull,
update and push, and {whole[2]:,.0f} through rank 0. Here ranks wait for the wire, and for the hottest rank most.
"""


def text(found: Measured) -> str:
    """The page in Markdown. Pure."""
    about, records = found["about"], found["records"]
    ranks, length = about["ranks"][-1], about["lengths"][-1]
    values = _values(records, ranks, length)
    hottest = {way.name: _share_of_the_hottest(_one(records, "adam", way.name, ranks, length)) for way in WAYS[1:]}
    modelled, zipped = found["modelled"], _one(records, "adam", ZIP.name, 2, length)
    times = [_one(records, "adam", way.name, 2, length)["seconds"] / zipped["seconds"] for way in WAYS[1:]]
    many = found["about"]["modelled_ranks"], found["about"]["modelled_length"]
    exchange_s = _one(modelled, EXCHANGE, "", *many)["seconds"]
    return PAGE.format(
        rounds=about["rounds"], others=found["others"], seconds=_seconds(records, about, "adam"),
        exchange=_seconds(records, about, EXCHANGE), bytes=_bytes(records, about), ranks=ranks,
        zip_moved=values[ZIP.name], workers_moved=values[WORKERS.name], rank_0_moved=values[RANK_0.name],
        rank_0_share=hottest[RANK_0.name], workers_share=hottest[WORKERS.name], length=power(length), faster=times,
        four=_four(records, about), dots=_dots(records, about),
        dot_sent=max(_one(records, "dot", ZIP.name, ranks, length)["sent"]), modelled_ranks=many[0],
        modelled_length=power(many[1]), adam_ns=1e9 * about["adam_s"], modelled=_modelled(modelled, many),
        whole=[1e3 * (exchange_s + _one(modelled, "adam", way.name, *many)["seconds"]) for way in WAYS],
    )  # fmt: skip


def power(length: int) -> str:
    """`length` as a power of ten, where it is one."""
    exponent = round(math.log10(length))
    return f"10^{exponent}" if length == 10**exponent else f"{length:,}"


def in_all(record: Record) -> int:
    """The bytes that all ranks move, each counted once."""
    return int(sum(record["moved"])) // 2


def _one(records: Iterable[Record], operation: str, way: str, ranks: int, length: int) -> Record:
    wanted = {"operation": operation, "way": way, "ranks": ranks, "length": length}
    return next(one for one in records if wanted.items() <= one.items())


def _values(records: Iterable[Record], ranks: int, length: int) -> dict[str, float]:
    """By way, the values that a step of Adam moves, for each parameter; of zip the bytes."""
    moved = {way.name: in_all(_one(records, "adam", way.name, ranks, length)) for way in WAYS}
    assert moved[WORKERS.name] == 4 * MOVED_BY_ADAM * length
    return {name: nbytes / 4 / length if nbytes else 0 for name, nbytes in moved.items()}


def _share_of_the_hottest(record: Record) -> float:
    """The part of all bytes that the hottest rank moves."""
    return float(max(record["moved"]) / in_all(record))


def _rows(about: Measured, operation: str) -> list[tuple[str, str, int]]:
    """The name of a row, its way and its ranks."""
    ways = [""] if operation == EXCHANGE else [way.name for way in WAYS]
    return [(f"{way or 'gradients, weights'}, {ranks} ranks", way, ranks) for ranks in about["ranks"] for way in ways]


def _seconds(records: Iterable[Record], about: Measured, operation: str) -> str:
    lengths = about["lengths"][::-1]
    rows = [
        [name, *(f"{1e3 * _one(records, operation, way, ranks, length)['seconds']:.2f}" for length in lengths)]
        for name, way, ranks in _rows(about, operation)
    ]
    return table(["", *(f"ms, {power(length)} parameters" for length in lengths)], rows)


def _bytes(records: Iterable[Record], about: Measured) -> str:
    lengths, rows = about["lengths"][::-1], []
    for name, way, ranks in _rows(about, "adam"):
        found = [_one(records, "adam", way, ranks, length) for length in lengths]
        rows.append([name, *(megabytes(nbytes) for one in found for nbytes in (max(one["moved"]), in_all(one)))])
    headings = [f"{which}, {power(length)}" for length in lengths for which in ("hottest rank", "in all")]
    return table(["", *headings], rows)


def _dots(records: Iterable[Record], about: Measured) -> str:
    rows = []
    for name, way, ranks in _rows(about, "dot"):
        found = [_one(records, "dot", way, ranks, length) for length in about["lengths"][::-1]]
        longest = [f"{max(found[0]['moved']):,}", f"{in_all(found[0]):,}"]
        rows.append([name, *(f"{1e3 * one['seconds']:.2f}" for one in found), *longest])
    longest_name = power(about["lengths"][-1])
    times = [f"ms, {power(length)} parameters" for length in about["lengths"][::-1]]
    return table(["", *times, f"bytes of the hottest rank, {longest_name}", f"in all, {longest_name}"], rows)


def _modelled(records: Iterable[Record], many: tuple[int, int]) -> str:
    rows = []
    for operation, way in [("adam", way.name) for way in WAYS] + [("dot", way.name) for way in WAYS] + [(EXCHANGE, "")]:
        one = _one(records, operation, way, *many)
        name = f"{operation}, {way}" if way else "gradients to owners, weights to all"
        rows.append([name, f"{1e3 * one['seconds']:,.1f}", megabytes(max(one["moved"])), megabytes(in_all(one))])
    return table(["", "virtual ms", "hottest rank, MB", "in all, MB"], rows)


def _four(records: Iterable[Record], about: Measured) -> str:
    """What four ranks on two cores show."""
    ranks, length = about["ranks"][-1], about["lengths"][-1]
    seconds = [_one(records, "adam", way.name, ranks, length)["seconds"] for way in WAYS]
    first, second = (one / seconds[0] for one in seconds[1:])
    return f"With {ranks} ranks on the two cores it is {first:.1f} and {second:.1f} times."


def megabytes(nbytes: int) -> str:
    """MB, as a number that says 0 only of 0 bytes."""
    return "0" if not nbytes else f"{nbytes / 1e6:,.1f}" if nbytes >= 1e5 else f"{nbytes / 1e6:.6f}"
