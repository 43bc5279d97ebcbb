"""Collectives around a training: gather values, work on the lowest rank, average the models, compare their hashes."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import malt
from apps.harness.errors import user_errors

Array = np.ndarray[Any, Any]


def keeps_snapshots() -> bool:
    """Whether this rank may be the one that measures in the end. Every rank may be, where ranks may fail. Local."""
    return malt.init().may_be_lowest


def print_once(text: str) -> None:
    """Print `text` on the lowest live rank. A rank that comes back prints once the others have admitted it. Local."""
    if malt.lowest() and not malt.init().is_outside:
        print(text, flush=True)


def by_rank(value: Any) -> dict[int, Any]:
    """The `value` of each live rank, by rank, ascending. A value is anything that JSON can represent. Collective.

    A rank that comes back has its own alone until the others have admitted it: they have made these calls before.
    """
    if malt.init().is_outside:
        return {malt.rank(): value}
    return {rank: reports[0] for rank, reports in enumerate(malt.allgather([value])) if reports is not None}


def of_lowest(value: Any) -> Any:
    """The `value` of the lowest live rank. Collective."""
    return next(iter(by_rank(value).values()))


def on_lowest_rank(work: Callable[[], object], came_late: bool = False) -> None:
    """Call work() on the lowest live rank, while the others wait. If it fails, the next one calls it. Collective.

    Ranks that `came_late`, and lack what was before, are asked last.

    BadInput, on all ranks: a file cannot be written, or a number to report is not finite.
    """
    with user_errors():
        while True:
            one = min((late, rank) for rank, late in by_rank(came_late).items())[1]
            malt.together(work if malt.rank() == one else lambda: None)
            if one in by_rank(None):
                return


def same_start(arrays: Sequence[Array]) -> None:
    """Replace `arrays`, in place, by those of the lowest live rank. Collective.

    A rank that comes back keeps its own, until the others have admitted it.
    """
    for array in arrays:
        is_there = malt.init().is_outside
        while not is_there:
            root = min(by_rank(None))
            try:
                malt.broadcast(array, root)
                is_there = True
            except malt.PeerLost:
                continue


def common_mean(arrays: Sequence[Array], counts: bool = True, else_all: bool = False) -> None:
    """Replace `arrays`, in place, by their means over the ranks that count: the same bits on all ranks. Collective.

    `counts` says whether this rank counts. If no rank counts, all ranks do with `else_all`; without it the arrays stay
    as they are. Ranks whose arrays hold NaN or infinity are left out, unless all do. The lowest rank names them on
    stderr.
    """
    is_finite = all(bool(np.isfinite(array).all()) for array in arrays)
    reports = by_rank([bool(counts), is_finite])
    counting = [rank for rank, (counted, _) in reports.items() if counted]
    if else_all and not counting:
        counting = list(reports)
    among = [rank for rank in counting if reports[rank][1]]
    left_out = sorted(set(counting) - set(among))
    if among and left_out and malt.rank() == min(reports):
        who = ", ".join(map(str, left_out))
        print(f"malt: the model of rank {who} is not finite, and left out of the mean", file=sys.stderr, flush=True)
    for array in arrays if counting else ():
        _mean(array, malt.rank() in (among or counting))


def _mean(array: Array, counts: bool) -> None:
    try:
        malt.allreduce(array, weight=float(counts))
    except ValueError:  # raised on all ranks alike: those that counted have failed
        malt.allreduce(array)


def common_hash(arrays: Sequence[Array]) -> str:
    """The SHA-256 of the final model. Prints that of every rank. Collective. RuntimeError: they differ."""
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    digests = by_rank(digest)
    print_once("\n".join(f"model on rank {rank}: {text}" for rank, text in digests.items()))
    if len(set(digests.values())) > 1:
        raise RuntimeError("the ranks ended with different models")
    return digest
