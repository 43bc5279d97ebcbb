"""The base of dense and sparse sharded vectors: the queues of their pushes, when these are added, close, statistics."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np

from dstorm import EdgeStatistics, Queues, Statistics, Transport
from dstorm.queues.consistency import FLOW, Consistency
from dstorm.queues.statistics import located, total
from dstorm.queues.waits.waiting import Waiting
from dstorm.transport import Bytes
from dstorm.waits import interruption
from dstorm.words import shown
from vol.sharded.clock import Clock
from vol.sharded.layout import Numbers, ShardLayout
from vol.sharded.operand import Create, Operand
from vol.sharded.part import Parts
from vol.sharded.pull import Puller
from vol.sharded.push import PushQueues, queue_layout
from vol.sharded.scalars import Scalars
from vol.shared import Shared
from vol.update import Array


class OwnedVector(Operand, Shared):
    """A vector of which each rank owns a part. The constructor is Collective: all ranks pass the same layout.

    `create`: makes another one. `is_over`: whether the session has ended in this process. `sync`: asp or ssp.
    """

    is_sharded = True

    def __init__(
        self, layout: ShardLayout, transport: Transport, create: Create, deadline_s: float, name: str,
        is_over: Callable[[], bool], sync: Consistency,
    ) -> None:  # fmt: skip
        self._layout, self._transport, self._rank = layout, transport, transport.rank
        self._create = create
        self._scalars = Scalars(transport, layout.ranks, is_over)
        transport.connect([rank for rank in range(transport.size) if rank != self._rank])
        self._queues = Queues(transport, queue_layout(layout), FLOW, deadline_s)
        Shared.__init__(self, name, self._queues)
        self._pushes = PushQueues(transport, layout, self._queues, self._add, name)
        self._waiting = Waiting(transport, deadline_s, self._queues.notice)
        self.pushed_at = -1
        """How many barriers this rank had entered when it pushed last; -1: it has not pushed."""
        self._pace = None if sync.staleness is None else Clock(transport, layout.ranks, self._queues, sync, deadline_s)
        at = [self._queues.layout.behind(rank) for rank in range(transport.size)]
        self._parts = Parts(self._queues.window, layout.stored, self._rank, at)
        self._puller = Puller(transport, self._parts, self._waiting)
        self._prepare()
        transport.duties.append(self._absorb)

    @interruption.whole
    def pull(self, index: Any = None, out: Array | None = None) -> Array:
        """Read rows of any ranks, without their help; return them as an array of this rank's own. One-sided.

        `index`: numbers of rows, in any order, more than once if need be; a slice, as of an array, of step 1; None: all
        rows. Of a sparse vector: keys; what was never touched is 0. `out`: where they are written, and what is
        returned: C-contiguous, of the dtype of the vector, of shape (rows, ...).

        A row is never half-done where malt changes it. Rows may be of different moments. Under "ssp:S" it waits until
        every other rank has made as many pushes as this one, less S, and their owners have added them.

        TypeError, ValueError, IndexError: an argument is wrong; nothing was read. ClosedError. PeerLost: an owner has
        failed. DeadlinePassed: it was in the midst of a change for the deadline.
        """
        with self._begin("pull"):
            rows, shape = self._rows("pull", index)
            result = np.empty(shape, self.dtype) if out is None else self._checked_out(out, shape)
            self.check_owners("pull")
            if self._transport.trains_since is None:
                self._transport.begin_training(self._transport.clock())
            if self._pace is not None:
                self._pace.wait(f"{self.name}.pull")
            as_bytes = result.reshape(-1).view(np.uint8).reshape(shape[0], self._layout.row_nbytes)
            self._read(f"{self.name}.pull", rows, as_bytes)
            return result

    @interruption.whole
    def push(self, values: Any, index: Any = None) -> None:
        """Add `values` to rows of any ranks. One-sided.

        `values`: an array of shape (rows, ...). `index`: numbers of rows, in any order; a row that is named twice is
        added to twice. A slice, as of an array, of step 1; None: all rows. Of a sparse vector: keys, in any order.

        It returns once the values are in the queues of their owners, which add each of them once, in any call of malt.
        After malt.barrier() all that was pushed before, by any rank, has been added. A push waits for room in a queue,
        and adds what comes to this rank meanwhile. A rank that waits for the others in malt.finalize takes pushes, too.

        TypeError, ValueError, IndexError: an argument is wrong; nothing was sent. ClosedError. PeerLost: an owner has
        failed, or closed the vector. DeadlinePassed: an owner has made no call of malt for the deadline. Some values
        may have been sent then. RuntimeError: it is called in a zip of this vector.
        """
        with self._begin("push"):
            self._check_not_held("push")
            rows, shape = self._rows("push", index)
            array = self._checked_values(values, shape)
            self.check_owners("push")
            pieces = self._dealt(rows, array)
            for owner, theirs, some in pieces:
                if owner == self._rank:
                    self._add(theirs, some)
            try:
                self._pushes.send([piece for piece in pieces if piece[0] != self._rank])
            finally:
                self.pushed_at = self._transport.meetings
            if self._pace is not None:
                self._pace.tick()

    def close(self) -> None:
        """Close it. Collective. A second call does nothing.

        No rank reads from it any more. A view of `local` that is kept stays as it is. The errors of malt.barrier.
        """
        if not self.closed and not self.disowned:
            if self._pace is not None:
                self._pace.stop(f"{self.name}.close")
            with self._transport.calling(f"{self.name}.close"):
                self._transport.barrier(f"{self.name}.close")
            self.leave()

    def settle(self) -> None:
        """Add what has come, after a call of another thread that is at work here. One-sided.

        What comes in a zip of this thread is added at its end.
        """
        polls = 0
        while not self._absorb_in_turn():
            self._transport.pause(polls)
            polls += 1

    def check_owners(self, call: str) -> None:
        """Check that the vector has all its parts, unless it is closed. Local. PeerLost: one has failed with a rank."""
        if not self.closed:
            view, ranks = self._transport.view, self._layout.ranks
            view.check_alive(ranks, f"{self.name}.{call}: its part has failed with it")

    def leave(self) -> None:
        with contextlib.suppress(ValueError):  # a second call, perhaps of another thread
            self._transport.duties.remove(self._absorb)
        if self._pace is not None:
            self._pace.leave()
        super().leave()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it; where an exception is on its way, on this rank alone."""
        if error is None:
            self.close()
        else:
            self.leave()

    def __repr__(self) -> str:
        return f"<{self.name}: {self.dtype} of {self._layout}{', closed' if self.closed else ''}>"

    # -- private -------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make what is added to: from here on pushes come. Local."""

    def _free(self) -> None:
        if self._pace is not None:
            self._pace.free()
        super()._free()

    @abstractmethod
    def _add(self, rows: slice | Numbers, values: Array) -> None:
        """Add values to rows of this rank, as messages name them."""

    @abstractmethod
    def _read(self, call: str, rows: Numbers | slice, result: Bytes) -> None:
        """Read `rows` into those of `result`, as bytes. `call`: for errors, which are those of `Puller.read`."""

    @contextlib.contextmanager
    def _begin(self, call: str, holds: bool = False) -> Iterator[None]:
        with self._queues.call_lock.taken(f"{self.name}.{call}"):
            self._check_open()
            self._transport.poll_failures(quietly=True)
            with self._hold() if holds else contextlib.nullcontext():
                yield

    @contextlib.contextmanager
    def _hold(self) -> Iterator[None]:
        """Add what others push after the code block."""
        was_held = self._is_held
        try:
            self._is_held = True
            yield
        finally:
            self._is_held = was_held

    def _absorb(self) -> None:
        """Add what others have pushed, unless another thread, or a zip, is at work here. One of the duties."""
        if not self._is_held and self._queues.has_arrived():
            self._absorb_in_turn()

    @interruption.whole
    def _absorb_in_turn(self) -> bool:
        """Do as `_absorb`. Return whether no other thread is at work here."""
        with self._queues.call_lock.lent() as is_free:
            if is_free and not self._is_held and not self.closed:
                self._pushes.absorb()
        return is_free

    def _dealt(self, rows: Numbers | slice, values: Array) -> Sequence[tuple[int, slice | Numbers, Array]]:
        """By owner, its rows, counted from its first one on, and their values."""
        if isinstance(rows, slice):
            return [(rank, theirs, values[places]) for rank, places, theirs in self._layout.overlaps(rows)]
        return [(rank, theirs, values[places]) for rank, places, theirs in self._layout.dealt(rows)]

    def _rows(self, call: str, index: Any) -> tuple[Numbers | slice, tuple[int, ...]]:
        """The rows that `index` names, and the shape of an array of them. TypeError, ValueError, IndexError."""
        rows: Numbers | slice
        if index is None or isinstance(index, slice):
            start, stop, step = (index or slice(None)).indices(self.shape[0])
            if step != 1:
                raise ValueError(f"{self.name}.{call}: a slice must have step 1, got {shown(index)}")
            rows, count = slice(start, max(start, stop)), max(stop - start, 0)
        else:
            rows = self._numbers(call, index)
            count = len(rows)
        return rows, (count, *self._layout.row_shape)

    def _numbers(self, call: str, index: Any) -> Numbers:
        """The numbers of rows that `index` names. TypeError: it is no list of integers. IndexError."""
        found = self._plain(call, "index", index)
        if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
            raise TypeError(f"{self.name}.{call}: index must be a list of integers, got {_described(found)}")
        if found.size and (found.min() < 0 or found.max() > self.shape[0] - 1):
            wrong = found[(found < 0) | (found > self.shape[0] - 1)][0]
            raise IndexError(f"{self.name}.{call}: index {wrong} is out of range: there are {self.shape[0]} rows")
        return found.astype(np.int64)

    def _plain(self, call: str, name: str, given: Any) -> Array:
        """`given` as an array. TypeError: entries of it are masked out, which no rank would know of."""
        if isinstance(given, np.ma.MaskedArray):
            raise TypeError(f"{self.name}.{call}: {name} must not be a masked array: use filled() or compressed()")
        return np.asarray(given)

    def _checked_values(self, values: Any, shape: tuple[int, ...]) -> Array:
        """`values` as an array of this shape and of the dtype of the vector, C-contiguous. ValueError, TypeError."""
        found = self._plain("push", "values", values)
        if found.shape != shape:
            raise ValueError(f"{self.name}.push: values must have shape {shape}, got {found.shape}")
        if found.dtype.kind == "b" or not np.can_cast(found.dtype, self.dtype, "same_kind"):
            raise TypeError(f"{self.name}.push: values of {found.dtype} cannot be added to {self.dtype}")
        return np.ascontiguousarray(found, self.dtype)

    def _checked_out(self, out: Any, shape: tuple[int, ...]) -> Array:
        """`out`. TypeError, ValueError: it cannot take the rows."""
        if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray) or out.dtype != self.dtype:
            raise TypeError(f"{self.name}.pull: out must be an array of {self.dtype}, got {_described(out)}")
        if out.shape != shape or not out.flags.c_contiguous or not out.flags.writeable:
            raise ValueError(f"{self.name}.pull: out must be C-contiguous, writable and of shape {shape}")
        return out

    def _statistics(self) -> Statistics:
        queues = self._queues.statistics()
        owners = self._puller.owners
        peers = {
            rank: replace(queues.peers.get(rank, EdgeStatistics()), bytes_read=owner.bytes_read)
            for rank, owner in owners.items()
            if rank != self._rank
        }
        pulled = {rank: owner.bytes_moved for rank, owner in owners.items()}
        waited_s = queues.waited_s + (0.0 if self._pace is None else self._pace.waited_s)
        whole = total(located(peers, self._transport.hosts, self._rank, pulled), waited_s)
        sent, across = whole.bytes_sent + self._scalars.bytes_sent, whole.bytes_across + self._scalars.bytes_across
        return replace(whole, bytes_sent=sent, bytes_across=across)


def _described(value: Any) -> str:
    """Return a description of `value` in one line, however long it is."""
    kind = type(value).__name__
    return f"{value.dtype} of shape {value.shape}" if kind == "ndarray" else kind
