"""Sparse vectors: a dense local replica whose messages hold rows, those that changed or those that are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dstorm import Message, OutgoingMessage, Transport
from dstorm.queues.consistency import Consistency
from dstorm.queues.sending.unsent import Join, supersede
from vol.graphs.graph import Graph
from vol.graphs.topology import Neighbours
from vol.merging.merge import MEAN, REPLACE, GatherFunction, Own, UserFunction, apply_user_function
from vol.merging.undo_buffer import all_or_nothing
from vol.returns.packing import Values
from vol.sparse.dirty import DirtyRows, as_words
from vol.sparse.error_feedback import Residual, nonzero_rows
from vol.sparse.joining import largest_join, row_join
from vol.sparse.merge import ROW_MERGES, RowUpdate
from vol.sparse.rows import Rows, checked_rows, union
from vol.sparse.wire import Encoded, RowFormat, RowValues, Staging, as_read, decode, encode
from vol.update import Array, Update
from vol.vector import Vector


class SparseVector(Vector):
    """A vector of shape (n,) or (n, k) whose messages hold rows. Collective. Further arguments are those of Vector.

    `capacity`: the largest number of rows in a message; None for all. Where ranks may fail, two kinds of rows are
    deferred until a message has capacity left: those received from others, and those that a new peer has not got.
    `wire`: the dtype of values in messages; None for that of the array. `top_k`: the array holds increments, and each
    scatter sends the `top_k` largest rows of those not sent yet. `track`: whether to find the rows that changed.
    """

    kind = "sparse"

    def __init__(
        self, array: Array, transport: Transport, graph: Graph, consistency: Consistency, *,
        capacity: int | None = None, wire: str | None = None, top_k: int | None = None, track: bool = True,
        **options: Any,
    ) -> None:  # fmt: skip
        n = len(array)
        self._table = array.reshape(n, -1) if array.size else array.reshape(n, 1)
        self._words = as_words(self._table)
        capacity = min([n, *(limit for limit in (capacity, top_k) if limit is not None)])
        self._format = RowFormat(n, self._table.shape[1], np.dtype(wire or array.dtype), capacity, wire == "int8")
        self._staging = Staging()
        super().__init__(array, transport, graph, consistency, self._format.slot_nbytes, **options)
        self._top_k = top_k
        self._join_largest = largest_join(self._format, self._table.dtype) if top_k is not None else None
        self.sent: RowValues | None = None
        """With `top_k` the rows of the last scatter, and their values as receivers read them. None: it had no peers, or
        MEAN has merged them."""
        self._residuals: dict[tuple[int, ...], Residual] = {}
        self._dirty = DirtyRows(self._table, self._peers) if top_k is None and track else None
        self._travels_on = not _reaches_all(graph)
        # Rows that a sender may have deferred are deferred here too: a message of them may exceed the capacity.
        self._defers = capacity < n and self._topology.may_grow
        self._begin_returning()

    # -- sending ----------------------------------------------------------------------------------------------

    def _send(self, peers: Sequence[int], rows: Any, step: int, weight: float) -> int:
        named = None if rows is None else self._named(rows)
        if self._top_k is not None:
            return self._send_largest(tuple(peers), named, step, weight)
        if self._dirty is None:
            if named is None:
                raise ValueError(f"{self.name}: with track=False the rows to send are named: scatter(rows=...)")
            return self._send_parts([(named, peers)], self._table, step, weight)
        if named is not None:
            self._dirty.check(named)
            sent = self._send_parts([(named, peers)], self._dirty.checked, step, weight)
            self._dirty.mark_rows_sent(peers, named)
            return sent
        self._dirty.find_changed()
        changed = self._dirty.changed()
        pending = self._dirty.pending(peers, changed, self._format.capacity)
        sent = self._send_parts(pending, self._dirty.checked, step, weight)
        self._dirty.mark_sent(pending, changed)
        return sent

    def clear(self) -> None:
        with self._queues.call_lock.taken(f"{self.name}.clear"):
            super().clear()
            if self._dirty is not None:
                self._dirty.clear()

    def discard(self, counts: Mapping[int, float]) -> None:
        """Drop all messages that have come, and increments that were not sent. One-sided."""
        super().discard(counts)
        self._residuals.clear()
        self.sent = None

    @property
    def residuals(self) -> dict[tuple[int, ...], Array]:
        """With `top_k` what was not sent yet, by the peers that it is for: (rows, width), not copies. Local."""
        return {peers: residual.values for peers, residual in self._residuals.items()}

    def take_residuals(self, residuals: Mapping[tuple[int, ...], Array]) -> None:
        """Go on from `residuals`, as the property of that name gave them. Copies. Local."""
        self._residuals = {}
        for peers, values in residuals.items():
            self._residuals[peers] = Residual(self._table.dtype, self._format)
            self._residuals[peers].restore(np.arange(self._format.n), values)

    def take_over(self, values: Values) -> None:
        """Take over the values of another rank, but not its increments. Local."""
        if self._top_k is None:
            super().take_over(values)
        if self._dirty is not None:
            self._dirty = DirtyRows(self._table, self._peers)

    def _mend(self, before: Neighbours) -> None:
        super()._mend(before)
        self._carry_residuals(before.outs)
        if self._dirty is not None:
            # All that changed so far is pending for a new peer. It may exceed a slot, so it is deferred, not an error.
            self._dirty.defer(set(self._topology.now.targets).difference(before.targets))

    def _carry_residuals(self, outs: Sequence[tuple[int, ...]]) -> None:
        """Move each residual to the live peers it was for, and to those that replace failed ones.

        `outs`: the out-neighbours by phase before the graph was mended.
        """
        failed, now = self._transport.view.failed, self._topology.now.outs
        carried: dict[tuple[int, ...], Residual] = {}
        for peers, residual in self._residuals.items():
            key = tuple(sorted(set(peers) - failed))
            if peers in outs:
                key = next((later for later in now if set(key) <= set(later)), key)
            if key in carried:
                carried[key].give(nonzero_rows(residual.values), residual.values)
            elif key:
                carried[key] = residual
        self._residuals = carried

    def _send_largest(self, peers: tuple[int, ...], named: Rows | None, step: int, weight: float) -> int:
        """Add the named rows, or all nonzero ones, to the residual of these peers; send its largest rows."""
        self.sent = None
        if not peers or (named is not None and not len(named)):
            return self._send_parts([], self._table, step, weight)
        if peers not in self._residuals:
            self._residuals[peers] = Residual(self._table.dtype, self._format)
        residual = self._residuals[peers]
        given = nonzero_rows(self._table) if named is None else named
        before = residual.values[given] if self._consistency.acknowledges else None
        residual.give(given, self._table)
        rows = residual.largest(self._format.capacity)
        try:
            sent = self._send_parts([(rows, peers)], residual.values, step, weight)
        except BaseException:  # in its wait: nothing was sent
            if before is not None:
                residual.restore(given, before)
            raise
        self.sent = RowValues(rows, residual.sent(rows))
        return sent

    def _send_parts(
        self, parts: Sequence[tuple[Rows, Sequence[int]]], values: Array, step: int, weight: float
    ) -> int:  # fmt: skip
        """Send each set of rows of `values` to its peers; skip an empty set. Return the payload bytes sent."""
        longest = max((len(rows) for rows, _ in parts), default=0)
        if longest > self._format.capacity:
            raise ValueError(
                f"{self.name}: {longest} rows are to be sent, and capacity={self._format.capacity} is what a slot "
                f"holds: name fewer with rows="
            )
        self._staging.clear()
        messages = [(self._encode(rows, values), peers) for rows, peers in parts if len(rows) and len(peers)]
        outgoing = [OutgoingMessage(peer, *encoded) for encoded, peers in messages for peer in peers]
        sent, self._mass = self._queues.send_each(outgoing, step, weight, self._mass, join=self._join)
        return sent

    @property
    def _join(self) -> Join:
        """The function that joins rows that have not begun to leave for another host."""
        if not self._queues.has_buffer:
            return supersede
        if self._join_largest is not None:
            return self._join_largest
        function = self._function
        if not isinstance(function, GatherFunction):
            return row_join(self._format, False, keeps=self._queues.layout.depth, dates=True)
        return row_join(self._format, function.adds, dates=function is REPLACE)

    def _encode(self, rows: Rows, values: Array) -> Encoded:
        try:
            return encode(self._format, rows, values, self._staging, saturate=self._top_k is not None)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    def _named(self, rows: Any) -> Rows:
        try:
            return checked_rows(rows, self._format.n)
        except (ValueError, TypeError) as error:
            raise type(error)(f"{self.name}: {error}") from None

    # -- receiving --------------------------------------------------------------------------------------------

    def _wants_newest(self, function: GatherFunction) -> bool:
        return False  # an older message may hold rows that the newest one does not: rows are superseded one by one

    def _check_function(self, function: Any) -> None:
        super()._check_function(function)
        if isinstance(function, GatherFunction) and function not in ROW_MERGES:
            raise TypeError(f'{self.name}: {function} needs kind="dense": single rows carry neither mass nor count')
        if self._top_k is not None and isinstance(function, GatherFunction) and not function.adds:
            raise TypeError(
                f"{self.name}: with top_k messages hold increments, for malt.MEAN or SUM; {function} merges values"
            )

    def _decode(self, message: Message) -> RowValues | None:
        content = decode(self._format, message.encoding, message.payload)
        return None if content is None or (self._check_finite and not _is_finite(content)) else content

    def _merge(
        self, function: GatherFunction | UserFunction, messages: Sequence[Message], contents: Sequence[Any]
    ) -> None:  # fmt: skip
        if not isinstance(function, GatherFunction):
            merged = self._array.copy()  # it may change the array itself, and raise then: those rows are dirty
            apply_user_function(function, merged, list(contents))
            every_row, result = np.arange(self._format.n), merged.reshape(self._table.shape)
            return self._change(every_row, lambda table: np.copyto(table, result))
        with all_or_nothing(*[self._table] * (function is MEAN)):
            self._merge_rows(function, messages, contents)
        self.sent = None

    def _merge_rows(
        self, function: GatherFunction, messages: Sequence[Message], contents: Sequence[RowValues]
    ) -> None:  # fmt: skip
        parts, rows_of_all = _by_step(messages, contents), [content.rows for content in contents]
        counted = self._counted(function, messages)
        if function is MEAN:
            self._take_as_read()
            is_alone = counted is not None and len(counted) == 1
            rows_of_all.append(np.empty(0, np.intp) if is_alone else self._used())
        rows = union(rows_of_all, self._format.n)
        updates = [RowUpdate(one.sender, one.step, one.weight, content) for one, content in parts]
        own = Own(self._rank, self._weight, self._mass, self._table, counted)
        self._change(rows, lambda table: ROW_MERGES[function](own._replace(values=table), updates, rows), function)

    def _change(self, rows: Rows, merge: Callable[[Array], object], function: GatherFunction | None = None) -> None:
        """Have `merge` change `rows` of a table that holds those of the array, and the array then."""
        if self._dirty is None:
            with all_or_nothing(self._table, rows=rows):
                merge(self._table)
            return
        self._dirty.check(rows)
        try:
            merge(self._dirty.checked)
            if self._travels_on and function is not MEAN:
                self._dirty.pass_on(rows, self._defers)
            else:
                self._dirty.write_back(rows)
        except BaseException:
            self._dirty.skip(rows)
            raise
        if function is MEAN:
            self._dirty.clear()  # what the array holds at the next scatter is the next increment

    def _take_as_read(self) -> None:
        """Replace the increments of this rank by what receivers read of them, so that all ranks end with the same bits.

        With `top_k` the rest is in a residual, and is sent later.
        """
        if self.sent is not None:
            sent = np.zeros_like(self._table)
            sent[self.sent.rows] = self.sent.values
            self._table[:] = sent
        elif self._format.dtype != self._table.dtype:
            rows = self._used()
            self._table[rows] = as_read(self._format, self._table[rows])

    def _used(self) -> Rows:
        """Return the rows that are not zeros, bit by bit."""
        return nonzero_rows(self._words)

    def _updates(self, message: Message, content: RowValues) -> list[Update]:
        return [self._update(one, part) for one, part in _by_step([message], [content])]

    def _update(self, message: Message, content: RowValues) -> Update:
        values = content.part(0, len(content.rows)).astype(self._array.dtype)  # a copy
        values = values.reshape(-1, *self._array.shape[1:])
        lag = self._step - message.step
        return Update(message.sender, message.step, lag, message.weight, message.share, content.rows, values)


def _by_step(messages: Sequence[Message], contents: Sequence[RowValues]) -> list[tuple[Message, RowValues]]:
    """Return what the messages hold, the rows of each step by themselves, the older ones of a message first."""
    return [
        (one._replace(step=one.step - age), part) if age else (one, part)
        for one, content in zip(messages, contents, strict=True) for age, part in content.by_age()
    ]  # fmt: skip


def _is_finite(content: RowValues) -> bool:
    return bool(np.isfinite(content.part(0, len(content.rows))).all())


def _reaches_all(graph: Graph) -> bool:
    """Return whether every rank receives every update from its source: the graph "all", or an "auto" that chose it."""
    others = graph.size - 1
    return graph.name in ("all", "auto") and all(len(graph.out(rank)) == others for rank in range(graph.size))
