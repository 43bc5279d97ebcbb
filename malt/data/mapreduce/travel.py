"""Chunks on their way to the ranks that do them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from dstorm.reduction import Traffic
from malt.data.mapreduce.assignment import Travel
from malt.data.mapreduce.chunk_errors import chunk_error
from malt.files.values import Bytes, joined, pack, parted

_LIKE = np.empty(0, np.uint8)


def rounds(way: Iterable[Travel]) -> list[list[Travel]]:
    """The chunks that travel at once: one to each rank, so that few are in memory twice. Pure."""
    by_receiver: dict[int, list[Travel]] = {}
    for one in way:
        by_receiver.setdefault(one.receiver, []).append(one)
    return [[one for one in some if one is not None] for some in zip_longest(*by_receiver.values())]


def exchange(
    traffic: Traffic, ranks: Sequence[int], some: Sequence[Travel], chunk: Callable[[int], Any]
) -> list[tuple[int, Any, Any, int]]:  # fmt: skip
    """The chunks of `some` that come to this rank: number, error of the sender, chunk, bytes. Collective.

    `chunk(i)`: the data of a chunk that this rank has. RanksChanged, on all: one has failed.
    """
    mine = {one.receiver: _message(one.chunk, traffic.rank, chunk) for one in some if one.sender == traffic.rank}
    received = traffic.exchange(ranks, mine, _LIKE)
    return [
        (one.chunk, *parted(received[one.sender]), received[one.sender].nbytes)
        for one in some
        if one.receiver == traffic.rank
    ]


def _message(number: int, rank: int, chunk: Callable[[int], Any]) -> Bytes:
    try:
        return joined([pack(None), pack(chunk(number))])
    except Exception as error:  # of any type: the receiver reports it to all
        return joined([pack(chunk_error(number, rank, error)), pack(None)])
