"""Means of the models of ranks: over those that count, and whose numbers are finite."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dstorm import Transport
from malt.session.world.agreement import exchange


def mean(
    transport: Transport, arrays: Sequence[NDArray[np.floating]], counts: bool | None = True, check_finite: bool = True,
    else_all: bool = False,
) -> None:  # fmt: skip
    """Replace `arrays`, in place, by their means over the ranks that count. Collective.

    The result has the same bits on all ranks. `counts`: whether this rank counts; None: it is left out, whoever counts.
    Where no rank counts, all others count if `else_all`; otherwise the arrays stay as they are. `check_finite`: ranks
    whose arrays hold NaN or infinity do not count, unless that leaves none. The lowest rank names them on stderr.
    """
    finite = not check_finite or all(bool(np.isfinite(array).all()) for array in arrays)
    reports = exchange(transport, [counts if counts is None else bool(counts), finite])
    counting = [rank for rank, (counted, _) in reports.items() if counted]
    if else_all and not counting:
        counting = [rank for rank, (counted, _) in reports.items() if counted is not None]
    among = [rank for rank in counting if reports[rank][1]]
    left_out = sorted(set(counting) - set(among))
    if among and left_out and transport.rank == min(reports):
        who = ", ".join(map(str, left_out))
        print(f"malt: the model of rank {who} is not finite, and is left out of the mean", file=sys.stderr, flush=True)
    for array in arrays if counting else ():
        _mean(transport, array, among or counting)


def _mean(transport: Transport, array: NDArray[np.floating], among: Sequence[int]) -> None:
    """Replace `array` by its mean over the live ranks of `among`; over all live ranks if none is left. Collective."""
    try:
        transport.allreduce(array, weights=dict.fromkeys(among, 1.0))
    except ValueError:  # on all ranks: those of `among` have failed
        transport.allreduce(array)
