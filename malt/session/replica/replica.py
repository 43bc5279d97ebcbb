"""`malt.Replica`: the parameters of a model that ranks exchange, in four lines of an existing training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dstorm import ClosedError
from dstorm.call_lock import CallLock
from dstorm.membership import children
from dstorm.waits import interruption
from dstorm.waits.core_waits import waited_for_core_s
from malt.session import session
from malt.session.replica.consensus import CommonModel, call_of
from malt.session.replica.heartbeat_interval import HeartbeatInterval
from malt.session.replica.interval import TIMES, TIMES_ALONE
from malt.session.replica.options import AUTO, Plan, checked, is_by_host
from malt.session.replica.pacing import TRIED, Fixed, Led, Pacing, pacing
from malt.session.replica.parameter_groups import ParameterGroups
from malt.session.replica.parameters import Parameters, Unchanged
from malt.session.replica.resuming import ENDED, Resumes
from malt.session.replica.totals import ReplicaStatistics, replica_statistics
from malt.session.vectors.creation import agree_on_replica, check_name
from malt.session.vectors.graphs import session_graph
from malt.session.world.agreement import exchange
from malt.watch.metrics import note_counts
from vol import Vector, arguments
from vol.update import Array

if TYPE_CHECKING:
    from malt.session.replica.modes.outer import Step


class Replica(Resumes):
    """This rank's replica of a model, which it exchanges with its peers at intervals. Collective.

        replica = malt.Replica(w, every=1000)
        for i in malt.shard(n_rows): ...
            replica.step()
        replica.finish()

    All ranks start from the parameters of rank 0. As a context manager, `with malt.Replica(w) as replica:`, it calls
    `finish` at the end of the block, and `close` if the block raises.

    `params`: one of

    - an array, which the loop changes in place: `w += g`. `w = w + g` makes a new array that is not exchanged;
    - a dict or list of arrays. Its entries are looked up at each exchange, so that `p["w"] = p["w"] - g` works;
    - a function that returns one of these. It is called at each exchange.

    New values are written into the arrays, in place. Integer arrays in a dict or list take the values of rank 0 at the
    start, and are not exchanged. A line on stderr names arrays that have not changed between the first exchanges.

    `set`: a function that is called with the new values instead, at the start, after each exchange and in `finish`.
    They are private copies in the structure of `params`.

    `every`: the number of examples or batches, as counted by `step`, between two exchanges. The default under "asp" and
    "ssp:S" is "auto": an exchange, including waits, costs a tenth of the training between two exchanges, on each rank
    by itself; on a single rank a hundredth. Between hosts time in which the loop waits for a core, while a message is
    on its way, is part of the cost. The interval starts at 1, changes by at most a factor of 2, and is at least
    the time that a link to another host takes for a message. `every=(low, high)` sets bounds; high may be None.
    `statistics().every` is the current interval. Under "bsp" and "notify-ack", and with `outer`, `wire`, `top` or
    `fragments`, the default is 1. Under "bsp" ranks exchange together: with "auto" or bounds they agree on one number
    after 8 exchanges, or in `agree` before that. It is that of the rank whose exchanges cost most, and is printed, so
    that `every=` repeats the run. "auto" and bounds are a ValueError with `outer`, `wire`, `top` and `fragments`. In
    malt.simulate, where work takes no time, the interval is the lower bound, 1 for "auto".

    `epoch`: this rank's number of counts per epoch, if known: each then has at least 8 exchanges. Without it, at most a
    second of training passes between two exchanges.

    `average`: "model": w <- mean of own and received. Along "hierarchical" under "asp" and "ssp:S", which is "auto" on
    several hosts, each model is weighted by the square root of the examples that are new in it, as a model from
    another host may have been on its way for long. Along other graphs it is the plain mean. "delta": the change d since
    the last exchange is sent, and w <- base + (d_own + sum of d_received) / (in-degree + 1). No change is lost with a
    message that is overwritten.

    `graph`, `sync`, `check_finite`: as for malt.vector. `name`: for messages, the same on all ranks. The default is the
    number of the Replica.

    `fragments`: the number of parts into which the arrays are divided. They are exchanged in turn, each every `every`
    counts (Streaming DiLoCo, arXiv 2501.18512). What is sent at one turn is merged at the next, while the loop
    continues: no rank waits for a message that is on its way. Under "asp" and "ssp:S" whatever has arrived is merged.

    The following need average="delta", except for `wire`:

    `outer`: a step of malt.optim, made for this Replica alone, such as malt.optim.nesterov(0.7, 0.9). Its gradient is
    the negated mean of the changes, and its result the next base (DiLoCo, arXiv 2311.08105). The first exchanges, five
    by default, are its warm-up: they add the mean unchanged (`warmup` of malt.optim). Under "asp" and "ssp:S" each rank
    makes the step with its own change, and the results are averaged: the same for the linear steps momentum and
    nesterov, except for messages on their way. Along an incomplete graph, such as "pairs", no rank receives all
    changes, and the step also brings ranks together: they send models, and the gradient is -(mean of own and received -
    own base). With "pairs" this is the outer step of NoLoCo (arXiv 2506.10911, 3.2) with its gamma equal to beta,
    `rate`. As there, `decay` must be below `rate`, or ranks may drift apart: malt.optim.nesterov(0.7, 0.5),
    graph="pairs".

    `wire`: "int8" or "float16" sends changes rounded; "int8" has a scale for each 64 elements. With average="model" it
    rounds models on their way to other hosts, under "asp" and "ssp:S"; they are exact within a host and in `finish`,
    and what is rounded off a model is not sent later, because the next model replaces it.

    `top`: the fraction, up to 1, of these blocks of 64 that an exchange sends: those that have changed most. What
    `wire` rounds off changes and `top` leaves out is sent later. Until then it is in no rank's parameters, and `finish`
    does not add it. Both need "bsp" or "notify-ack" with changes, as an overwritten message would be lost for good.

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
        self._transport = transport = world.transport
        self.name = f"Replica {world.replicas_made + 1}" if name is None else name
        """The name in messages."""

        def check() -> tuple[tuple[Parameters, Plan], Mapping[str, Any]]:
            """Return this rank's parameters and plan, and the arguments that must be the same on all. Local."""
            check_name(name)
            arguments.truth("check_finite", check_finite)
            parameters, mesh = Parameters(params, set), session_graph(world, graph)
            plan, same = checked(
                parameters, mesh, average, sync, every, epoch, transport.returns is not None, rank=transport.rank,
                by_host=is_by_host(graph, transport.hosts), fragments=fragments, outer=outer, wire=wire, top=top,
            )  # fmt: skip
            return (parameters, plan), {"name": self.name, **same}

        with transport.calling("malt.Replica"):
            (self._parameters, self._plan), comes_back = agree_on_replica(world, check)
            of_vector = dict(graph=graph, sync=sync, check_finite=check_finite)
            self._groups = ParameterGroups(world, self._parameters, self._plan, self.name, **of_vector)
            self._vector, self._count = self._groups.vectors[0], 0
            self._groups.count_now = lambda: self._count
            self._count = self._groups.start(comes_back)
            self._groups.give()
            self._followers: list[Replica] = []
            self._epoch, self._pacing = epoch, self._paced(epoch)
            self._due_at = self._pacing.begin(self._count)
        self._call_lock, self._is_exchanging = CallLock(), False
        self._heartbeats, self._steps_to_heartbeat = HeartbeatInterval(transport.clock()), 1
        self._finished = False
        self._unchanged = Unchanged(self._parameters, self.name, world.report)
        self._model = CommonModel(world, self.name, self._groups, self._unchanged, check_finite)
        self.deliver()
        self._began_at, self._began_with = transport.clock(), self._count
        world.replicas.append(self)
        if world.meter is not None:
            world.meter.made(sum(vector.array.nbytes for vector in self.vectors), self._plan.bounds[0])

    def step(self, n: int = 1) -> bool:
        """Count `n` examples or batches, and exchange when another `every` have been counted. One-sided.

        Return whether it exchanged. The call is also a heartbeat, like malt.heartbeat().

        TypeError, ValueError: `n` is not a non-negative integer, or entries, shapes or dtypes of the parameters differ
        from those at the start; nothing is sent. ClosedError: finish, close or malt.finalize was called before.
        RuntimeError: an exchange is due, and another thread is in one, or a function that an exchange calls has called
        step; `n` is counted, nothing is sent.
        """
        if type(n) is not int or n < 0:
            n = arguments.whole("n", n, 0)
        if self._vector.closed:
            raise self._closed_error("step", ENDED)
        self._steps_to_heartbeat -= 1
        if self._steps_to_heartbeat <= 0:
            now = self._transport.clock()
            self._transport.begin_training(now)  # the first step reads the clock
            self._steps_to_heartbeat = self._heartbeats.steps(now)
            self._transport.heartbeat()
        self._count += n
        if self._count < self._due_at:
            return False
        try:
            self._exchange()
        finally:
            if interruption.pending is not None:
                interruption.raise_pending()
        return True

    def finish(self) -> None:
        """Replace the parameters with the mean over all ranks, the same bits on each, and end. Collective.

        The mean is over the live ranks that have counted a step, or over all live ranks if none has. With
        `check_finite` it leaves out models with NaN or infinity. Ranks that still train are not delayed until they
        call it. A second call does nothing.

        A rank that calls it while others call `agree` is left out of their mean, and continues to wait.

        ClosedError: malt.finalize was called before. DeadlinePassed: ranks are missing; the error names them.
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
        """Replace the parameters with the mean over all ranks, as `finish` does, and continue from it. Collective.

        All ranks then have the same bits, so that each can evaluate the model on a share of the rows, or save it.
        Messages sent before are no longer merged, and statistics() counts them as overwritten. Changes are counted from
        the mean; what `wire` and `top` have left for later is dropped. The state of `outer` is kept, and so is the
        count towards the next exchange.

        A rank that waits in `finish` is left out: its parameters do not enter the mean, and stay unchanged. Under "bsp"
        all ranks must have made the same number of exchanges, or one waits for another in step. Under "ssp:S" a rank
        that waits here, or in another collective call, goes on to the steps of the others, without exchanging: they do
        not wait for it.

        ClosedError: finish, close or malt.finalize was called before. ValueError, the same on all ranks that agree:
        they agree on different Replicas; under "bsp", some have made more exchanges. Other errors: as for `finish`.
        """
        if self._vector.closed:
            raise self._closed_error("agree", ENDED)
        self.take_mean(ends=False)
        self.deliver()

    def take_mean(self, ends: bool) -> bool:
        """Take the mean, to finish if it `ends`, else to agree; return whether all ranks finish. Collective.

        A rank that ends while others agree keeps the parameters it had. This is for objects that end together with the
        Replica.
        """
        with self._call_lock.lock:  # once an exchange of a thread has ended
            if self._is_exchanging and not ends:
                raise RuntimeError(f"{self.name}.agree: it is called within an exchange of this Replica, by a callback")
            if self._pacing.is_open:  # first: ranks that train come to it before they are here
                self._agree_on_interval(None if ends else self._pacing.wish)
            with self._transport.calling(call_of("Replica")):
                return self._model.take(ends, self._count)

    def close(self) -> None:
        """End without a common model; peers no longer wait for this rank. One-sided."""
        self._groups.close()
        try:
            self._world.replicas.remove(self)
        except ValueError:  # a second call, perhaps of another thread
            return
        if self._plan.bounds[0] != self._plan.bounds[1] and self._transport.trace is not None:
            from malt.watch.trace.layout import INTERVAL

            name = self.name.replace(": ", " ")  # of which names of vectors are known
            self._transport.trace.name(f"{INTERVAL}{self.every} {name}")
        if not isinstance(self._pacing, Led):  # it has counted what its leader has
            note_counts(self._count - self._began_with, self._transport.clock() - self._began_at)

    def trust(self) -> None:
        """Watch no longer whether arrays change, by the loop or by `set`: they are known to be those of it. Local."""
        self._unchanged.trust()
        self._parameters.trust()

    def is_due(self, n: int = 1) -> bool:
        """Return whether step(n) would exchange now. Local."""
        return self._count + n >= self._due_at

    @property
    def is_apart(self) -> bool:
        """True if this rank has counted a step since all ranks had one model. Local."""
        return self._count > (self._model.agreed_at or 0)

    def _closed_error(self, call: str, why: str) -> ClosedError:
        return ClosedError(f"Replica.{call}: {children.refusal() if self._vector.disowned else why}")

    @property
    def every(self) -> int:
        """The current number of counts between two exchanges. Local."""
        return self._pacing.every

    @property
    def vectors(self) -> list[Vector]:
        """The vectors that exchange the parameters, one for each dtype. Local."""
        return list(self._groups.vectors)

    def statistics(self) -> ReplicaStatistics:
        """Return the totals of all vectors, and the current interval. Local; any thread may call it at any time."""
        return replica_statistics(self.vectors, self.every)

    def follow(self, leader: Replica) -> None:
        """Exchange when `leader` does, and only then: what this costs is part of what that costs. Local."""
        self._pacing = Led(leader._pacing.every)
        self._due_at = self._pacing.begin(self._count)
        leader._followers.append(self)

    @property
    def outer_state(self) -> list[Array]:
        """The arrays that the optimizer `outer` keeps, flat, not copied: for a checkpoint. Local."""
        return [array for mode in self._groups.modes for array in mode.outer_state]

    def deliver(self) -> None:
        """Give new values to `set`, after `take_mean`. Local."""
        if self._parameters.deliver():
            why = "set= was given new values, and the function still returns the old ones: is a nonlocal missing?"
            self._world.report(f"malt: {self.name}: {why}")

    # -- private ----------------------------------------------------------------------------------------------

    def _paced(self, epoch: int | None) -> Pacing:
        """The fixed interval, or one that follows what exchanges cost, on which ranks agree in lockstep. Local."""
        transport, plan = self._transport, self._plan
        is_timed = self._world.meter is None and not session.in_simulation()
        return pacing(
            transport, self.vectors, plan.bounds, is_timed, waited_for_core_s, epoch=epoch, fragments=plan.fragments,
            times=TIMES if transport.size > 1 else TIMES_ALONE, agrees=plan.consistency.lockstep, count=self._count,
        )  # fmt: skip

    @interruption.undivided
    def _exchange(self) -> None:
        """Exchange, with those that follow; the next exchange is due by what it has cost."""
        if not self._call_lock.lock.acquire(False):
            self._call_lock.insist(f"{self.name}.step")
        is_within, self._is_exchanging = self._is_exchanging, True
        try:
            if is_within:  # it would send what is half done
                raise RuntimeError(f"{self.name}.step: it is called within an exchange of this Replica, by a callback")
            if self._pacing.is_open and self._vector.step >= TRIED:
                self._agree_on_interval(self._pacing.wish)
            self._due_at = self._pacing.begin(self._count)
            groups, unchanged, is_fixed = self._groups, self._unchanged, self._parameters.is_fixed
            if not is_fixed:
                groups.look_up()
            if unchanged.is_watching:
                unchanged.check()
            groups.exchange(self._count)
            if unchanged.is_watching:
                unchanged.go_on()
            if not is_fixed:
                self.deliver()
            for one in self._followers:
                one._count = self._count
                one._exchange()
            self._due_at = self._pacing.end()
        finally:
            self._is_exchanging = is_within
            self._call_lock.lock.release()

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
