"""A model that ranks keep in step: four lines for an existing training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from dstorm import ClosedError, parse
from dstorm.membership import children
from dstorm.turn import Turn
from malt.replica import changes, consensus
from malt.replica.cadence import Cadence
from malt.replica.changes import Changes
from malt.replica.parameters import Parameters
from malt.session import session
from malt.session.vectors import check_name, vector
from vol import AVG, SUM, DenseVector, Graph, Vector, arguments, as_graph
from vol.update import Array

_AVERAGES = ("model", "delta")


class Replica:
    """This rank's replica of the parameters of a model, exchanged with peers every so many steps.

        replica = malt.Replica(w, every=1000)
        for i in malt.shard(n_rows): ...
            replica.step()
        replica.finish()

    Collective. `params`: an array, which the loop goes on changing in place (`w += g`; `w = w + g` makes another, that
    nobody exchanges); or a dict or list of arrays, which are looked up in it again at each exchange, so that
    `p["w"] = p["w"] - g` will do; or a function that returns one of these, called at each exchange. What is found is
    written in place, unless `set` is given, a function that takes the new values: private copies in the same structure,
    at the start, after each exchange, and in finish. Arrays of integers in a dict or list are those of rank 0 at the
    start, and left alone from then on. All ranks start from rank 0's.

    `every`: examples or batches, as counted by `step`, between two exchanges. `average`: "model": w <- mean of own and
    received. "delta": d = change since the last exchange is sent, and
    w <- base + (d_own + sum of d_received) / (in-degree + 1). `graph`, `sync`, `check_finite`: as for malt.vector.
    `name`: for messages, the same on all ranks, by default the number of the Replica.

    ValueError, the same on all ranks: a bad argument on one of them, or arguments that differ. MemoryError, on all
    ranks: the vectors do not fit. Parameters are as before then. One line on stderr says which arrays have not changed
    between the first exchanges.
    """

    def __init__(
        self, params: Any, every: int = 1, average: str = "model", graph: Any = "auto", sync: str = "asp",
        check_finite: bool = False, *, set: Callable[[Any], object] | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        self._world = world = session.world()
        self._transport = world.transport
        self.name = f"Replica {world.replicas_made + 1}" if name is None else name
        """What messages call it."""

        def check() -> tuple[tuple[Parameters, int], Mapping[str, Any]]:
            check_name(name)
            parameters = Parameters(params, set)
            same = _same(parameters, average, as_graph(graph, world.size), sync)
            return (parameters, arguments.whole("every", every, 1)), {"name": self.name, **same}

        (self._parameters, self._every), _ = world.notes.agree(world.transport, "malt.Replica", check)
        world.replicas_made += 1
        self._delta = average == "delta"
        self._count, self._due_at = 0, self._every
        self._turn = Turn()
        self._cadence, self._steps_unseen = Cadence(self._transport.clock()), 1
        self._finished = False
        self._check_finite = check_finite
        self._parts: list[_Part] = []
        with self._transport.calling("malt.Replica"):
            self._begin(graph=graph, sync=sync, check_finite=check_finite)
        arrays, names = self._parameters.arrays, self._parameters.names
        watched = {place: names[place] for place in self._parameters.floats if arrays[place].size}
        self._changes: Changes | None = Changes(watched)
        self._unseen: list[str] = []
        self._warned = False
        self._changes.leave(arrays)
        self._deliver()
        world.replicas.append(self)

    def step(self, n: int = 1) -> bool:
        """Count `n` examples or batches; exchange when another `every` are full. Whether it did. For whoever waits for
        this rank a sign of life, as malt.heartbeat(). One-sided.

        TypeError, ValueError: `n` is not a whole number from 0 up; or the arrays that were looked up have other shapes
        or dtypes than at first, or are others: nothing has been sent then. ClosedError: after finish, close or
        malt.finalize. RuntimeError: an exchange is due, and another thread is in one: `n` was counted, nothing sent.
        """
        if type(n) is not int or n < 0:
            n = arguments.whole("n", n, 0)
        if self._parts[0].vector.closed:
            raise self._closed_error("step", "this replica has left, by finish, close or malt.finalize")
        self._steps_unseen -= 1
        if self._steps_unseen <= 0:
            self._steps_unseen = self._cadence.steps(self._transport.clock())
            self._transport.heartbeat()
        self._count += n
        if self._count < self._due_at:
            return False
        self._due_at = (self._count // self._every + 1) * self._every
        self._exchange()
        return True

    def finish(self) -> None:
        """End with one and the same model on all ranks, bit by bit: the mean of theirs, over the living ranks that have
        counted a step, over all where none has; with check_finite of those that are finite. Collective; a second call
        does nothing. Ranks that are still training are not held up before they call it.

        ClosedError: after malt.finalize. DeadlinePassed: who is missing. ValueError, the same on all ranks: one
        finishes another Replica, or the arrays that it looked up are not those that it began with: all stay as they
        are, and it may be called again.
        """
        if self._finished:
            return
        if self._world.closed:
            raise self._closed_error("finish", "malt.finalize was called before, and ended the session of this replica")
        self.close()
        with self._transport.calling("Replica.finish"):
            self._transport.barrier("Replica.finish")
            self._take_mean()
        self._deliver()
        self._finished = True

    def close(self) -> None:
        """Leave without a common model: peers no longer wait for this rank. One-sided."""
        for part in self._parts:
            part.vector.close()
        if self in self._world.replicas:
            self._world.replicas.remove(self)

    @property
    def has_stepped(self) -> bool:
        """Whether this rank has counted a step."""
        return self._count > 0

    def _closed_error(self, call: str, why: str) -> ClosedError:
        return ClosedError(f"Replica.{call}: {children.refusal() if self._parts[0].vector.disowned else why}")

    @property
    def vectors(self) -> list[Vector]:
        """The vectors that carry the parameters, one a dtype: for their statistics."""
        return [part.vector for part in self._parts]

    def __enter__(self) -> Replica:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()

    # -- private ----------------------------------------------------------------------------------------------

    def _begin(self, **options: Any) -> None:
        """Make the vectors, and start from the parameters of the lowest rank. MemoryError: on all ranks alike."""
        arrays = self._parameters.arrays
        try:
            for places in self._parameters.by_dtype():
                title = f"{self.name}, {arrays[places[0]].dtype}"
                self._parts.append(_Part(places, arrays, self._delta, name=title, **options))
        except MemoryError:
            self.close()
            raise
        for array in arrays:
            self._transport.broadcast(array)
        for part in self._parts:
            part.start(arrays)

    def _take_mean(self) -> None:
        _, reports = self._world.notes.agree(self._transport, "Replica.finish", self._ending)
        self._warn_of_unseen(list(reports.values()))
        exchanged = [self._parameters.arrays[place] for place in self._parameters.floats]
        counts, finite = self.has_stepped, self._check_finite
        consensus.mean(self._transport, exchanged, counts=counts, check_finite=finite, else_all=True)

    def _exchange(self) -> None:
        if not self._turn.lock.acquire(False):
            self._turn.insist(f"{self.name}.step")
        try:
            self._exchange_all()
        finally:
            self._turn.lock.release()

    def _exchange_all(self) -> None:
        parameters, changes = self._parameters, self._changes
        if not parameters.is_fixed:
            parameters.look_up()
        arrays = parameters.arrays
        if changes is not None:
            changes.look(arrays)
        for part in self._parts:
            part.exchange(arrays)
        if changes is not None:
            self._watch_on(changes, arrays)
        if not parameters.is_fixed:
            self._deliver()

    def _deliver(self) -> None:
        if self._parameters.deliver():
            why = "set= was given new values, and the function returns the old ones still: is there a nonlocal missing?"
            self._world.report(f"malt: {self.name}: {why}")

    def _watch_on(self, changes: Changes, arrays: Sequence[Array]) -> None:
        """Watch what has not been seen to change yet; or warn of it, where it was watched for long enough."""
        if not changes.is_over:
            changes.leave(arrays)
            return
        self._changes, self._unseen = None, changes.unseen
        if self._unseen:
            self._warn(self._unseen)

    def _ending(self) -> tuple[bool, Mapping[str, Any]]:
        """What the others must know of this rank as it finishes."""
        self._parameters.look_up()
        if self._changes is not None:
            self._changes.look(self._parameters.arrays)
            self._unseen = self._changes.unseen
        mine = {"_stepped": self.has_stepped, "_unseen": self._unseen, "_warned": self._warned}
        return True, {"name": self.name, **mine}

    def _warn_of_unseen(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """Warn of what nobody who stepped has seen to change, unless that has been done. Local."""
        stepped = [one for one in reports if one["_stepped"]]
        if not stepped or any(one["_warned"] for one in reports):
            return
        names = [name for name in stepped[0]["_unseen"] if all(name in one["_unseen"] for one in stepped)]
        if names:
            self._warn(names)

    def _warn(self, names: Sequence[str]) -> None:
        self._warned = self._world.report(changes.warning(self.name, names))


class _Part:
    """The parameters of one dtype, as one vector. A lone array is the vector's own where that can be, without a copy:
    also where another takes its place."""

    def __init__(self, places: Sequence[int], arrays: Sequence[Array], delta: bool, **options: Any) -> None:
        self._places = places
        self._delta = delta
        self._in_place = not delta and len(places) == 1
        mine = self._mine(arrays)
        made = vector(mine[0] if self._in_place else np.concatenate([one.reshape(-1) for one in mine]), **options)
        assert isinstance(made, DenseVector)
        self.vector = made

    def start(self, arrays: Sequence[Array]) -> None:
        """Take the parameters as they are now for those that all ranks start from."""
        if not self._in_place:
            self._copy_in(self._mine(arrays))
            self._base = self.vector.array.copy()

    def exchange(self, arrays: Sequence[Array]) -> None:
        if self._in_place:
            array = arrays[self._places[0]]
            if array is not self.vector.array:
                self.vector.adopt(array)
        else:
            self._load(self._mine(arrays))
        self.vector.scatter()
        self.vector.gather(SUM if self._delta else AVG)
        if not self._in_place:
            self._store(self._mine(arrays))

    def _mine(self, arrays: Sequence[Array]) -> list[Array]:
        return [arrays[place] for place in self._places]

    def _load(self, mine: Sequence[Array]) -> None:
        self._copy_in(mine)
        if self._delta:
            np.subtract(self.vector.array, self._base, out=self.vector.array)

    def _copy_in(self, mine: Sequence[Array]) -> None:
        start = 0
        for array in mine:
            self.vector.array[start : start + array.size] = array.reshape(-1)
            start += array.size

    def _store(self, mine: Sequence[Array]) -> None:
        if self._delta:
            self._base += self.vector.array / self.vector.array.dtype.type(1 + self.vector.in_degree)
        start = 0
        for array in mine:
            source = self._base if self._delta else self.vector.array
            array[...] = source[start : start + array.size].reshape(array.shape)
            start += array.size


def _same(parameters: Parameters, average: str, mesh: Graph, sync: str) -> Mapping[str, Any]:
    """What all ranks must have alike."""
    if average not in _AVERAGES:
        raise ValueError(f"average {average!r} is not valid: use {', '.join(map(repr, _AVERAGES))}")
    return {"params": parameters.described, "average": average, "graph": mesh.name, "sync": parse(sync).name}
