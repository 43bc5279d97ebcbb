"""Distributed one-sided remote memory: windows, receive queues, consistency."""

from dstorm.consistency import Consistency, parse
from dstorm.errors import ClosedError, DeadlinePassed, MismatchedCalls, PeerLost
from dstorm.inbox import Message
from dstorm.layout import Layout
from dstorm.outbox import Parcel
from dstorm.segment import Segment
from dstorm.simulation import Group, SimulatedTransport
from dstorm.solo import SoloTransport
from dstorm.statistics import EdgeStatistics, Lag, Statistics
from dstorm.transport import Transport, Window

__all__ = [
    "ClosedError",
    "Consistency",
    "DeadlinePassed",
    "EdgeStatistics",
    "Group",
    "Lag",
    "Layout",
    "Message",
    "MismatchedCalls",
    "Parcel",
    "PeerLost",
    "Segment",
    "SimulatedTransport",
    "SoloTransport",
    "Statistics",
    "Transport",
    "Window",
    "parse",
]
