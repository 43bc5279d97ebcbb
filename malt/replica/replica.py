"""`malt.Replica`: the parameters of a model that ranks exchange, in four lines of an existing training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from dstorm import ClosedError, interruption, parse
from dstorm.membership import children
from dstorm.turn import Turn
from malt.replica import changes, consensus
from malt.replica.cadence import Cadence
from malt.replica.changes import Changes
from malt.replica.exchanges import traffic
from malt.replica.finishing import Finishing
from malt.replica.interval import TIMES, TIMES_ALONE, Interval
from malt.replica.options import AUTO, checked, is_by_host
from malt.replica.outer import Step
from malt.replica.pacing import TRIED, Auto, Fixed, Led, Pacing
from malt.replica.parameters import Parameters
from malt.replica.part import Part, Way, divided
from malt.replica.partners import call_of, partners
from malt.replica.totals import ReplicaStatistics, replica_statistics
from malt.session import session
from malt.session.creation import agree_on_replica, check_name, come_in
from malt.session.graphs import session_graph
from malt.watch.metrics import note_counts
from malt.world.agreement import exchange
from vol import Vector, arguments
from vol.update import Array


class Replica(Finishing):
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

    `every`: the examples or batches, as counted by `step`, between two exchanges. "auto", the default under "asp" and
    "ssp:S": an exchange costs a tenth of what is trained between two, on each rank by itself; on one rank a hundredth.
    Its cost is the time that it takes, waits included. The interval begins at 1, changes by a factor of 2 at most, and
    follows costs. It is as long as a link to another host takes for a message, if that is longer. `every=(low, high)`
    gives bounds; high may be None. `epoch`: the counts of this rank in an epoch, where they are known: there are at
    least 8 exchanges in one. Without it no more than a second of training lies between two. `statistics().every` has
    the interval in use. Under "bsp" and "notify-ack", and with `outer`, `wire`, `top` or `fragments`, the default is 1.
    Under "bsp" ranks exchange together: with "auto" or bounds they agree on one number after 8 exchanges, or in `agree`
    before that. It is that of the rank whose exchanges cost most, and is printed, so that `every=` repeats the run.
    With `outer`, `wire`, `top` and `fragments` it is a ValueError. In malt.simulate, where work takes no time, it is
    the lower bound, 1 for "auto".

    `average`: "model": w <- mean of own and received. Along "hierarchical" under "asp" and "ssp:S", which "auto" is on
    several hosts, each weighs the square root of the examples that are new in it here, as a model of another host may
    have been under way for long. Along other graphs it is the plain mean. "delta": the change d since the last exchange
    is sent, and w <- base + (d_own + sum of d_received) / (in-degree + 1). No change is lost with a message that is
    overwritten. `graph`, `sync`, `check_finite`: as for malt.vector. `name`: for messages, the same on all ranks. The
    default is the number of the Replica.

    `fragments`: the arrays are divided into so many fragments, which are exchanged in turn, each every `every` counts
    (Streaming DiLoCo, arXiv 2501.18512). What is sent at a turn is merged at the next one, and the loop goes on
    meanwhile: no rank waits for a message that is on its way. Under "asp" and "ssp:S" what has arrived is merged.

    The rest goes with average="delta", but for `wire`:

    `outer`: a step of malt.optim, made for this Replica alone, as malt.optim.nesterov(0.7, 0.9). The mean of the
    changes, negated, is its gradient, and its result the next base (DiLoCo, arXiv 2311.08105). The first exchanges, by
    default five, are its warm-up: the mean is added as it is (malt.optim, `warmup`). Under "asp" and "ssp:S"
    each rank makes the step with its own change, and the results are averaged: for the linear steps momentum and
    nesterov the same, but for what is under way. A step that counts, as adam, is for parameters of one dtype.
    Along a graph that is not complete, as "pairs", no rank hears of all changes, and the step brings ranks together,
    too: they send models, and -(mean of own and received - own base) is the gradient. Of the rank's pair that is the
    outer step of NoLoCo (arXiv 2506.10911, 3.2) with its gamma equal to beta, `rate`. As there, `decay` must be below
    `rate`, or ranks may drift apart: malt.optim.nesterov(0.7, 0.5), graph="pairs".

    `wire`: "int8" or "float16" sends changes rounded; "int8" has a scale for each 64 elements. `top`: the part, up to
    1, of these blocks that an exchange sends: those that have changed most. What was rounded off or left out is sent
    later. Until then it is in no rank's parameters, and `finish` does not add it. Both need "bsp" or "notify-ack", as
    an overwritten message would be lost for good.

    With average="model", `wire` rounds models as they leave for other hosts, under "asp" and "ssp:S". Inside a host,
    and in `finish`, models are whole. What is rounded off a model is not sent later: the next model takes its place.

    One line on stderr names the arrays that have not changed between the first exchanges.

    ValueError, the same on all ranks: an argument is wrong on one of them, or differs. MemoryError, on all ranks: the
    vectors do not fit. The parameters are left unchanged.
    """

    def __init__(
        self, params: Any, every: Any = None, average: str = "model", graph: Any = "auto", sync: str = "asp",
        check_finite: bool = False, *, set: Callable[[Any], object] | None = None, name: str | None = None,
        outer: Step | None = None, wire: str | None = None, top: float | None = None, fragments: int = 1,
        epoch: int | None = None,
    ) -> None:  # fmt: skip
        self._world = world = session.world()
        self._transport = world.transport
        self.name = f"Replica {world.replicas_made + 1}" if name is None else name
        """The name in messages."""

        def check() -> tuple[tuple[Parameters, tuple[int, int | None], bool], Mapping[str, Any]]:
            check_name(name)
            parameters, mesh = Parameters(params, set), session_graph(world, graph)
            bounds, gossips, same = checked(
                parameters, mesh, average, sync, every, epoch, world.transport.returns is not None,
                fragments=fragments, outer=outer, wire=wire, top=top,
            )  # fmt: skip
            return (parameters, bounds, gossips), {"name": self.name, **same}

        with world.transport.calling("malt.Replica"):
            (self._parameters, (low, high), gossips), comes_back = agree_on_replica(world, check)
            mode = parse(sync)
            overlaps = fragments > 1 and mode.acknowledges
            self._lockstep, self._acknowledges = mode.lockstep, mode.acknowledges and not mode.lockstep
            by_host = is_by_host(graph, world.transport.hosts)
            self._way = Way(world.transport.rank, average == "delta", by_host, outer, wire, top, overlaps, gossips)
            self._fragments, self._turns, self._count = fragments, 0, 0
            self._turn, self._is_exchanging = Turn(), False
            self._cadence, self._steps_to_reading = Cadence(self._transport.clock()), 1
            self._finished = False
            self._agreed_at: int | None = None
            """The count at which all ranks had one model last. None: they have not agreed on one since the start."""
            self._check_finite = check_finite
            self._parts: list[Part] = []
            self._under_way: list[Part] = []
            """The parts that were sent and are to be merged at the next turn."""
            self._followers: list[Replica] = []
            self._pacing: Pacing = Fixed(low, fragments)
            self._begin(comes_back, graph=graph, sync=sync, check_finite=check_finite)
            self._pacing = self._paced(low, high, epoch)
            self._due_at: float = self._pacing.due_after(self._count)
        self._changes: Changes | None = self._watched()
        self._unchanged: list[str] = []
        self._warned = False
        self.deliver()
        self._began_at, self._began_with = self._transport.clock(), self._count
        world.replicas.append(self)
        if world.meter is not None:
            world.meter.made(sum(part.vector.array.nbytes for part in self._parts), low)

    def step(self, n: int = 1) -> bool:
        """Count `n` examples or batches, and exchange once another `every` are counted. One-sided.

        Return whether it exchanged. The call is also a heartbeat, as malt.heartbeat().

        TypeError, ValueError: `n` is not a whole number from 0 up; or entries, shapes or dtypes of the parameters
        differ from those at the start. Nothing is sent. ClosedError: the call follows finish, close or malt.finalize.
        RuntimeError: an exchange is due, and another thread is in one, or the call is made by a function that an
        exchange calls. `n` is counted, nothing is sent.
        """
        if type(n) is not int or n < 0:
            n = arguments.whole("n", n, 0)
        if self._parts[0].vector.closed:
            raise self._closed_error("step", "this replica has left, by finish, close or malt.finalize")
        self._steps_to_reading -= 1
        if self._steps_to_reading <= 0:
            now = self._transport.clock()
            self._transport.begin_training(now)  # the first step reads the clock
            self._steps_to_reading = self._cadence.steps(now)
            self._transport.heartbeat()
        self._count += n
        if self._count < self._due_at:
            return False
        self._exchange()
        return True

    def finish(self) -> None:
        """Replace the parameters by the mean of those of all ranks: the same bits on all. Collective.

        The mean is over the live ranks that have counted a step, or over all live ranks if none has. With
        `check_finite` it leaves out models that hold NaN or infinity. Ranks that still train are not delayed before
        they call it. A second call does nothing.

        A rank that calls it while others call `agree` is left out there, and waits on.

        ClosedError: the call follows malt.finalize. DeadlinePassed: ranks are missing; the error names them.
        ValueError, the same on all ranks: one of them finishes another Replica, or entries, shapes or dtypes of its
        parameters differ from those at the start. The parameters are left unchanged, and the call may be repeated.
        """
        if self._finished:
            return
        if self._world.closed:
            raise self._closed_error("finish", "malt.finalize was called before, and ended the session of this replica")
        self.close()
        while not self.take_mean(ends=True):
            pass  # the others agree, and go on
        self.deliver()
        self._finished = True

    def agree(self) -> None:
        """Replace the parameters by the mean of those of all ranks, as `finish` does, and go on with it. Collective.

        All ranks have the same bits then: they may evaluate the model in shares, and save it. Messages that were sent
        before are not merged any more, and statistics() counts them as overwritten. Changes are from here on those
        since the mean; what `wire` and `top` have left for later is dropped. The state of `outer` stays, and so does
        the count towards the next exchange.

        A rank that waits in `finish` is left out: its parameters are no part of the mean, and stay. Under "bsp" all
        ranks make as many exchanges before the call, and under "ssp:S" about as many, or one waits for another in step.

        ClosedError: the call follows finish, close or malt.finalize. ValueError, the same on all ranks that agree: they
        agree on different Replicas; under "bsp", some have made more exchanges. Other errors: as of `finish`.
        """
        if self._parts[0].vector.closed:
            raise self._closed_error("agree", "this replica has left, by finish, close or malt.finalize")
        self.take_mean(ends=False)
        self.deliver()

    def take_mean(self, ends: bool) -> bool:
        """As `finish` if it `ends`, else as `agree`; return whether all ranks finish. Collective.

        Where others agree, a rank that ends has what it had. It is for those that end together with the Replica.
        """
        with self._turn.lock:  # once an exchange of a thread has ended
            if self._is_exchanging and not ends:
                raise RuntimeError(f"{self.name}.agree: it is called within an exchange of this Replica, by a callback")
            if self._pacing.is_open:  # first: ranks that train come to it before they are here
                self._agree_on_interval(None if ends else self._pacing.wish)
            with self._transport.calling(call_of("Replica")):
                return self._take_mean(ends)

    def close(self) -> None:
        """Close the vectors without a common model: peers no longer wait for this rank. One-sided."""
        for part in self._parts:
            part.vector.close()
        try:
            self._world.replicas.remove(self)
        except ValueError:  # a second call, perhaps of another thread
            return
        if not isinstance(self._pacing, Led):  # it has counted what its leader has
            note_counts(self._count - self._began_with, self._transport.clock() - self._began_at)

    def trust(self) -> None:
        """Watch no longer whether arrays change: they are known to be those that are trained. Local."""
        self._changes = None

    @property
    def has_stepped(self) -> bool:
        """Whether this rank has counted a step. Local."""
        return self._count > 0

    @property
    def is_apart(self) -> bool:
        """Whether this rank has counted a step since all ranks had one model. Local."""
        return self._count > (self._agreed_at or 0)

    def _closed_error(self, call: str, why: str) -> ClosedError:
        return ClosedError(f"Replica.{call}: {children.refusal() if self._parts[0].vector.disowned else why}")

    @property
    def every(self) -> int:
        """The counts between two exchanges, now. Local."""
        return self._pacing.every

    @property
    def vectors(self) -> list[Vector]:
        """The vectors that exchange the parameters, one for each dtype: for their statistics. Local."""
        return [part.vector for part in self._parts]

    def statistics(self) -> ReplicaStatistics:
        """The totals of all vectors, and the interval in use. Local; any thread may call it at any time."""
        return replica_statistics(self.vectors, self.every)

    def follow(self, leader: Replica) -> None:
        """Exchange when `leader` does, and only then: what this costs is part of what that costs. Local."""
        self._pacing = Led(leader._pacing.every)
        self._due_at = self._pacing.due_after(self._count)
        leader._followers.append(self)

    @property
    def outer_state(self) -> list[Array]:
        """The arrays that the step `outer` keeps, flat, not copies: for a checkpoint. Local."""
        return [array for part in self._parts for array in part.outer_state]

    # -- private ----------------------------------------------------------------------------------------------

    def _paced(self, low: int, high: int | None, epoch: int | None) -> Pacing:
        """The fixed interval, or one that follows what exchanges cost, on which ranks agree in lockstep. Local."""
        transport = self._transport
        if low == high or self._world.meter is not None or session.in_simulation():
            return self._pacing
        times = TIMES if transport.size > 1 else TIMES_ALONE
        interval = Interval(low, high, epoch, times=times)
        return Auto(interval, transport.clock, traffic(transport, self.vectors), self._lockstep, self._count)

    def _begin(self, comes_back: bool, **options: Any) -> None:
        """Make the vectors, and take the parameters of the lowest rank. Collective. MemoryError: on all ranks.

        Where this rank `comes_back` to what the others have, it takes the parameters of one of them. It begins where
        they are: after as many exchanges.
        """
        arrays = self._parameters.arrays
        try:
            for places in self._parameters.by_dtype():
                for fragment, some in enumerate(divided(places, arrays, self._fragments)):
                    title = f"{self.name}, {arrays[places[0]].dtype}" + f", fragment {fragment}" * (self._fragments > 1)
                    self._parts.append(Part(some, arrays, self._way, fragment, name=title, **options))
        except MemoryError:
            self.close()
            raise
        if comes_back:
            return self._begin_with_others(arrays)
        for array in arrays:
            self._transport.broadcast(array)
        for part in self._parts:
            part.start(arrays)
        self._share_integers()

    def _begin_with_others(self, arrays: Sequence[Array]) -> None:
        assert self._world.newcomer is not None
        self._world.newcomer.is_gathering = False
        come_in(self._world)
        for part in self._parts:
            part.start_from_others(arrays)
        given = self._parts[0].vector.given
        if given is not None:
            places = self._integers
            for place, values in zip(places, given[0][len(given[0]) - len(places) :], strict=True):
                arrays[place][...] = values.reshape(arrays[place].shape)
        exchanges = self._parts[0].vector.step
        self._turns, self._count = exchanges * self._fragments, exchanges * self._pacing.every
        if given is not None:
            self._count = max(self._count, given[1]["count"])
        self._share_integers()

    def _share_integers(self) -> None:
        """Have ranks that come back get the arrays of integers with the first part."""
        if self._parts:
            self._parts[0].further = lambda: [self._parameters.arrays[place] for place in self._integers]
            self._parts[0].facts = lambda: {"count": self._count}

    @property
    def _integers(self) -> list[int]:
        """The places of arrays that are not exchanged."""
        return [place for place in range(len(self._parameters.arrays)) if place not in self._parameters.floats]

    def _watched(self) -> Changes:
        """The arrays, watched from here on."""
        arrays, names = self._parameters.arrays, self._parameters.names
        made = Changes({place: names[place] for place in self._parameters.floats if arrays[place].size})
        made.record(arrays)
        return made

    @contextmanager
    def _dropping(self, is_due: bool) -> Iterator[None]:
        """Drop what comes while the block waits for other ranks. Local.

        Under "notify-ack" one of them may wait in a scatter until this rank has taken its last message: it would never
        agree.
        """
        is_due = is_due and self._acknowledges
        if is_due:
            self._transport.duties.append(self._drop)
        try:
            yield
        finally:
            if is_due:
                self._transport.duties.remove(self._drop)

    def _drop(self, counts: Mapping[int, float] | None = None) -> None:
        """Drop the messages that have come. One-sided. `counts`: as for `Vector.discard`."""
        for part in self._parts:
            if not part.vector.closed:
                part.vector.discard(counts or {})

    def _take_mean(self, ends: bool) -> bool:
        """As `take_mean`, where this rank knows its interval."""
        with self._dropping(not ends):
            is_over, reports = partners(self._world, "Replica", ends, partial(self._report, ends))
        arrays, counts = [self._parameters.arrays[place] for place in self._parameters.floats], self.has_stepped
        if is_over:
            self._warn_of_unchanged(list(reports.values()))
            self._average(arrays, counts)
        elif ends:  # of another Replica, perhaps
            kinds = next(iter(reports.values()))["_kinds"]
            self._average([np.zeros(shape, dtype) for shape, dtype in kinds], None)
        else:
            self._agree_on_mean(arrays, {rank: one["_count"] for rank, one in reports.items()})
        return is_over

    def _average(self, arrays: Sequence[Array], counts: bool | None) -> None:
        """Replace `arrays` by their means. Collective. `counts`: as for malt.replica.consensus.mean."""
        consensus.mean(self._transport, arrays, counts=counts, check_finite=self._check_finite, else_all=True)

    def _agree_on_mean(self, arrays: Sequence[Array], counts: Mapping[int, float]) -> None:
        """Replace `arrays` by their means, and begin anew with them. Collective. `counts`: of the ranks that agree.

        All ranks have entered the call, and what they had sent has come. None sends before all have dropped that: the
        mean is made by all ranks together.
        """
        self._drop(counts)
        self._under_way.clear()
        try:
            self._average(arrays, self.has_stepped)
        finally:  # where a rank is missing the call may be repeated
            for part in self._parts:
                part.start_again(self._parameters.arrays)
            if self._changes is not None:
                self._watch_on(self._changes, self._parameters.arrays)
        self._agreed_at = self._count

    @interruption.whole
    def _exchange(self) -> None:
        self._due_at = self._pacing.due_after(self._count)
        if not self._turn.lock.acquire(False):
            self._turn.insist(f"{self.name}.step")
        is_within, self._is_exchanging = self._is_exchanging, True
        try:
            if is_within:  # it would send what is half done
                raise RuntimeError(f"{self.name}.step: it is called within an exchange of this Replica, by a callback")
            if self._pacing.is_open and self._parts[0].vector.step >= TRIED:
                self._agree_on_interval(self._pacing.wish)
            self._exchange_in_time()
        finally:
            self._is_exchanging = is_within
            self._turn.lock.release()

    def _exchange_in_time(self) -> None:
        """Exchange, with those that follow; the next exchange is due by what it has cost."""
        self._pacing.begin(self._count)
        self._exchange_all()
        for one in self._followers:
            one._count = self._count
            one._exchange()
        self._due_at = self._pacing.end()

    def _agree_on_interval(self, wish: int | None) -> None:
        """Take the longest interval that a rank wishes for. None: this rank exchanges no more. Collective.

        All ranks come here once: in the exchange that follows `TRIED` ones, or in `agree` or `finish` before that.
        """
        with self._transport.calling(f"{self.name}: every={AUTO!r}"):
            wishes = [one for one in exchange(self._transport, wish).values() if one is not None]
        every = max(wishes, default=self._pacing.every)
        self._pacing = Fixed(every)
        if wishes:
            line = f"every={every} from here on, by what {TRIED} exchanges have cost: give that to repeat this run"
            self._world.report(f"malt: {self.name}: {line}")

    def _exchange_all(self) -> None:
        parameters, changes = self._parameters, self._changes
        if not parameters.is_fixed:
            parameters.look_up()
        arrays = parameters.arrays
        if changes is not None:
            changes.check(arrays)
        self._exchange_parts(arrays)
        if changes is not None:
            self._watch_on(changes, arrays)
        if not parameters.is_fixed:
            self.deliver()

    def _exchange_parts(self, arrays: Sequence[Array]) -> None:
        """Merge the fragment that is under way, and send the next one; or do both with one."""
        while self._under_way:
            self._under_way[0].merge(arrays)
            del self._under_way[0]  # only now: where its merge has failed, the next exchange makes it
        due = [part for part in self._parts if part.fragment == self._turns % self._fragments]
        self._turns += 1
        if self._world.meter is not None:
            self._world.meter.begin(sum(part.vector.array.nbytes for part in due))
        for part in due:
            part.send(arrays, self._count)
            if self._way.overlaps:
                self._under_way.append(part)
            else:
                part.merge(arrays)
        if self._world.meter is not None:
            self._world.meter.end()

    def deliver(self) -> None:
        """Give new values to `set`, after `take_mean`. Local."""
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

    def _report(self, ends: bool) -> Mapping[str, Any]:
        """This rank's report to the others in `finish`, or in `agree`."""
        self._parameters.look_up()
        if self._changes is not None:
            self._changes.check(self._parameters.arrays)
            self._unchanged = self._changes.unchanged
        mine = {
            "_stepped": self.has_stepped, "_unchanged": self._unchanged, "_warned": self._warned,
            "_count": float(self._count), "_agreed": self._agreed_at is not None,
        }  # fmt: skip
        if ends:
            return {"name": self.name, **mine}
        found = [self._parameters.arrays[place] for place in self._parameters.floats]
        kinds = [[list(array.shape), array.dtype.str] for array in found]
        exchanges = self._turns if self._lockstep else None
        return {"name": self.name, "exchanges": exchanges, **mine, "_kinds": kinds}

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
