"""What all vectors share: a local replica, when and to whom it is scattered, what a gather waits for, the counters."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from dstorm import ClosedError, Layout, Message, PeerLost, Segment, Statistics, Transport
from dstorm.membership import children
from dstorm.queues.consistency import Consistency
from dstorm.turn import Turn
from vol import arguments
from vol.graphs.graph import Graph
from vol.merge import AVG, BUILT_IN, PUSH_SUM, GatherFunction, UserFunction
from vol.topology import Neighbours, Topology
from vol.update import Array

_AnyVector = TypeVar("_AnyVector", bound="Vector")


@dataclass(frozen=True)
class Gathered:
    """What one gather merged; truthy when it merged anything."""

    senders: tuple[int, ...] = ()
    """The sender of each update, ascending."""
    steps: tuple[int, ...] = ()
    """The step of each update, in the order of `senders`."""
    lag: int = 0
    """How many steps the oldest of them is behind this rank."""

    @property
    def count(self) -> int:
        """Updates merged."""
        return len(self.senders)

    def __bool__(self) -> bool:
        return bool(self.senders)


class Vector(ABC):
    """This rank's replica of a vector, and the way to those of its peers.

    Collective: every rank makes it with an array of the same shape and dtype, the same graph, consistency, depth and
    slot. `array` becomes the replica itself, not a copy: C-contiguous, writable, of a numeric dtype. `slot_nbytes`:
    the longest payload.
    """

    kind: str
    disowned = False
    """Whether it belongs to the rank that this process was forked from."""

    def __init__(
        self, array: Array, transport: Transport, graph: Graph, consistency: Consistency, slot_nbytes: int, *,
        depth: int = 2, deadline_s: float = 300.0, check_finite: bool = False, name: str = "vector",
    ) -> None:  # fmt: skip
        self.name = name
        self._array = array
        self._bytes = array.reshape(-1).view(np.uint8)
        self._transport = transport
        self._rank = transport.rank
        self._consistency = consistency
        self._check_finite = check_finite and array.dtype.kind == "f"
        self._step = 0
        self._weight = 1.0
        self._mass = 1.0
        self._gathered_at = 0
        view = transport.view
        self._topology = Topology(graph, view, self._rank, self._mend)
        layout = Layout(
            into=view.reachable(graph.sources),
            out=view.reachable(graph.targets),
            depth=depth,
            capacity=slot_nbytes,
        )
        self._peers = layout.out(self._rank)
        """All that this rank may ever send to."""
        transport.connect(sorted({*self._peers, *layout.into(self._rank)}))
        self._segment = Segment(transport, layout, consistency, deadline_s)
        self._turn = self._segment.turn.lock
        self._final: Statistics | None = None

    @property
    def array(self) -> Array:
        """The local replica: read and write it in place, at any time. A view of what the vector was made with."""
        return self._array

    @array.setter
    def array(self, value: Array) -> None:
        if value is not self._array:  # v.array += 1 changes it in place, and then assigns it to itself
            raise AttributeError(f"{self.name}: write into it, as in v.array[:] = values; it cannot be exchanged")

    @property
    def step(self) -> int:
        """How often this rank has scattered."""
        return self._step

    @property
    def in_degree(self) -> int:
        """How many in-neighbours may have sent to this rank by its step."""
        return len(self._topology.seen.into(max(self._step, 1)))

    @property
    def closed(self) -> bool:
        """Whether this rank has closed the vector."""
        return self._segment.closed

    def scatter(self, rows: Any = None, *, to: int | Iterable[int] | None = None, weight: float = 1.0) -> int:
        """Write updates into the memory of this step's out-neighbours; the payload bytes sent. One-sided.

        A dense vector sends the whole array. A sparse one sends `rows` (whole numbers in any order, or a mask of all
        rows), by default those that changed and have not been sent to that peer; none at all: only the step.
        `to`: only these out-neighbours, a rank or several (none at all: only the step is published). `weight`: of the
        message, for malt.WEIGHTED. `array` is free at once. Waits only under "bsp" and "notify-ack".

        ValueError, TypeError: an argument; more rows than the capacity; ClosedError; PeerLost: a rank that `to` names
        has died; DeadlinePassed: a receiver has not taken what came before. Nothing has been sent then, the step is as
        before, and no row counts as sent. RuntimeError: another thread is in a scatter or gather of this vector; the
        same holds.
        """
        if not self._turn.acquire(False):
            self._segment.turn.insist(f"{self.name}.scatter")
        try:
            if self._segment.closed:
                self._check_open()
            self._transport.poll_failures()  # users' callbacks may raise: nothing has been sent yet
            if type(weight) is not float or not 0 <= weight < math.inf:
                weight = _checked_weight(self.name, weight)
            step = self._step + 1
            peers: Sequence[int] = self._topology.outs(step)
            if to is not None:
                peers = self._chosen(to, peers)
            while True:
                try:
                    sent = self._send(peers, rows, step, weight)
                    break
                except PeerLost:  # while it was waited for
                    if to is not None:
                        raise
                    peers = self._topology.outs(step)
            self._step = step
            self._weight = weight
            return sent
        finally:
            self._turn.release()

    def gather(self, function: GatherFunction | UserFunction = AVG, *, timeout_s: float | None = None) -> Gathered:
        """Merge into `array` what has arrived; what was merged. Local, but for the waits of "ssp" and "bsp".

        `function`: malt.AVG, SUM, REPLACE, WEIGHTED, PUSH_SUM, or f(own, updates) -> array or None (own was changed in
        place), called with private copies, and not at all where nothing came. On a sparse vector all merge row by row.
        PUSH_SUM is biased by what is overwritten: never under "notify-ack"; not under "bsp" if a gather follows every
        scatter; under "asp" and "ssp:S" where statistics().overwritten is above 0 on some rank.

        TypeError, ValueError: an argument, nothing was gathered; or what f returned: `array` is as before, and the
        updates count as gathered, as also where f raises. ClosedError. DeadlinePassed: nothing was gathered; nor where
        RuntimeError says that another thread is in a scatter or gather of this vector.
        """
        if not self._turn.acquire(False):
            self._segment.turn.insist(f"{self.name}.gather")
        try:
            return self._gather(function, timeout_s)
        finally:
            self._turn.release()

    def _gather(self, function: GatherFunction | UserFunction, timeout_s: float | None) -> Gathered:
        self._check_open()
        self._transport.poll_failures()
        self._topology.follow()
        self._check_function(function)
        timeout_s = arguments.timeout(self.name, timeout_s)
        lockstep = self._consistency.lockstep
        if lockstep and self._gathered_at == self._step:
            return Gathered()
        messages = self._collect(function, timeout_s)
        self._gathered_at = self._step
        # Mass goes with every message; it means something only where all that arrives is merged by PUSH_SUM.
        self._mass = self._mass + sum(one.share for one in messages) if function is PUSH_SUM else 1.0
        if not messages:
            return Gathered()
        steps = tuple(message.step for message in messages)
        return Gathered(tuple(message.sender for message in messages), steps, self._step - min(steps))

    def statistics(self) -> Statistics:
        """Totals of this rank's traffic; after close, as they were then. Their `peers` are the neighbours of this rank,
        and whoever was one and had anything from it, or sent it anything. Local; at any time, from any thread."""
        if self.disowned and self._final is None:
            self._check_open()
        return self._final if self._final is not None else self._statistics()

    def barrier(self) -> None:
        """Return when all ranks have called it. Collective. ClosedError; DeadlinePassed: who is missing."""
        self._check_open()
        self._transport.barrier(f"{self.name}.barrier")

    def close(self) -> None:
        """Leave: nobody waits for this rank on this vector any more, nobody sends to it; what it sent can still be
        gathered. One-sided; a second call does nothing. `array` stays usable. At any time, from any thread: a scatter
        or gather of another is over first, and where it waits raises ClosedError."""
        if self._final is None and not self.disowned:
            self._segment.close()
            with self._turn:
                self._final = self._final or self._statistics()

    def disown(self, disowned: bool) -> None:
        """In a forked process, which has no other thread: whether the vector is the parent's, and closed. Local."""
        self._segment.turn = Turn()
        self._turn = self._segment.turn.lock
        self.disowned = disowned
        self._segment.closed |= disowned

    def free(self) -> None:
        """Give the window back. Collective, once all ranks have closed."""
        self._segment.free()

    def __enter__(self: _AnyVector) -> _AnyVector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<{self.name}: {self.kind} {self._array.dtype} {self._array.shape}, graph {self._topology.graph.name}, "
            f"sync {self._consistency.name}, step {self._step}{', closed' if self.closed else ''}>"
        )

    # -- private ----------------------------------------------------------------------------------------------

    def _mend(self, before: Neighbours) -> None:
        """The neighbours, until now `before`, are others: called within a scatter or gather."""
        return

    def _statistics(self) -> Statistics:
        neighbours = self._topology.peek()
        return self._segment.statistics({*neighbours.targets, *neighbours.sources})

    def _sources(self) -> Sequence[int]:
        """Whom a gather at this step may wait for: under lockstep, those whose message goes along this step's edges."""
        if self._consistency.lockstep:
            return self._topology.ins(max(self._step, 1))
        return self._topology.now.sources

    def _chosen(self, to: int | Iterable[int], peers: Sequence[int]) -> list[int]:
        wanted = [to] if isinstance(to, (int, np.integer)) else to
        try:
            chosen = sorted({arguments.integer(peer) for peer in wanted})
        except TypeError:
            raise TypeError(f"{self.name}: to must be a rank or a list of ranks, got {to!r}") from None
        self._transport.view.check_alive(chosen, f"{self.name} cannot scatter to it")
        strangers = [peer for peer in chosen if peer not in peers]
        if strangers:
            raise ValueError(
                f"{self.name}: rank {self._rank} cannot scatter to {strangers}: its out-neighbours at step "
                f"{self._step + 1} are {list(peers)}"
            )
        return chosen

    @abstractmethod
    def _send(self, peers: Sequence[int], rows: Any, step: int, weight: float) -> int:
        """Send what a scatter to `peers` sends; the payload bytes."""

    def _collect(self, function: GatherFunction | UserFunction, timeout_s: float | None) -> Sequence[Message]:
        """Wait where that is due, take what has arrived and merge it; what it was."""
        received = self._segment.receive(self._sources, newest=self._wants_newest(function), timeout_s=timeout_s)
        self._gathered_at = self._step
        messages, contents = [], []
        try:
            for message in received:
                content = self._decode(message)
                if content is None:
                    self._segment.refuse(message)
                else:
                    messages.append(message)
                    contents.append(content)
            if messages:
                self._merge(function, messages, contents)
        finally:
            self._segment.acknowledge()
        return messages

    @abstractmethod
    def _decode(self, message: Message) -> Any:
        """What a message holds; None: it is not sound. Sizes, encodings and row numbers are anything until then."""

    @abstractmethod
    def _merge(
        self, function: GatherFunction | UserFunction, messages: Sequence[Message], contents: Sequence[Any]
    ) -> None:  # fmt: skip
        """Merge at least one message, of which `contents` are what `_decode` found."""

    def _wants_newest(self, function: GatherFunction | UserFunction) -> bool:
        """Whether only the newest waiting message of each sender is to be merged."""
        return isinstance(function, GatherFunction) and function.newest

    def _check_open(self) -> None:
        if self._segment.closed:
            raise ClosedError(f"{self.name}: {children.refusal()}" if self.disowned else f"{self.name} is closed")

    def _check_function(self, function: Any) -> None:
        if isinstance(function, GatherFunction):
            if function.floating and self._array.dtype.kind != "f":
                kind = self._array.dtype
                raise TypeError(f"{self.name}: {function} needs a floating-point vector, this one is {kind}")
        elif not callable(function):
            names = ", ".join(map(repr, BUILT_IN))
            raise TypeError(f"{self.name}: gather takes {names} or a function f(own, updates), got {function!r}")


def _checked_weight(name: str, weight: Any) -> float:
    number = arguments.real(f"{name}: weight", weight)
    if not 0 <= number < math.inf:
        raise ValueError(f"{name}: weight must be finite and not negative, got {weight!r}")
    return number
