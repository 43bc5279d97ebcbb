"""The two ends of a ring of slots: which slot, whole or torn, taken or lost. Pure: no MPI, no clock.

The sender numbers its messages 1, 2, 3... and writes number m into slot (m - 1) mod depth in three stages, each
complete in the receiver's memory before the next starts: the slot's stamp says WRITING m, the payload, the stamp
says WHOLE m. The receiver looks at the stamp, copies, looks again, and uses the copy only where both looks saw the
same WHOLE m: a payload byte of a later message can only have been copied after the mark of that message arrived,
and the second look then sees that mark or something newer.
"""

from __future__ import annotations

from enum import Enum

from dstorm.header import WHOLE, Header


class SendRing:
    """The sender's end of an edge: numbers given out, and taken as far as the receiver has said."""

    __slots__ = ("depth", "sent", "taken")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.sent = 0
        self.taken = 0

    @property
    def next_slot(self) -> int:
        """The slot of the next message."""
        return self.sent % self.depth

    def acknowledged(self, number: int) -> None:
        """Note that the receiver has taken all up to `number`; an older word, or an impossible one, is ignored."""
        if self.taken < number <= self.sent:
            self.taken = number

    def may_send(self, in_flight: int) -> bool:
        """Whether one more message leaves at most `in_flight` that are not taken."""
        return self.sent < self.taken + in_flight


class Decision(Enum):
    """What the first look at the awaited message's slot says."""

    NOTHING = "not published yet"
    READY = "whole: copy it, then look again"
    LOST = "a later message took its slot; what is awaited has moved on"
    TORN = "the stamp is being rewritten: look again"


class ReceiveRing:
    """The receiver's end of an edge: what is awaited, and the account of what came.

    Once the edge is quiet, sent = gathered + overwritten + refused + pending.
    """

    __slots__ = ("capacity", "depth", "gathered", "overwritten", "refused", "taken", "torn_retries")

    def __init__(self, depth: int, capacity: int) -> None:
        self.depth = depth
        self.capacity = capacity
        self.taken = 0
        """The newest number that is settled: gathered, overwritten or refused."""
        self.gathered = 0
        self.overwritten = 0
        self.refused = 0
        self.torn_retries = 0

    @property
    def next_slot(self) -> int:
        """The slot of the awaited message, number taken + 1."""
        return self.taken % self.depth

    def look(self, seen: Header | None) -> Decision:
        """Judge the stamp of the awaited message's slot; LOST settles what can no longer come."""
        if seen is None:
            return Decision.TORN
        awaited = self.taken + 1
        if seen.number < awaited:
            return Decision.NOTHING
        if seen.number == awaited:
            return Decision.READY if seen.state == WHOLE else Decision.NOTHING
        # Message k in this slot means that k - depth and all before it are gone; k - depth + 1 may still be whole.
        self._lose_up_to(seen.number - self.depth)
        return Decision.LOST

    def look_again(self, first: Header, second: Header | None) -> bool:
        """Whether what was copied between two looks is the whole message; a failure is counted."""
        if first == second:
            return True
        self.torn_retries += 1
        return False

    def newest(self, seen: list[Header | None]) -> Header | None:
        """The newest whole message not yet settled among the stamps of all slots, or None."""
        waiting = [one for one in seen if one is not None and one.state == WHOLE and one.number > self.taken]
        return max(waiting, default=None)

    def is_sound(self, first: Header) -> bool:
        """Whether a payload of the length that the stamp gives fits the slot."""
        return 0 <= first.nbytes <= self.capacity

    def take(self, number: int) -> None:
        """Settle message `number` as gathered; those before it that were never merged count as overwritten."""
        self._lose_up_to(number - 1)
        self.taken = number
        self.gathered += 1

    def refuse(self, number: int) -> None:
        """Settle message `number` as refused: taken out of the queue, and not merged."""
        self._lose_up_to(number - 1)
        self.taken = number
        self.refused += 1

    def refuse_taken(self) -> None:
        """A message that was taken is refused after all, by what it holds."""
        self.gathered -= 1
        self.refused += 1

    def skip(self, number: int) -> None:
        """Settle everything up to `number` as overwritten: superseded before it was merged."""
        self._lose_up_to(number)

    def outstanding(self, seen: list[Header | None]) -> tuple[int, int]:
        """(pending, overwritten so far), counting what the stamps of all slots show. Changes nothing."""
        published = max((one.number for one in seen if one is not None and one.state == WHOLE), default=0)
        unsettled = max(published - self.taken, 0)
        pending = sum(one is not None and one.state == WHOLE and one.number > self.taken for one in seen)
        return pending, self.overwritten + unsettled - pending

    def _lose_up_to(self, number: int) -> None:
        if number > self.taken:
            self.overwritten += number - self.taken
            self.taken = number
