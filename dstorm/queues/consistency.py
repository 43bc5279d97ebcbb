"""The consistency modes: how long a gather or a scatter waits for its peers. Pure: no MPI, no clock.

asp         no call waits
ssp:S       a gather at step t waits until all in-neighbours have reached step t - S
bsp         a gather at step t waits for step t of its in-neighbours, and merges the messages of that step alone; a
            scatter waits until the slot that it reuses has been taken
notify-ack  a scatter waits until its receivers have taken the previous message
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dstorm.words import shown

VALID = '"asp", "ssp:S" with S = 0, 1, 2..., "bsp", "notify-ack"'


@dataclass(frozen=True)
class Consistency:
    """The waiting rules of one mode."""

    name: str
    staleness: int | None = None
    """The most steps that an in-neighbour may be behind at a gather; None: no limit."""
    lockstep: bool = False
    """Whether a gather merges the messages of its own step alone."""
    in_flight: int | None = None
    """The most messages of an edge that are sent and not taken; None: no limit; 0: as many as there are slots."""

    @cached_property
    def acknowledges(self) -> bool:
        """True if receivers acknowledge the messages that they have taken, so that no slot in use is overwritten."""
        return self.in_flight is not None

    @property
    def is_stepwise(self) -> bool:
        """True if gathers wait for steps of other ranks."""
        return self.staleness is not None

    @cached_property
    def waits(self) -> bool:
        """True if gathers or scatters ever wait."""
        return self.acknowledges or self.is_stepwise

    def unacknowledged(self, depth: int) -> int:
        """The most unacknowledged messages of an edge with `depth` slots, where receivers acknowledge."""
        return self.in_flight or depth

    def awaited_step(self, step: int) -> int:
        """The step that all in-neighbours must have reached before a gather at `step` returns; 0: it does not wait."""
        return 0 if self.staleness is None else max(step - self.staleness, 0)


ASP = Consistency("asp")
BSP = Consistency("bsp", staleness=0, lockstep=True, in_flight=0)
NOTIFY_ACK = Consistency("notify-ack", in_flight=1)
FLOW = Consistency("flow", in_flight=0)
"""Not for users: a send waits until a slot is free, and no receive waits. Every message is taken, in order."""


def parse(sync: str) -> Consistency:
    """The consistency that `sync` names. Local.

    ValueError lists the valid names. TypeError: `sync` is not a string.
    """
    if not isinstance(sync, str):
        raise TypeError(f"sync must be a string, one of {VALID}; got {shown(sync)}")
    fixed = {mode.name: mode for mode in (ASP, BSP, NOTIFY_ACK)}
    if sync in fixed:
        return fixed[sync]
    kind, _, bound = sync.partition(":")
    if kind == "ssp" and bound.isascii() and bound.isdigit():
        return Consistency(f"ssp:{int(bound)}", staleness=int(bound))
    raise ValueError(f"sync {sync!r} is not valid: use {VALID}")
