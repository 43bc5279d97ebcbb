"""The two ends of a ring of slots. They decide which message is whole, taken or overwritten. Pure: no MPI, no clock.

The sender numbers its messages 1, 2, 3... and writes message m into slot (m - 1) mod depth, in three stages: the header
WRITING m, the payload, the header WHOLE m. Each stage is complete in the receiver's memory before the next starts.

The receiver reads the header, copies the payload, and reads the header again. It uses the copy only where it has read
the same WHOLE m twice. For a payload byte of a later message can only be copied after the WRITING header of that
message has arrived, and the second read then finds that header or a newer one.

To another host a message may come in one stage, in any order, its header with a check of the payload (`dstorm.header`).
There the copy is used only where it has that check.

Where a rank has come back, both ends of its edges go on from the same larger number, their base. No message of a former
incarnation has a larger one. So what that has left in slots, whole or torn, is never taken for a new message.
"""

from __future__ import annotations

from enum import Enum

from dstorm.header import WHOLE, Header


class SendRing:
    """The sender's end of an edge: the numbers of the newest messages sent and acknowledged."""

    __slots__ = ("base", "depth", "sent", "taken")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.begin(0)

    def begin(self, base: int) -> None:
        """Begin anew: the first message has the number base + 1."""
        self.base = self.sent = self.taken = base

    @property
    def count(self) -> int:
        """The messages sent."""
        return self.sent - self.base

    @property
    def next_slot(self) -> int:
        """The slot of the next message."""
        return self.sent % self.depth

    def acknowledged(self, number: int) -> None:
        """Note that the receiver has taken all messages up to `number`. An older or impossible number is ignored."""
        if self.taken < number <= self.sent:
            self.taken = number

    def may_send(self, in_flight: int) -> bool:
        """Return whether at most `in_flight` messages are not taken after one more is sent."""
        return self.sent < self.taken + in_flight


class SlotState(Enum):
    """The state of the slot of the awaited message, by its header."""

    NOTHING = "not published yet"
    READY = "whole: copy it, then read the header again"
    LOST = "a later message has taken its slot; another message is awaited now"
    TORN = "the header is being rewritten: read it again"


class ReceiveRing:
    """The receiver's end of an edge: the awaited message, and counts of those that came.

    Once the edge is quiet, sent = gathered + overwritten + refused + pending.
    """

    __slots__ = ("base", "capacity", "depth", "gathered", "overwritten", "refused", "taken", "torn_retries")

    def __init__(self, depth: int, capacity: int) -> None:
        self.depth = depth
        self.capacity = capacity
        self.begin(0)

    def begin(self, base: int) -> None:
        """Begin anew: the first message has the number base + 1."""
        self.base = self.taken = base
        """`taken`: the newest message that is settled: gathered, overwritten or refused."""
        self.gathered = 0
        self.overwritten = 0
        self.refused = 0
        self.torn_retries = 0

    @property
    def next_slot(self) -> int:
        """The slot of the awaited message, whose number is taken + 1."""
        return self.taken % self.depth

    def slot(self, number: int) -> int:
        """The slot of message `number`."""
        return (number - 1) % self.depth

    def look(self, seen: Header | None) -> SlotState:
        """The state of the awaited message's slot, whose header is `seen`.

        On LOST the messages that can no longer come are settled as overwritten.
        """
        if seen is None:
            return SlotState.TORN
        awaited = self.taken + 1
        if seen.number < awaited:
            return SlotState.NOTHING
        if seen.number == awaited:
            return SlotState.READY if seen.state == WHOLE else SlotState.NOTHING
        # Message k in this slot has overwritten k - depth, and the slots of older ones too; k - depth + 1 may be whole.
        self.skip(seen.number - self.depth)
        return SlotState.LOST

    def look_again(self, first: Header, second: Header | None) -> bool:
        """Return whether the copy made between reading the headers `first` and `second` is whole. Count a torn one."""
        if first == second:
            return True
        self.torn_retries += 1
        return False

    def newest(self, seen: list[Header | None]) -> Header | None:
        """The newest published message that is not settled, by the headers of all slots; None where there is none."""
        newest, number = None, self.taken
        for one in seen:
            if one is not None and one.number > number and one.state == WHOLE:
                newest, number = one, one.number
        return newest

    def is_sound(self, first: Header) -> bool:
        """Return whether a payload of the length in the header fits into the slot."""
        return 0 <= first.nbytes <= self.capacity

    def take(self, number: int) -> None:
        """Settle message `number` as gathered. Earlier messages that are not settled count as overwritten."""
        if number > self.taken + 1:
            self.skip(number - 1)
        self.taken = number
        self.gathered += 1

    def refuse(self, number: int) -> None:
        """Settle message `number` as refused. Earlier messages that are not settled count as overwritten."""
        self.skip(number - 1)
        self.taken = number
        self.refused += 1

    def refuse_taken(self) -> None:
        """Count a message that was settled as gathered as refused instead, for what it holds."""
        self.gathered -= 1
        self.refused += 1

    def skip(self, number: int) -> None:
        """Settle all messages up to `number` that are not settled as overwritten."""
        if number > self.taken:
            self.overwritten += number - self.taken
            self.taken = number

    def outstanding(self, seen: list[Header | None]) -> tuple[int, int]:
        """The counts (pending, overwritten), with the messages in the slots, of headers `seen`. Changes nothing."""
        published = max((one.number for one in seen if one is not None and one.state == WHOLE), default=0)
        unsettled = max(published - self.taken, 0)
        pending = sum(one is not None and one.state == WHOLE and one.number > self.taken for one in seen)
        return pending, self.overwritten + unsettled - pending
