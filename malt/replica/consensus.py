"""The model that all ranks end with: the mean of theirs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dstorm import Transport
from malt.world.agreement import exchange


def mean(
    transport: Transport, arrays: Sequence[NDArray[np.floating]], counts: bool = True, check_finite: bool = True,
    else_all: bool = False,
) -> None:  # fmt: skip
    """Replace `arrays` by their means over the ranks that count, the same bits on all. Collective.

    `counts`: whether this rank does; where none does, all do if `else_all`, else arrays stay as they are.
    `check_finite`: only those whose arrays are finite throughout count, unless there are none; the lowest rank says on
    stderr whom that leaves out.
    """
    finite = not check_finite or all(bool(np.isfinite(array).all()) for array in arrays)
    reports = exchange(transport, [bool(counts), finite])
    counting = [rank for rank, (counted, _) in reports.items() if counted]
    if else_all and not counting:
        counting = list(reports)
    among = [rank for rank in counting if reports[rank][1]]
    left_out = sorted(set(counting) - set(among))
    if among and left_out and transport.rank == min(reports):
        who = ", ".join(map(str, left_out))
        print(f"malt: the model of rank {who} is not finite, and left out of the mean", file=sys.stderr, flush=True)
    for array in arrays if counting else ():
        _mean(transport, array, among or counting)


def _mean(transport: Transport, array: NDArray[np.floating], among: Sequence[int]) -> None:
    """Replace `array` by the mean over the living `among` these, or over all who live if there are none. Collective."""
    try:
        transport.allreduce(array, weights=dict.fromkeys(among, 1.0))
    except ValueError:  # on all ranks: those who counted have failed
        transport.allreduce(array)
