"""A message that has come."""

from __future__ import annotations

from typing import NamedTuple

from dstorm.header import Header
from dstorm.transport import Bytes


class Message(NamedTuple):
    """A whole message of a queue."""

    sender: int
    step: int
    encoding: int
    weight: float
    share: float
    payload: Bytes
    """A view, valid until the next `receive` or `look`."""


def made(sender: int, seen: Header, payload: Bytes) -> Message:
    """The message of `sender` with the header `seen`, in half the time of Message(...). Pure."""
    return tuple.__new__(Message, (sender, seen.step, seen.encoding, seen.weight, seen.share, payload))
