"""The tables and figures of docs/ps2.md, from the JSON beside it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from bench.harness.document import Measured, Table, Tables, one_of
from bench.papers.ps2.steps import EXCHANGE, Record
from bench.papers.ps2.ways import WAYS


def tables(found: Measured) -> Tables:
    """The tables of the page."""
    about, records = found["about"], found["records"]
    return {
        "adam": _seconds(records, about, "adam"), "exchange": _seconds(records, about, EXCHANGE),
        "bytes": _bytes(records, about), "dot": _dots(records, about),
        "hosts": _modelled(found["modelled"], (about["modelled_ranks"], about["modelled_length"])),
    }  # fmt: skip


def figures(found: Measured) -> dict[str, object]:
    """What the sentences of the page say beside cells of its tables."""
    about = found["about"]
    return {
        "rounds": about["rounds"], "others": found["others"], "adam_ns": 1e9 * about["adam_s"],
        "hosts_ranks": about["modelled_ranks"], "hosts_length": power(about["modelled_length"]),
    }  # fmt: skip


def power(length: int) -> str:
    """`length` as a power of ten, where it is one."""
    exponent = round(math.log10(length))
    return f"10^{exponent}" if length == 10**exponent else f"{length:,}"


def in_all(record: Record) -> int:
    """The bytes that all ranks move, each counted once."""
    return int(sum(record["moved"])) // 2


def _one(records: Iterable[Record], operation: str, way: str, ranks: int, length: int) -> Record:
    return one_of(records, operation=operation, way=way, ranks=ranks, length=length)


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
