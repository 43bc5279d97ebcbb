"""Ways in which ranks on several hosts exchange the model of a linear SVM, each as a learner of apps.svm."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

import malt
from bench.benchmarks.svm.task import PROBLEM
from malt.models.linear import Examples, Learner, ModelLearner, SparseModelLearner


class Way(NamedTuple):
    """A way to exchange. All but `blocking` are options of apps.svm and of malt.Replica."""

    graph: Any = "all"
    degree: int | None = None
    sync: str = "asp"
    average: str = "model"
    vector: str = "dense"
    wire: str | None = None
    top: float | None = None
    outer: tuple[float, float] | None = None
    """The rate and the decay of malt.optim.nesterov."""
    blocking: bool = False
    """Whether ranks take the mean by MPI's own blocking Allreduce."""

    @property
    def every(self) -> int:
        """Learners exchange each time that they are asked to."""
        return 1

    @property
    def waits(self) -> bool:
        """Whether ranks wait for each other, so that all make as many exchanges."""
        return self.blocking or self.sync != "asp"


class Blocking(ModelLearner):
    """Every rank trains on its own, and MPI's Allreduce finds the mean of the models."""

    def _connect(self, sharing: Any, average: str, name: str | None) -> None:
        self._comm, self._alone, self.vectors = MPI.COMM_WORLD, False, []

    def _exchange(self, count: int) -> None:
        self._comm.Allreduce(MPI.IN_PLACE, self._params)
        np.divide(self._params, self._comm.size, out=self._params)

    def _leave(self) -> None:
        """There is nothing to close."""


class Changes(ModelLearner):
    """A ModelLearner whose Replica has an outer optimizer, or rounds what it sends."""

    def _connect(self, sharing: Any, average: str, name: str | None) -> None:
        outer = sharing.outer and malt.optim.nesterov(*sharing.outer)
        self._alone = False
        self._replica = malt.Replica(
            self._params, every=1, average=average, graph=sharing.graph, sync=sharing.sync, outer=outer,
            wire=sharing.wire, top=sharing.top,
        )  # fmt: skip
        self.vectors = self._replica.vectors


def learner(way: Way, data: Examples, n_features: int, eta0: float) -> Learner:
    """The learner of this way. Collective."""
    kind: type[ModelLearner] = {"dense": ModelLearner, "sparse": SparseModelLearner}[way.vector]
    if way.blocking:
        kind = Blocking
    elif way.wire or way.outer:
        kind = Changes
    sharing: Any = way if way.degree is None else way._replace(graph=malt.graph(way.graph, malt.size(), way.degree))
    return kind(PROBLEM, data, np.zeros(n_features + 1, np.float32), [eta0], sharing, way.average)


ALLREDUCE = "a blocking Allreduce"
_NEAR: dict[str, Any] = {"graph": "hierarchical"}
_ROUNDED: dict[str, Any] = {"sync": "bsp", "average": "delta", "wire": "int8"}
_OUTER = (0.7, 0.5)
WAYS = {
    ALLREDUCE: Way(blocking=True),
    "asp, all": Way(),
    "asp, hierarchical": Way(**_NEAR),
    "asp, hierarchical, int8": Way(**_NEAR, wire="int8"),
    "asp, hierarchical, float16": Way(**_NEAR, wire="float16"),
    "asp, hierarchical, outer Nesterov": Way(**_NEAR, average="delta", outer=_OUTER),
    "asp, hierarchical, sparse": Way(**_NEAR, vector="sparse"),
    "bsp, hierarchical, sparse": Way(**_NEAR, sync="bsp", vector="sparse"),
    "bsp, all, int8": Way(**_ROUNDED),
    "bsp, all, int8, a quarter": Way(**_ROUNDED, top=0.25),
    "bsp, all, int8, a quarter, outer Nesterov": Way(**_ROUNDED, top=0.25, outer=_OUTER),
    "bsp, all": Way(sync="bsp"),
    "bsp, hierarchical": Way(**_NEAR, sync="bsp"),
    "bsp, ring": Way(graph="ring", sync="bsp"),
}
LINK = tuple(WAYS)[:11]
"""Those that are compared over a link of a low rate."""
FAR = LINK[:4]
"""Those that are compared where a round trip takes long and packets are lost."""
