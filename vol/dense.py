"""Dense vectors: a local replica, scattered whole and gathered by a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dstorm import Message, Parcel, Transport
from dstorm.consistency import Consistency
from vol.graph import Graph
from vol.merge import GatherFunction, Own, UserFunction, apply_user_function
from vol.update import Array, Update
from vol.vector import Vector

_WHOLE_ARRAY = 0
"""The encoding of a payload that is the array's own bytes."""


class DenseVector(Vector):
    """A vector that is sent whole, straight from `array`. Collective; arguments as of Vector."""

    kind = "dense"

    def __init__(
        self, array: Array, transport: Transport, graph: Graph, consistency: Consistency, **options: Any
    ) -> None:
        super().__init__(array, transport, graph, consistency, array.nbytes, **options)
        self._parcels = {
            peer: Parcel(peer, self._bytes, None, array.nbytes, _WHOLE_ARRAY) for peer in graph.targets(self._rank)
        }

    # -- private ----------------------------------------------------------------------------------------------

    def _send(self, peers: Sequence[int], rows: Any, step: int, weight: float) -> int:
        if rows is not None:
            raise ValueError(f'{self.name}: rows= needs kind="sparse"; a dense vector sends the whole array')
        parcels = map(self._parcels.__getitem__, peers)
        sent, self._mass = self._segment.send_each(parcels, step, weight, self._mass)
        return sent

    def _merge(self, function: GatherFunction | UserFunction, messages: Sequence[Message]) -> None:
        if isinstance(function, GatherFunction):
            own = Own(self._rank, self._weight, self._mass, self._array)
            function.merge(own, [self._update(one) for one in messages])
        else:
            private = [one._replace(payload=one.payload.copy()) for one in messages]
            apply_user_function(function, self._array, [self._update(one) for one in private])

    def _update(self, message: Message) -> Update:
        lag = self._step - message.step
        return Update(message.sender, message.step, lag, message.weight, message.share, None, self._values(message))

    def _values(self, message: Message) -> Array:
        values: Array = message.payload.view(self._array.dtype).reshape(self._array.shape)
        return values

    def _accepts(self, message: Message) -> bool:
        """Whether a message is one of a whole array, of numbers where that is asked for."""
        if message.encoding != _WHOLE_ARRAY or message.payload.nbytes != self._array.nbytes:
            return False
        return not self._check_finite or bool(np.isfinite(self._values(message)).all())
