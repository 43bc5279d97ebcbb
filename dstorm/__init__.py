"""Distributed one-sided remote memory: windows, receive queues, consistency."""

from dstorm.errors import ClosedError, DeadlinePassed, MismatchedCalls, PeerLost
from dstorm.queues.consistency import Consistency, parse
from dstorm.queues.layout import Layout
from dstorm.queues.queues import Queues
from dstorm.queues.receiving.message import Message
from dstorm.queues.sending.edge import OutgoingMessage
from dstorm.queues.slots import Slots
from dstorm.queues.statistics import EdgeStatistics, Lag, Statistics
from dstorm.transport import Transport, Window
from dstorm.transports.simulated.group import Group
from dstorm.transports.simulated.network import Network, NetworkTotals
from dstorm.transports.simulated.timed import TimedGroup
from dstorm.transports.simulated.transport import SimulatedTransport
from dstorm.transports.solo import SoloTransport

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
    "Network",
    "NetworkTotals",
    "OutgoingMessage",
    "PeerLost",
    "Queues",
    "SimulatedTransport",
    "Slots",
    "SoloTransport",
    "Statistics",
    "TimedGroup",
    "Transport",
    "Window",
    "parse",
]
