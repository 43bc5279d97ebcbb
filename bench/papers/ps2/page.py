"""The tables and figures of docs/ps2.md, from the JSON beside it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from bench.harness.document import Measured, Table, Tables, one_of
from bench.papers.ps2.steps import EXCHANGE, Record
from bench.papers.ps2.ways import MOVED_BY_ADAM, RANK_0, WAYS, WORKERS, ZIP


def tables(found: Measured) -> Tables:
    """The tables of the page."""
    about, records = found["about"], found["records"]
    return {
        "adam": _seconds(records, about, "adam"), "exchange": _seconds(records, about, EXCHANGE),
        "bytes": _bytes(records, about), "dot": _dots(records, about),
        "hosts": _modelled(found["modelled"], (about["modelled_ranks"], about["modelled_length"])),
    }  # fmt: skip


def figures(found: Measured) -> dict[str, object]:
    """What the sentences of the page say: of the longest vectors, on most ranks where nothing else is said."""
    about, records, modelled = found["about"], found["records"], found["modelled"]
    ranks, length = about["ranks"][-1], about["lengths"][-1]
    values = _values(records, ranks, length)
    parts = {way: _share_of_the_hottest(_one(records, "adam", way.name, ranks, length)) for way in (WORKERS, RANK_0)}
    many = about["modelled_ranks"], about["modelled_length"]
    exchange_s = _one(modelled, EXCHANGE, "", *many)["seconds"]
    return {
        "rounds": about["rounds"], "others": found["others"], "ranks": ranks, "length": power(length),
        "zip_moved": values[ZIP.name], "workers_moved": values[WORKERS.name], "rank_0_moved": values[RANK_0.name],
        "rank_0_share": parts[RANK_0], "workers_share": parts[WORKERS],
        "faster": {some: _faster(records, some, length) for some in about["ranks"]},
        "dot_sent": max(_one(records, "dot", ZIP.name, ranks, length)["sent"]), "hosts_ranks": many[0],
        "hosts_length": power(many[1]), "adam_ns": 1e9 * about["adam_s"],
        "whole_ms": [1e3 * (exchange_s + _one(modelled, "adam", way.name, *many)["seconds"]) for way in WAYS],
    }  # fmt: skip


def _faster(records: Iterable[Record], ranks: int, length: int) -> list[float]:
    """How many times as fast a step where vectors lie is as in each other way."""
    first, *others = (_one(records, "adam", way.name, ranks, length)["seconds"] for way in WAYS)
    return [float(one / first) for one in others]


def power(length: int) -> str:
    """`length` as a power of ten, where it is one."""
    exponent = round(math.log10(length))
    return f"10^{exponent}" if length == 10**exponent else f"{length:,}"


def in_all(record: Record) -> int:
    """The bytes that all ranks move, each counted once."""
    return int(sum(record["moved"])) // 2


def _one(records: Iterable[Record], operation: str, way: str, ranks: int, length: int) -> Record:
    return one_of(records, operation=operation, way=way, ranks=ranks, length=length)


def _values(records: Iterable[Record], ranks: int, length: int) -> dict[str, float]:
    """By way, the values that a step of Adam moves, for each parameter; of zip the bytes."""
    moved = {way.name: in_all(_one(records, "adam", way.name, ranks, length)) for way in WAYS}
    assert moved[WORKERS.name] == 4 * MOVED_BY_ADAM * length
    return {name: nbytes / 4 / length if nbytes else 0 for name, nbytes in moved.items()}


def _share_of_the_hottest(record: Record) -> float:
    """The part of all bytes that the busiest rank moves."""
    return float(max(record["moved"]) / in_all(record))


def _rows(about: Measured, operation: str) -> list[tuple[str, str, int]]:
    """The name of a row, its way and its ranks."""
    ways = [""] if operation == EXCHANGE else [way.name for way in WAYS]
    return [(f"{way or 'gradients, weights'}, {ranks} ranks", way, ranks) for ranks in about["ranks"] for way in ways]


def _seconds(records: Iterable[Record], about: Measured, operation: str) -> Table:
    lengths = about["lengths"][::-1]
    rows = [
        [name, *(f"{1e3 * _one(records, operation, way, ranks, length)['seconds']:.2f}" for length in lengths)]
        for name, way, ranks in _rows(about, operation)
    ]
    return [["", *(f"ms, {power(length)} parameters" for length in lengths)], *rows]


def _bytes(records: Iterable[Record], about: Measured) -> Table:
    lengths, rows = about["lengths"][::-1], []
    for name, way, ranks in _rows(about, "adam"):
        found = [_one(records, "adam", way, ranks, length) for length in lengths]
        rows.append([name, *(megabytes(nbytes) for one in found for nbytes in (max(one["moved"]), in_all(one)))])
    headings = [f"{which}, {power(length)}" for length in lengths for which in ("busiest rank", "in all")]
    return [["", *headings], *rows]


def _dots(records: Iterable[Record], about: Measured) -> Table:
    rows = []
    for name, way, ranks in _rows(about, "dot"):
        found = [_one(records, "dot", way, ranks, length) for length in about["lengths"][::-1]]
        longest = [f"{max(found[0]['moved']):,}", f"{in_all(found[0]):,}"]
        rows.append([name, *(f"{1e3 * one['seconds']:.2f}" for one in found), *longest])
    longest_name = power(about["lengths"][-1])
    times = [f"ms, {power(length)} parameters" for length in about["lengths"][::-1]]
    return [["", *times, f"bytes of the busiest rank, {longest_name}", f"in all, {longest_name}"], *rows]


def _modelled(records: Iterable[Record], many: tuple[int, int]) -> Table:
    rows = []
    for operation, way in [("adam", way.name) for way in WAYS] + [("dot", way.name) for way in WAYS] + [(EXCHANGE, "")]:
        one = _one(records, operation, way, *many)
        name = f"{operation}, {way}" if way else "gradients to owners, weights to all"
        rows.append([name, f"{1e3 * one['seconds']:,.1f}", megabytes(max(one["moved"])), megabytes(in_all(one))])
    return [["", "virtual ms", "busiest rank, MB", "in all, MB"], *rows]


def megabytes(nbytes: int) -> str:
    """MB, as a number that says 0 only of 0 bytes."""
    return "0" if not nbytes else f"{nbytes / 1e6:,.1f}" if nbytes >= 1e5 else f"{nbytes / 1e6:.6f}"
