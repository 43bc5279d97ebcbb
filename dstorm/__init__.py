"""Distributed one-sided remote memory: windows, receive queues, consistency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstorm.lazy_imports import at_first_use

if TYPE_CHECKING:
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

_LATER = {
    **dict.fromkeys(("ClosedError", "DeadlinePassed", "MismatchedCalls", "PeerLost"), "dstorm.errors"),
    **dict.fromkeys(("Consistency", "parse"), "dstorm.queues.consistency"),
    "Layout": "dstorm.queues.layout",
    "Queues": "dstorm.queues.queues",
    "Message": "dstorm.queues.receiving.message",
    "OutgoingMessage": "dstorm.queues.sending.edge",
    "Slots": "dstorm.queues.slots",
    **dict.fromkeys(("EdgeStatistics", "Lag", "Statistics"), "dstorm.queues.statistics"),
    **dict.fromkeys(("Transport", "Window"), "dstorm.transport"),
    "Group": "dstorm.transports.simulated.group",
    **dict.fromkeys(("Network", "NetworkTotals"), "dstorm.transports.simulated.network"),
    "TimedGroup": "dstorm.transports.simulated.timed",
    "SimulatedTransport": "dstorm.transports.simulated.transport",
    "SoloTransport": "dstorm.transports.solo",
}
"""Names that are imported at their first use, and the modules that define them. The launcher uses none."""

__getattr__, __dir__ = at_first_use(__name__, _LATER)
