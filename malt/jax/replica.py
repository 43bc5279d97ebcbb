"""`malt.jax.Replica`: a pytree of JAX arrays that ranks exchange, outside jit."""

from __future__ import annotations

from typing import Any

import jax

from malt.jax.leaves import Leaves
from malt.session.replica import replica as of_arrays
from malt.session.replica.totals import ReplicaStatistics
from vol import Vector


class Replica:
    """This rank's replica of a pytree, which it exchanges with its peers at intervals. Collective.

        replica = malt.jax.Replica(params)
        params = replica.params
        for x, y in batches:
            params, state = train_step(params, state, x, y)
            params = replica.step(params)
        params = replica.finish(params)

    `params`: any pytree, such as a dict, the state of a flax module, or a pair of parameters and an optax state. Its
    arrays of floats and complex numbers are exchanged: those of 32 and 64 bits as they are, those of fewer bits as
    float32, of more as float64. Integers take the values of rank 0 at the start, and are not exchanged. Truth values,
    random keys, and leaves that are not arrays stay local to each rank. JAX arrays are never written into: each call
    returns a pytree of the same structure, with new arrays if ranks have exchanged, and otherwise the one that was
    passed. New arrays are on the devices of those that they replace.

    All ranks start from the values of rank 0, which are in `params`. A rank that has created other values must start
    from these.

    `every` and the other arguments, given by name, are as in malt.Replica. An exchange waits until JAX has computed the
    values; this wait counts as training.

    ValueError, TypeError, MemoryError: as malt.Replica.
    """

    def __init__(self, params: Any, every: Any = None, average: str = "model", **options: Any) -> None:
        self._leaves = leaves = Leaves(params)
        self._params, self._is_other = params, False
        self._replica = of_arrays.Replica(
            lambda: leaves.arrays(self._params), every, average, set=self._take, **options
        )  # fmt: skip
        self._replica.trust()
        self._is_other = self._leaves.differ(params, self._params)

    @property
    def params(self) -> Any:
        """The pytree of this rank: at the start that of rank 0. Local."""
        self._is_other = False
        return self._params

    def step(self, params: Any, n: int = 1) -> Any:
        """Count `n` examples or batches; return `params`, exchanged if another `every` have been counted. One-sided.

        TypeError: the call is within a function that JAX traces. ValueError: `params` has another structure, or its
        arrays other shapes or dtypes than at the start; the rank has created other values than rank 0, and does not
        start from `params`. Other errors: as malt.Replica.step.
        """
        self._set(params)
        if self._replica.is_due(n):
            jax.block_until_ready(params)  # before the time of the exchange begins
        self._replica.step(n)
        return self._params

    def agree(self, params: Any) -> Any:
        """Return the mean of all ranks, the same bits on each, and continue from it. Collective.

        Errors: as `step` and malt.Replica.agree.
        """
        self._set(params)
        self._replica.agree()
        return self._params

    def finish(self, params: Any) -> Any:
        """Return the mean of all ranks, the same bits on each, and end. Collective. A second call returns `params`.

        Leaves that are not exchanged stay each rank's own. Errors: as `step` and malt.Replica.finish.
        """
        self._set(params)
        self._replica.finish()
        return self._params

    def close(self) -> None:
        """End without a common pytree; peers no longer wait for this rank. One-sided."""
        self._replica.close()

    @property
    def every(self) -> int:
        """The current number of counts between two exchanges. Local."""
        return self._replica.every

    @property
    def vectors(self) -> list[Vector]:
        """The vectors that exchange the arrays, one for each dtype. Local."""
        return self._replica.vectors

    def statistics(self) -> ReplicaStatistics:
        """Return the totals of all vectors, and the current interval. Local; any thread may call it at any time."""
        return self._replica.statistics()

    # -- private ----------------------------------------------------------------------------------------------

    def _set(self, params: Any) -> None:
        self._leaves.check(params)
        if self._is_other:
            raise ValueError("malt.jax.Replica: this rank has other initial values than rank 0: begin with "
                             "params = replica.params, or use one key on all ranks")  # fmt: skip
        self._params = params

    def _take(self, arrays: dict[str, Any]) -> None:
        """Take the arrays of an exchange, which are this object's."""
        self._params = self._leaves.replaced(self._params, arrays)
