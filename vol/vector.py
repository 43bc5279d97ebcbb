"""The base of all vectors: the local replica, steps, the peers of a scatter, the waits of a gather, counters, close."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from dstorm import Layout, Message, PeerLost, Queues, Statistics, Transport
from dstorm.queues.calls.compiled import CompiledCalls
from dstorm.queues.consistency import Consistency
from dstorm.waits import interruption
from vol import arguments
from vol.graphs.graph import Graph
from vol.graphs.topology import Neighbours, Topology
from vol.merging.functions import check_function, counts_examples
from vol.merging.merge import AVG, MEAN, PUSH_SUM, SUM, GatherFunction, UserFunction
from vol.merging.since_last_gather import Scattered, Trained
from vol.returns.packing import ARRAY, Values
from vol.returns.returning import BESIDE, Returning
from vol.shared import Shared
from vol.update import Array, Gathered, Update


class Vector(Shared):
    """This rank's replica of a vector, and its exchange with the replicas of other ranks. Collective.

    All ranks pass an array of the same shape and dtype, the same graph, consistency, depth and slot size. `array` is
    C-contiguous, writable and of a numeric dtype. It becomes the replica itself, not a copy. `slot_nbytes` is the size
    of the longest payload.
    """

    kind: str
    given: Values | None = None
    """What the others gave where this rank has come back. None: it has not, or they have closed the vector."""

    def __init__(
        self, array: Array, transport: Transport, graph: Graph, consistency: Consistency, slot_nbytes: int, *,
        depth: int = 2, deadline_s: float = 300.0, check_finite: bool = False, name: str = "vector",
    ) -> None:  # fmt: skip
        self._array = array
        self._bytes = array.reshape(-1).view(np.uint8)
        self._transport = transport
        self._rank = transport.rank
        self._consistency = consistency
        self._check_finite = check_finite and array.dtype.kind == "f"
        self._step = 0
        self._begun = 0
        """The step of the scatter under way, or of the last one: no newcomer takes part in it."""
        self._weight = 1.0
        self._mass = 1.0
        self._trained = Trained()
        self._scattered = Scattered()
        self._gathered_at = 0
        self._function: GatherFunction | UserFunction | None = None
        """The function of the last gather, which needs no second check."""
        self._compiled: CompiledCalls | None = None
        """What does a usual scatter or gather in one call, until the neighbours change."""
        view = transport.view
        self._returning: Returning | None = None
        """The ranks that come back. None: none may."""
        self._topology = Topology(graph, view, self._rank, self._mend, self._absent)
        layout = Layout(
            into=cache(view.reachable(graph.sources)),  # it is asked several times for each edge
            out=cache(view.reachable(graph.targets)),
            depth=depth,
            capacity=slot_nbytes,
        )
        self._peers = layout.out(self._rank)
        """All ranks to which this one may ever send."""
        transport.connect(sorted({*self._peers, *layout.into(self._rank)}))
        self._queues = Queues(transport, layout, consistency, deadline_s)
        self._call_lock = self._queues.call_lock.lock
        super().__init__(name, self._queues)

    @property
    def array(self) -> Array:
        """The local replica: the array that the vector was made with, not a copy. Read and write it in place at any
        time."""
        return self._array

    @array.setter
    def array(self, value: Array) -> None:
        if value is not self._array:  # v.array += 1 changes it in place, and then assigns it to itself
            raise AttributeError(f"{self.name}: write into it, as in v.array[:] = values; it cannot be exchanged")

    @property
    def step(self) -> int:
        """The number of scatters of this rank."""
        return self._step

    @property
    def steps_of_all_jobs(self) -> int:
        """The number of scatters, with those that `begin_after` was given."""
        return self._topology.done + self._step

    @property
    def in_degree(self) -> int:
        """The number of in-neighbours at the present step; before the first scatter those of step 1."""
        return len(self._topology.seen.into(max(self._step, 1)))

    @property
    def is_weighted(self) -> bool:
        """True if AVG weighs messages, as the graph does at some steps."""
        return self._consistency.lockstep and self._topology.graph.shares is not None

    @property
    def sources(self) -> tuple[int, ...]:
        """The in-neighbours of any step, ascending."""
        return self._topology.seen.sources

    def scatter(self, rows: Any = None, *, to: int | Iterable[int] | None = None, weight: float = 1.0) -> int:
        """Write an update into the memory of each out-neighbour of this step; return the payload bytes sent. One-sided.

        A dense vector sends the whole array. A sparse vector sends `rows`: integers in any order, or a mask of all
        rows. By default it sends to each peer the rows that changed and have not been sent to it. Without rows or peers
        the scatter only publishes the step.

        `to`: a rank, or several, among the out-neighbours; by default all of them. `weight`: the weight of the message
        for malt.WEIGHTED; for malt.TRAINED the count of all examples of this rank. The caller may change `array` as
        soon as the call returns. A scatter waits only under "bsp" and "notify-ack". Otherwise messages to other hosts
        are sent while this rank continues; collective calls wait until they have arrived.

        ValueError, TypeError: a bad argument, or more rows than the capacity. ClosedError: the vector is closed.
        PeerLost: a rank in `to` has failed. DeadlinePassed: a receiver has not taken the earlier messages.
        RuntimeError: another thread is in a scatter or gather of this vector. After each of these errors nothing has
        been sent, the step is unchanged, and no row counts as sent.
        """
        try:
            return self._scatter(rows, to, weight)
        finally:
            if interruption.pending is not None:
                interruption.raise_pending()

    @interruption.undivided
    def _scatter(self, rows: Any, to: int | Iterable[int] | None, weight: float) -> int:
        """Scatter; an error of a signal handler stays pending. One-sided."""
        if not self._call_lock.acquire(False):
            self._queues.call_lock.insist(f"{self.name}.scatter")
        try:
            if self._queues.closed:
                self._check_open()
            self._transport.poll_failures()  # first, as the callbacks of users may raise: nothing has been sent yet
            if (returning := self._returning) is not None:  # a callback may have freed it
                returning.before_exchange()
            step = self._begun = self._step + 1
            if type(weight) is not float or not 0 <= weight < math.inf:
                weight = arguments.weight(self.name, weight)
            self._topology.follow()
            if self._queues.closed:  # by a callback
                self._check_open()
            if self._compiled is not None and rows is None and to is None:
                done = self._compiled.send(step, weight, self._mass)
                if done is not None:
                    sent, self._mass = done
                    self._step, self._weight = step, weight
                    return sent
            peers: Sequence[int] = self._topology.seen.out(step)
            if to is not None:
                peers = self._topology.chosen(self.name, to, peers, step)
            while True:
                try:
                    sent = self._send(peers, rows, step, weight)
                    break
                except PeerLost:  # a receiver failed during the wait
                    if to is not None:
                        raise
                    peers = self._topology.now.out(step)
            self._step = step
            self._weight = weight
            return sent
        finally:
            self._begun = self._step
            self._call_lock.release()

    def gather(self, function: GatherFunction | UserFunction = AVG, *, timeout_s: float | None = None) -> Gathered:
        """Merge the messages that have arrived into `array`; return what was merged. Local. Waits only under "ssp" and
        "bsp".

        `function`: malt.AVG, MEAN, SUM, REPLACE, WEIGHTED, TRAINED, PUSH_SUM, or a function f(own, updates). It
        returns the new array, or None if it changed `own` in place. f gets private copies, and is not called without
        updates. It may call malt; its result then replaces what that has changed in `array`. The built-in
        functions merge a sparse vector row by row. `timeout_s`: the longest wait, in seconds; by default the deadline
        of the vector. Other threads and signal handlers may see `array` half merged meanwhile. Under "bsp" AVG and MEAN
        take the weights of the graph, equal but in the graph "base" (malt.Graph.weight).

        An overwritten message biases PUSH_SUM. Under "notify-ack" no message is overwritten; under "bsp" none is if a
        gather follows every scatter; under "asp" and "ssp:S" statistics().overwritten counts them.

        TypeError, ValueError: a bad argument. ClosedError: the vector is closed. DeadlinePassed: a sender is missing.
        RuntimeError: another thread is in a scatter or gather of this vector. After each of these errors nothing has
        been gathered. If f raises, or returns no such array (TypeError, ValueError), `array` is unchanged, and the
        updates count as gathered. It is unchanged, too, where NumPy raises, as numpy.seterr has it.
        """
        try:
            return self._gather(function, timeout_s)
        finally:
            if interruption.pending is not None:
                interruption.raise_pending()

    @interruption.undivided
    def _gather(self, function: GatherFunction | UserFunction, timeout_s: float | None) -> Gathered:
        """Gather; an error of a signal handler stays pending. Local."""
        if not self._call_lock.acquire(False):
            self._queues.call_lock.insist(f"{self.name}.gather")
        try:
            if self._queues.closed:
                self._check_open()
            self._transport.poll_failures()
            self._topology.follow()
            if function is not self._function:
                self._check_function(function)
                self._function = function
            if self._consistency.acknowledges and counts_examples(function):  # all messages are of one step
                function = AVG
            if timeout_s is not None:
                timeout_s = arguments.timeout(self.name, timeout_s)
            if self._queues.closed:  # by a callback
                self._check_open()
            lockstep = self._consistency.lockstep
            if lockstep and self._gathered_at == self._step:
                return Gathered()
            is_mean = function is AVG or (lockstep and function is MEAN)  # which are one where all have sent
            is_simple = is_mean or (lockstep and function is SUM)
            if is_simple and timeout_s is None and self._compiled is not None:
                found = self._compiled.merge(self._sources, is_mean)
                if found is not None:
                    self._gathered_at = self._step
                    self._mass = 1.0
                    senders, steps, lag = found
                    return Gathered(senders, steps, lag)
            return self._gather_messages(function, timeout_s)
        finally:
            if self._returning is not None:
                self._returning.serve()
            self._call_lock.release()

    def clear(self) -> None:
        """Set `array` to zeros. Local.

        No row of a sparse vector then counts as changed or pending; from now on the nonzero rows do. So increments that
        are equal in two steps are both sent. What `top_k` has left for later scatters is kept.

        ClosedError: the vector is closed. RuntimeError: another thread is in a scatter or gather of this vector.
        """
        with self._queues.call_lock.taken(f"{self.name}.clear"):
            self._check_open()
            self._array.fill(0)

    @interruption.whole
    def discard(self, counts: Mapping[int, float]) -> None:
        """Drop the messages that have come and were not gathered, as all ranks have a common array now. One-sided.

        They count as overwritten. No rank scatters meanwhile. `counts`: the examples, by rank, that the common array
        was trained on, for malt.TRAINED.

        ClosedError: the vector is closed. RuntimeError: another thread is in a scatter or gather of this vector.
        """
        with self._queues.call_lock.taken(f"{self.name}.discard"):
            self._check_open()
            self._queues.discard()
            self._gathered_at = self._step
            self._trained.merged(counts.items())

    def newest_step(self) -> int:
        """Return the last step that an in-neighbour has published, as far as it has come here; 0 if closed. Local."""
        with self._queues.call_lock.lent() as is_free:
            return self._queues.inbox.newest_step() if is_free and not self._queues.closed else 0

    def go_on_to(self, step: int) -> None:
        """Go on to `step`, unless this rank is there, as by scatters without peers. One-sided.

        Under "ssp:S" no gather of another rank then waits for this one, which waits for that rank elsewhere.
        """
        with self._queues.call_lock.lent() as is_free:
            if is_free and not self._queues.closed and step > self._step:
                self._queues.send_each([], step, self._weight, self._mass)
                if self._gathered_at == self._step:
                    self._gathered_at = step
                self._step = self._begun = step

    def begin_after(self, steps: int) -> None:
        """Follow the graph as after `steps` scatters: its period goes on where an earlier job was. Local.

        To be called before the first scatter, on all ranks with the same number. ValueError: the graph changes from
        step to step, and failed ranks may come back, which would not know of it.
        """
        topology = self._topology
        if self._returning is not None and steps % topology.graph.period:
            raise ValueError(f"{self.name}: along {topology.graph.name!r} a failed rank cannot rejoin")
        topology.begin_after(steps)

    @property
    def returning(self) -> Returning | None:
        """The ranks that come back, as this one takes them up. None: none may."""
        return self._returning

    def come_in(self, born: int) -> None:
        """Begin where the others are, as this rank has come back, with what one of them gives. One-sided.

        `born`: see `Returning.announce`. DeadlinePassed, MemoryError, Refused: as `Returning.fetched`.
        """
        assert self._returning is not None
        self._returning.announce(born)
        step, self.given = self._returning.fetched()
        if self.given is not None:
            self._step = self._begun = self._gathered_at = step
            self.take_over(self.given)
            self._returning.begin(step)
            with self._queues.call_lock.lock:
                self._topology.renew()

    def accompany(self, state: Callable[[], Mapping[str, Any]]) -> dict[str, Array] | None:
        """Send state() to ranks that come back (malt run --rejoin), in addition to the contents of this vector. Local.

        Return what this rank received in this way after coming back; None on others, or if they have closed the vector.
        `state()`: arrays and numbers by name, of the step at which such a rank begins. It is called within exchanges
        of this vector, and makes none itself.
        """
        if self._returning is None:
            return None
        self._returning.beside = state
        if self.given is None:
            return None
        return {name.removeprefix(BESIDE): one for name, one in self.given.items() if name.startswith(BESIDE)}

    def take_over(self, values: Values) -> None:
        """Make the array that of the rank which gave `values`. Local."""
        self._array[...] = values[ARRAY]

    def barrier(self) -> None:
        """Return once all ranks have called it. Collective.

        ClosedError: the vector is closed. DeadlinePassed: ranks are missing; the message names them.
        """
        self._check_open()
        self._transport.barrier(f"{self.name}.barrier")

    def leave(self) -> None:
        super().leave()
        if (returning := self._returning) is not None:  # from here on another thread may free it
            returning.close()

    def _free(self) -> None:
        if self._attend in self._transport.duties:
            self._transport.duties.remove(self._attend)
        self._returning = None  # another thread may be about to attend
        super()._free()

    def disown(self, disowned: bool) -> None:
        super().disown(disowned)
        self._call_lock = self._queues.call_lock.lock

    def __repr__(self) -> str:
        return (
            f"<{self.name}: {self.kind} {self._array.dtype} {self._array.shape}, graph {self._topology.graph.name}, "
            f"sync {self._consistency.name}, step {self._step}{', closed' if self.closed else ''}>"
        )

    # -- private ----------------------------------------------------------------------------------------------

    def _mend(self, before: Neighbours) -> None:
        """Adapt to new neighbours; `before` were the former ones. Called within a scatter or gather."""
        if self._returning is not None:
            self._returning.take_up()

    def _statistics(self) -> Statistics:
        neighbours = self._topology.peek()
        return self._queues.statistics({*neighbours.targets, *neighbours.sources})

    def _sources(self) -> Sequence[int]:
        """Return the ranks for which a gather at this step may wait: under lockstep the in-neighbours of this step."""
        if self._consistency.lockstep:
            return self._topology.now.into(max(self._step, 1))
        return self._topology.now.sources

    def _counted(self, function: GatherFunction, messages: Sequence[Message]) -> Mapping[int, float] | None:
        """Return the weights by rank of what an average counts, this rank included. None: `function` has none.

        MEAN counts all that have scattered, AVG the senders, where the graph has weights. Those are of steps of the
        graph under lockstep alone: else a message may be of any step.
        """
        if not (function is MEAN or (function is AVG and self.is_weighted)):
            return None
        seen, merged = self._topology.seen, [(one.sender, one.step) for one in messages]
        ranks = {sender for sender, _ in merged}
        if function is MEAN:
            reached, only = self._queues.reached(), self._consistency.lockstep
            ranks = self._scattered.counted(merged, reached, seen.into, len(seen.ins), self._step if only else None)
        weights = seen.weights_at(max(self._step, 1)) if self.is_weighted else None
        return {rank: 1.0 if weights is None else weights.get(rank, 0.0) for rank in (self._rank, *ranks)}

    @abstractmethod
    def _send(self, peers: Sequence[int], rows: Any, step: int, weight: float) -> int:
        """Send to `peers` what a scatter sends; return the payload bytes."""

    def _gather_messages(self, function: GatherFunction | UserFunction, timeout_s: float | None) -> Gathered:
        """Gather, after the checks of `_gather`."""
        step = self._step  # `function` may scatter
        messages = self._collect(function, timeout_s)
        if counts_examples(function):
            self._trained.merged([(self._rank, self._weight), *((one.sender, one.weight) for one in messages)])
        # Every message carries mass. It has a meaning only if PUSH_SUM merges all messages.
        self._mass = self._mass + sum(one.share for one in messages) if function is PUSH_SUM else 1.0
        if not messages:
            return Gathered()
        senders = tuple([message.sender for message in messages])
        steps = tuple([message.step for message in messages])
        return Gathered(senders, steps, step - min(steps))

    def _collect(self, function: GatherFunction | UserFunction, timeout_s: float | None) -> Sequence[Message]:
        """Wait if the consistency asks for it, take the messages that have arrived, merge them and return them.

        A user's function is called last: it may scatter, gather and close.
        """
        is_built_in = isinstance(function, GatherFunction)
        newest = isinstance(function, GatherFunction) and self._wants_newest(function)
        received = self._queues.receive(self._sources, newest=newest, timeout_s=timeout_s)
        self._gathered_at = self._step
        messages: list[Message] = []
        contents: list[Any] = []
        try:
            for message in received:
                content = self._decode(message)
                if content is None:
                    self._queues.inbox.refuse(message)
                else:
                    messages.append(message)
                    contents += [content] if is_built_in else self._updates(message, content)
            if is_built_in and (messages or function is MEAN):
                self._merge(function, messages, contents)
        finally:
            self._queues.acknowledge(messages)
        if messages and not is_built_in:
            self._merge(function, messages, contents)
        return messages

    @abstractmethod
    def _decode(self, message: Message) -> Any:
        """Return what a message holds; None if it is invalid. Its sizes, encoding and row numbers are unchecked."""

    @abstractmethod
    def _updates(self, message: Message, content: Any) -> list[Update]:
        """Return copies of `content`, what `_decode` returned for the message, as a user's function gets them."""

    @abstractmethod
    def _merge(
        self, function: GatherFunction | UserFunction, messages: Sequence[Message], contents: Sequence[Any]
    ) -> None:  # fmt: skip
        """Merge the messages, at least one but for MEAN. `contents`: what `_decode` or `_updates` returned for them."""

    def _wants_newest(self, function: GatherFunction) -> bool:
        """Return whether to merge only the newest waiting message of each sender."""
        return function.newest

    def _check_function(self, function: Any) -> None:
        check_function(self.name, function, self._array.dtype)

    # -- private: ranks that come back ------------------------------------------------------------------------

    def _begin_returning(self) -> None:
        """Take up ranks that come back from now on, where they may; the vector is made. Local."""
        transport = self._transport
        if transport.returns is not None:
            self._returning = Returning(
                transport, transport.returns, self._queues, lambda: {ARRAY: self._array},
                self._consistency, self._progress,
            )  # fmt: skip
            if self._consistency.is_stepwise:
                transport.returns.stepwise.append(self._returning)
            transport.duties.append(self._attend)

    def _progress(self) -> tuple[int, bool]:
        """The step of the last exchange, or of the one under way; whether it is the last one."""
        is_steady = self._returning is not None and self._returning.is_steady
        return self._begun, is_steady and self._begun == self._gathered_at

    def _absent(self) -> frozenset[int]:
        """The live ranks that have come back, and are not in this vector yet."""
        return frozenset() if self._returning is None else self._returning.absent()

    def _attend(self) -> None:
        """Take up ranks that come back, between two calls, and in waits. One-sided."""
        returning = self._returning
        if not self._topology.is_present or (returning is not None and returning.is_held):
            with self._queues.call_lock.lent() as is_free:
                if is_free:
                    self._topology.follow()
                    if returning is not None:
                        returning.serve()
