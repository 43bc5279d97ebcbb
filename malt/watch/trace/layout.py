"""The layout of the file of one rank. Pure.

A header; a table of names; totals by peer, of the records that are overwritten; and a ring of records, which holds the
newest. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from dstorm.trace import EdgeTotals

MAGIC = b"MALTRACE"
VERSION = 3
_MOST_RECORDS, _MOST_OF_ALL, _FEWEST = 1 << 18, 1 << 22, 1 << 12
"""The records of a rank's file, 8 MiB; of all files of a job; those that a rank has at least."""

HEADER = struct.Struct("<8sIIIIQQII4dQ")
"""MAGIC, VERSION, rank, ranks, 0, records that fit, records written so far, names so far, process; when the session
began, by the clock of the rank, and since 1970; what to subtract from that clock for that of the lowest rank, and the
error of that: in seconds; the number of the first record that the totals do not count."""
COUNT_AT, NAMES_AT, CLOCKS_AT, SINCE_AT = 32, 40, 48, 80
"""The offsets of the records so far, the names so far, the four numbers of the clocks, and the last number."""

NAMES, NAME_NBYTES = 256, 160
"""The most names, and the longest, in UTF-8. What does not fit has the last number."""
_NAMES_START = 128

HOST = "host "
"""The beginning of the name that is the host of the rank, where there are several."""
INTERVAL = "interval "
"""The beginning of the name that is the interval of a Replica at its end, as "auto" chose it, and its name."""
LAUNCHED, TRAINS = "launched ", "trains "
"""The beginnings of the names that say when the launcher began, and the training of the rank, by the clock of the rank.
Names stay where records are overwritten."""

TOTALS = ("messages", "nbytes", "merged", "overwritten", "waited_s", "nbytes_read")
"""What is counted by peer, each as a float64: sent to it; merged and overwritten of it; waited for it; read from it."""

FIELDS = "dfIIIq"
RECORD = struct.Struct(f"<{FIELDS}")
"""When it began, its seconds, its `code`, name, step, value. As DTYPE has it code and name are several numbers."""
DTYPE = np.dtype(
    [("start", "<f8"), ("seconds", "<f4"), ("kind", "u1"), ("thread", "u1"), ("peer", "<i2"), ("name", "<u2"),
     ("messages", "<u2"), ("step", "<u4"), ("value", "<i8")]
)  # fmt: skip


class Kind(IntEnum):
    """The subject of a record."""

    SCATTER = 1
    """value: bytes of all its messages. peer: the receiver of its only message, which has no record of its own."""
    SENT = 2
    """A message. peer: the receiver; value: bytes."""
    GATHER = 3
    """value: how many messages it merged. peer: the sender of the only one, which has no record of its own, and was as
    many steps behind as `messages` says, a number of 16 bits with a sign."""
    MERGED = 4
    """A message that was merged. peer: the sender; step: the message's; value: how many steps it was behind."""
    OVERWRITTEN = 5
    """peer: the sender; value: how many of its messages a gather found to be overwritten."""
    WAIT = 6
    """A wait, in the call `name`."""
    WAITED = 7
    """The part of the last wait that was for one peer."""
    YIELD = 8
    """The core was yielded to peers that are behind."""
    CALL = 9
    """A collective call, or a call of a sharded vector."""
    FAILED = 10
    """peer: the rank that was seen to have failed."""


def capacity(ranks: int) -> int:
    """The records that a file has, in a job of so many ranks."""
    return max(_FEWEST, min(_MOST_RECORDS, _MOST_OF_ALL // ranks))


def code(kind: Kind, peer: int = -1) -> int:
    """Kind and peer of a record of the first thread, as one number."""
    return kind | (peer & 0xFFFF) << 16


def expanded(records: NDArray[np.void]) -> NDArray[np.void]:
    """The records, with one for each message."""
    kinds, is_only = records["kind"], records["peer"] >= 0
    scatters, gathers = records[(kinds == Kind.SCATTER) & is_only], records[(kinds == Kind.GATHER) & is_only]
    behind = gathers["messages"].astype(np.int16)
    sent, merged = _messages(scatters, Kind.SENT), _messages(gathers, Kind.MERGED)
    merged["step"] -= behind.astype(np.uint32)
    merged["value"] = behind
    return np.concatenate([records, sent, merged])


def _messages(calls: NDArray[np.void], kind: Kind) -> NDArray[np.void]:
    """A record for a message of each call, of the same peer and value, at its end."""
    made = calls.copy()
    made["start"] += made["seconds"]
    made["seconds"], made["kind"] = 0, kind
    return made


def totals(records: NDArray[np.void], ranks: int) -> NDArray[np.float64]:
    """Return the totals of records, `expanded`, by peer, of shape (ranks, TOTALS)."""
    found = np.zeros((ranks, len(TOTALS)))
    places = {Kind.SENT: 0, Kind.MERGED: 2, Kind.OVERWRITTEN: 3, Kind.WAITED: 4}
    for kind, place in places.items():
        mine = records[(records["kind"] == kind) & (records["peer"] >= 0) & (records["peer"] < ranks)]
        weights = {Kind.OVERWRITTEN: mine["value"], Kind.WAITED: mine["seconds"]}.get(kind)
        found[:, place] = np.bincount(mine["peer"], weights, ranks)
        if kind == Kind.SENT:
            found[:, 1] = np.bincount(mine["peer"], mine["value"], ranks)
    return found


def settled(edge: EdgeTotals) -> tuple[float, ...]:
    """A row of TOTALS, of what no record counts."""
    return edge.messages, edge.nbytes, edge.merged, edge.overwritten, 0.0, edge.nbytes_read


def totals_at(ranks: int) -> tuple[int, int]:
    """The offset of the totals, and their length, in a file of a job of so many ranks."""
    return _NAMES_START + NAMES * NAME_NBYTES, ranks * len(TOTALS) * 8


def name_at(number: int) -> int:
    """The offset of a name."""
    return _NAMES_START + number * NAME_NBYTES


def records_at(ranks: int) -> int:
    """The offset of the ring."""
    start, nbytes = totals_at(ranks)
    return -(-(start + nbytes) // 4096) * 4096
