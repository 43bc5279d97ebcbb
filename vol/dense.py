"""Dense vectors: every message holds the whole array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dstorm import Message, OutgoingMessage, Transport
from dstorm.queues.calls import compiled
from dstorm.queues.consistency import Consistency
from dstorm.queues.neighbours import of_other_hosts
from dstorm.queues.sending.unsent import Join, Shortening, supersede
from vol.graphs.graph import Graph
from vol.graphs.topology import Neighbours
from vol.merging.joining import join_of
from vol.merging.merge import (
    GatherFunction,
    Own,
    Term,
    UserFunction,
    apply_user_function,
    wide_dtype,
)
from vol.merging.undo_buffer import UndoBuffer
from vol.rounding import Rounding
from vol.update import Array, Update
from vol.vector import Vector

_WHOLE_ARRAY = 0
"""The encoding of a payload that holds the bytes of the array."""

_ROUNDED = 1
"""That of one that holds its values rounded."""


class DenseVector(Vector):
    """A vector that is sent whole, straight from `array`. Collective. The arguments are those of Vector.

    `wire`: how values are rounded that leave for other hosts by an outgoing buffer; None: they are not.
    """

    kind = "dense"

    def __init__(
        self, array: Array, transport: Transport, graph: Graph, consistency: Consistency, *, wire: str | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(array, transport, graph, consistency, array.nbytes, **options)
        self._rounding = self._rounded(wire, array)
        self._undo: UndoBuffer | None = None
        """The values from before a merge of messages that senders may still overwrite; allocated on first use."""
        far = of_other_hosts(transport.hosts, self._rank, self._queues.inbox.edges)
        self._may_look = not consistency.acknowledges and not far
        """Whether messages are averaged in place: those of other hosts have a check, which is that of a copy."""
        self.adopt(array)
        self._compile()
        self._begin_returning()

    def _compile(self) -> None:
        """Make the compiled calls for the present neighbours, if there are any. Local."""
        calls = self._queues, self._flat, self._topology.seen.outs, self._topology.seen.ins
        self._compiled = compiled.calls(*calls, self._check_finite)
        if self._compiled is not None and not self._consistency.lockstep:
            self._undo = UndoBuffer(self._compiled.before)

    def adopt(self, array: Array) -> None:
        """Make `array` the replica, without a copy. Local.

        `array` has the same shape and dtype, is C-contiguous and writable. The former replica keeps its values.
        """
        self._array = array
        self._flat = array.reshape(-1)
        self._bytes = self._flat.view(np.uint8)
        self._messages = {
            peer: OutgoingMessage(peer, self._bytes, None, array.nbytes, _WHOLE_ARRAY) for peer in self._peers
        }
        for outgoing in self._messages.values():
            self._queues.outbox.prepare(outgoing)
        if self._compiled is not None:
            self._compiled = self._compiled.adopted(self._flat)

    # -- private ----------------------------------------------------------------------------------------------

    def _mend(self, before: Neighbours) -> None:
        super()._mend(before)
        self._compiled = None
        self._compile()

    def _rounded(self, wire: str | None, array: Array) -> Rounding | None:
        """Return the rounding of this rank, where that is shorter, or None. What leaves the buffer is rounded there."""
        rounding = None if wire is None else Rounding(wire, array.dtype, array.size)
        if rounding is None or rounding.nbytes >= array.nbytes:
            return None
        dtype = array.dtype
        self._queues.shorten(Shortening(lambda whole: rounding.encoded(whole.view(dtype)), rounding.nbytes, _ROUNDED))
        return rounding

    def _send(self, peers: Sequence[int], rows: Any, step: int, weight: float) -> int:
        if rows is not None:
            raise ValueError(f'{self.name}: rows= needs kind="sparse"; a dense vector sends the whole array')
        outgoing = map(self._messages.__getitem__, peers)
        join: Join = supersede
        if self._queues.has_buffer:
            join = join_of(self._function, self._array.dtype, self._queues.layout.depth)
        sent, self._mass = self._queues.send_each(outgoing, step, weight, self._mass, join=join)
        return sent

    def _collect(self, function: GatherFunction | UserFunction, timeout_s: float | None) -> Sequence[Message]:
        if self._may_look and isinstance(function, GatherFunction) and function.may_be_checked:
            messages = self._average_in_place(function, timeout_s)
            if messages is not None:
                return messages
        return super()._collect(function, timeout_s)

    def _average_in_place(self, function: GatherFunction, timeout_s: float | None) -> Sequence[Message] | None:
        """Average the messages straight out of the window, in one pass, and return them.

        Whether a message was overwritten meanwhile is checked once it has been read. If one was, or if one is to be
        refused, `array` keeps its former values, or gets them back. Return None: no message has been taken.
        """
        messages = self._queues.look(self._sources, timeout_s)
        self._gathered_at = self._step
        if not messages:
            return messages
        contents = [content for one in messages if (content := self._whole(one)) is not None]
        if len(contents) < len(messages):
            return None
        blend, is_whole = function.begin(*self._terms(function, messages, contents)), False
        if self._undo is None:
            self._undo = UndoBuffer(np.empty_like(self._flat))
        self._undo.clear()
        try:
            if blend is not None:
                blend.store(self._flat, self._undo)
            is_whole = self._is_whole(contents if blend is None else [self._flat])
        finally:  # also where an operation raises
            if not is_whole:
                self._undo.restore(self._flat)
        return messages if is_whole else None

    def _is_whole(self, checked: Sequence[Array]) -> bool:
        """Return whether all messages were whole, and `checked` hold finite numbers where it matters. If so, they count
        as merged."""
        wide = wide_dtype(self._array.dtype)  # one element that is not finite is enough
        is_finite = not self._check_finite or all(np.isfinite(one.sum(dtype=wide)) for one in checked)
        return is_finite and self._queues.inbox.look_again()

    def _merge(
        self, function: GatherFunction | UserFunction, messages: Sequence[Message], contents: Sequence[Any]
    ) -> None:  # fmt: skip
        if isinstance(function, GatherFunction):
            own, terms = self._terms(function, messages, contents)
            if (counted := self._counted(function, messages)) is not None:
                own = own._replace(counted=counted)
            function.merge(own, terms)
        else:
            apply_user_function(function, self._array, list(contents))

    def _terms(
        self, function: GatherFunction, messages: Sequence[Message], contents: Sequence[Array]
    ) -> tuple[Own, list[Term]]:  # fmt: skip
        """Return the terms of a merge: the own array, and the messages."""
        new = tuple.__new__  # in half the time of Term(...)
        own = new(Own, (self._rank, self._weight, self._mass, self._flat, None))
        terms = [
            new(Term, (one.sender, one.step, one.weight, one.share, content))
            for one, content in zip(messages, contents, strict=True)
        ]
        if function.weigh is None:
            return own, terms
        since, weigh = self._trained.since, function.weigh
        terms = [term._replace(weight=weigh(since(term.sender, term.weight))) for term in terms]
        return own._replace(weight=weigh(since(own.rank, own.weight))), terms

    def _updates(self, message: Message, content: Array) -> list[Update]:
        lag, values = self._step - message.step, content.copy().reshape(self._array.shape)
        return [Update(message.sender, message.step, lag, message.weight, message.share, None, values)]

    def _decode(self, message: Message) -> Array | None:
        content = self._whole(message)
        if content is None or (self._check_finite and not np.isfinite(content).all()):
            return None
        return content

    def _whole(self, message: Message) -> Array | None:
        """Return the values of a message of a whole array: flat, a view, or a copy where they are rounded. None for any
        other message."""
        if message.encoding == _ROUNDED and self._rounding is not None:
            return self._rounding.decoded(message.payload)
        if message.encoding != _WHOLE_ARRAY or message.payload.nbytes != self._array.nbytes:
            return None
        values: Array = message.payload.view(self._flat.dtype)
        return values
