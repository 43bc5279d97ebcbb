"""`malt.Replica`: the parameters of a model that ranks exchange, in four lines of an existing training loop."""

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
from malt.replica.changesums import ChangeSums
from malt.replica.parameters import Parameters
from malt.session import session
from malt.session.creation import check_name
from malt.session.vectors import vector
from vol import AVG, SUM, DenseVector, Graph, Vector, arguments, as_graph
from vol.update import Array

_AVERAGES = ("model", "delta")


class Replica:
    """This rank's replica of the parameters of a model, which it exchanges with its peers every so many steps.

        replica = malt.Replica(w, every=1000)
        for i in malt.shard(n_rows): ...
            replica.step()
        replica.finish()

    Collective. All ranks start from the parameters of rank 0.

    `params` is one of these:

    - an array, which the loop changes in place: `w += g`. `w = w + g` makes a new array that is not exchanged;
    - a dict or list of arrays. Its entries are looked up at each exchange, so that `p["w"] = p["w"] - g` works;
    - a function that returns one of these. It is called at each exchange.

    New values are written into the arrays, in place. `set`: a function that is called with the new values instead, at
    the start, after each exchange and in `finish`. They are private copies in the structure of `params`. Arrays of
    integers in a dict or list take the values of rank 0 at the start, and are not exchanged.

    `every`: the examples or batches, as counted by `step`, between two exchanges. `average`: "model": w <- mean of own
    and received. "delta": the change d since the last exchange is sent, and
    w <- base + (d_own + sum of d_received) / (in-degree + 1). No change is lost with a message that is overwritten.
    `graph`, `sync`, `check_finite`: as for malt.vector. `name`: for messages, the same on all ranks. The default is the
    number of the Replica.

    One line on stderr names the arrays that have not changed between the first exchanges.

    ValueError, the same on all ranks: an argument is wrong on one of them, or differs. MemoryError, on all ranks: the
    vectors do not fit. The parameters are left unchanged.
    """

    def __init__(
        self, params: Any, every: int = 1, average: str = "model", graph: Any = "auto", sync: str = "asp",
        check_finite: bool = False, *, set: Callable[[Any], object] | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        self._world = world = session.world()
        self._transport = world.transport
        self.name = f"Replica {world.replicas_made + 1}" if name is None else name
        """The name in messages."""

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
        self._cadence, self._steps_to_reading = Cadence(self._transport.clock()), 1
        self._finished = False
        self._check_finite = check_finite
        self._parts: list[_Part] = []
        with self._transport.calling("malt.Replica"):
            self._begin(graph=graph, sync=sync, check_finite=check_finite)
        arrays, names = self._parameters.arrays, self._parameters.names
        watched = {place: names[place] for place in self._parameters.floats if arrays[place].size}
        self._changes: Changes | None = Changes(watched)
        self._unchanged: list[str] = []
        self._warned = False
        self._changes.record(arrays)
        self._deliver()
        world.replicas.append(self)

    def step(self, n: int = 1) -> bool:
        """Count `n` examples or batches, and exchange once another `every` are counted. One-sided.

        Return whether it exchanged. The call is also a heartbeat, as malt.heartbeat().

        TypeError, ValueError: `n` is not a whole number from 0 up; or entries, shapes or dtypes of the parameters
        differ from those at the start. Nothing is sent. ClosedError: the call follows finish, close or malt.finalize.
        RuntimeError: an exchange is due, and another thread is in one. `n` is counted, nothing is sent.
        """
        if type(n) is not int or n < 0:
            n = arguments.whole("n", n, 0)
        if self._parts[0].vector.closed:
            raise self._closed_error("step", "this replica has left, by finish, close or malt.finalize")
        self._steps_to_reading -= 1
        if self._steps_to_reading <= 0:
            self._steps_to_reading = self._cadence.steps(self._transport.clock())
            self._transport.heartbeat()
        self._count += n
        if self._count < self._due_at:
            return False
        self._due_at = (self._count // self._every + 1) * self._every
        self._exchange()
        return True

    def finish(self) -> None:
        """Replace the parameters by the mean of those of all ranks: the same bits on all. Collective.

        The mean is over the live ranks that have counted a step, or over all live ranks if none has. With
        `check_finite` it leaves out models that hold NaN or infinity. Ranks that still train are not delayed before
        they call it. A second call does nothing.

        ClosedError: the call follows malt.finalize. DeadlinePassed: ranks are missing; the error names them.
        ValueError, the same on all ranks: one of them finishes another Replica, or entries, shapes or dtypes of its
        parameters differ from those at the start. The parameters are left unchanged, and the call may be repeated.
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
        """Close the vectors without a common model: peers no longer wait for this rank. One-sided."""
        for part in self._parts:
            part.vector.close()
        if self in self._world.replicas:
            self._world.replicas.remove(self)

    @property
    def has_stepped(self) -> bool:
        """Whether this rank has counted a step. Local."""
        return self._count > 0

    def _closed_error(self, call: str, why: str) -> ClosedError:
        return ClosedError(f"Replica.{call}: {children.refusal() if self._parts[0].vector.disowned else why}")

    @property
    def vectors(self) -> list[Vector]:
        """The vectors that exchange the parameters, one for each dtype: for their statistics. Local."""
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
        """Make the vectors, and take the parameters of the lowest rank. Collective. MemoryError: on all ranks."""
        arrays = self._parameters.arrays
        try:
            for places in self._parameters.by_dtype():
                title = f"{self.name}, {arrays[places[0]].dtype}"
                self._parts.append(_Part(places, arrays, self._delta, self._transport.rank, name=title, **options))
        except MemoryError:
            self.close()
            raise
        for array in arrays:
            self._transport.broadcast(array)
        for part in self._parts:
            part.start(arrays)

    def _take_mean(self) -> None:
        """Replace the parameters by their mean. Collective."""
        _, reports = self._world.notes.agree(self._transport, "Replica.finish", self._ending)
        self._warn_of_unchanged(list(reports.values()))
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
            changes.check(arrays)
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
        """Go on watching the arrays that have not changed yet; warn of them after enough checks."""
        if not changes.is_over:
            changes.record(arrays)
            return
        self._changes, self._unchanged = None, changes.unchanged
        if self._unchanged:
            self._warn(self._unchanged)

    def _ending(self) -> tuple[bool, Mapping[str, Any]]:
        """This rank's report to the others in `finish`."""
        self._parameters.look_up()
        if self._changes is not None:
            self._changes.check(self._parameters.arrays)
            self._unchanged = self._changes.unchanged
        mine = {"_stepped": self.has_stepped, "_unchanged": self._unchanged, "_warned": self._warned}
        return True, {"name": self.name, **mine}

    def _warn_of_unchanged(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """Warn of arrays that changed on no rank that counted a step, unless a rank has warned already. Local."""
        stepped = [one for one in reports if one["_stepped"]]
        if not stepped or any(one["_warned"] for one in reports):
            return
        names = [name for name in stepped[0]["_unchanged"] if all(name in one["_unchanged"] for one in stepped)]
        if names:
            self._warn(names)

    def _warn(self, names: Sequence[str]) -> None:
        self._warned = self._world.report(changes.warning(self.name, names))


class _Part:
    """The parameters of one dtype, as one vector.

    With average="model" a lone array is the array of the vector itself, not a copy. So is an array that replaces it.
    With "delta" the vector holds what is sent: the change since the last exchange, or under "asp" and "ssp:S", where
    messages may be overwritten, the change since the start.
    """

    def __init__(
        self, places: Sequence[int], arrays: Sequence[Array], delta: bool, rank: int, **options: Any
    ) -> None:  # fmt: skip
        self._places, self._rank = places, rank
        self._delta = delta
        self._in_place = not delta and len(places) == 1
        mine = self._mine(arrays)
        self._as_sums = delta and not parse(options["sync"]).acknowledges
        made = vector(mine[0] if self._in_place else np.concatenate([one.reshape(-1) for one in mine]), **options)
        assert isinstance(made, DenseVector)
        self.vector = made

    def start(self, arrays: Sequence[Array]) -> None:
        """Record `arrays` as the parameters that all ranks start from."""
        if not self._in_place:
            self._copy_in(self._mine(arrays))
        if self._as_sums:
            self._sums = ChangeSums(self.vector, self._rank)
        elif self._delta:
            self._base = self.vector.array.copy()

    def exchange(self, arrays: Sequence[Array]) -> None:
        """Send the parameters to the peers, merge what has come from them, and write the result. One-sided."""
        mine = self._mine(arrays)
        if self._in_place:
            if mine[0] is not self.vector.array:
                self.vector.adopt(mine[0])
            self._average()
        elif self._as_sums:
            self._sums.exchange(mine)
            self._store(self._sums.params, mine)
        elif self._delta:
            self._copy_in(mine)
            np.subtract(self.vector.array, self._base, out=self.vector.array)
            self.vector.scatter()
            self.vector.gather(SUM)
            self._base += self.vector.array / self.vector.array.dtype.type(1 + self.vector.in_degree)
            self._store(self._base, mine)
        else:
            self._copy_in(mine)
            self._average()
            self._store(self.vector.array, mine)

    def _average(self) -> None:
        self.vector.scatter()
        self.vector.gather(AVG)

    def _mine(self, arrays: Sequence[Array]) -> list[Array]:
        return [arrays[place] for place in self._places]

    def _copy_in(self, mine: Sequence[Array]) -> None:
        start = 0
        for array in mine:
            self.vector.array[start : start + array.size] = array.reshape(-1)
            start += array.size

    def _store(self, source: Array, mine: Sequence[Array]) -> None:
        start = 0
        for array in mine:
            array[...] = source[start : start + array.size].reshape(array.shape)
            start += array.size


def _same(parameters: Parameters, average: str, mesh: Graph, sync: str) -> Mapping[str, Any]:
    """The arguments that must be the same on all ranks."""
    if average not in _AVERAGES:
        raise ValueError(f"average {average!r} is not valid: use {', '.join(map(repr, _AVERAGES))}")
    return {"params": parameters.described, "average": average, "graph": mesh.name, "sync": parse(sync).name}
