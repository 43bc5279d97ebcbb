"""The parameters of a Replica in groups, each of one dtype and one fragment, which are exchanged in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from dstorm.waits import interruption
from malt.session.replica.modes.exchange_mode import ExchangeMode
from malt.session.replica.modes.models import LoneModel, Models
from malt.session.replica.options import Plan
from malt.session.replica.parameters import Parameters
from malt.session.vectors.vector import vector
from malt.session.world.world import World
from vol.returns.packing import ARRAY, Values


class ParameterGroups:
    """The groups in which `parameters` are exchanged, with a mode and a vector each. Collective.

    `of_vector`: the arguments of the vectors. MemoryError, on all ranks: they do not fit. None is open then.
    """

    def __init__(self, world: World, parameters: Parameters, plan: Plan, name: str, **of_vector: Any) -> None:
        self._transport, self.parameters = world.transport, parameters
        self._meter = world.meter
        self._may_return = world.transport.returns is not None
        self._plan, self._overlaps = plan, plan.mode_options.overlaps
        self._is_lockstep, self._acknowledges = plan.consistency.lockstep, plan.consistency.acknowledges
        self._turns = self._before = 0
        """The exchanges so far, one fragment each; those of an earlier job, from which this one goes on."""
        self._moving = threading.Lock()
        """Held while `_turns` and the steps of the vectors change: in an exchange, and in `_keep_up`, which a thread
        may call that is in a collective call meanwhile."""
        self.count_now: Callable[[], int] = lambda: 0
        """What the loop has counted."""
        self.modes: list[ExchangeMode] = []
        self._places: list[list[int]] = []
        """The places of the arrays of each group among all."""
        self._by_turn: list[list[ExchangeMode]] = [[] for _ in range(plan.fragments)]
        self._under_way: list[ExchangeMode] = []
        """The groups that were sent and are to be merged: before the next ones are sent."""
        try:
            for fragment, places in parameters.groups(plan.fragments):
                arrays = [parameters.arrays[place] for place in places]
                is_lone = plan.mode is Models and len(places) == 1 and not self._overlaps
                title = f"{name}, {arrays[0].dtype}" + f", fragment {fragment}" * (plan.fragments > 1)
                kind = LoneModel if is_lone else plan.mode
                options = {**of_vector, **kind.of_vector(arrays, plan.mode_options), "name": title}
                mode = kind(vector(**options), arrays, plan.mode_options)
                self.modes.append(mode)
                self._places.append(places)
                self._by_turn[fragment].append(mode)
                if mode.vector.returning is not None:
                    mode.vector.returning.values = partial(self._given, mode)
                    mode.vector.returning.is_steady = False  # there is nothing to give before `give`
        except MemoryError:
            self.close()
            raise
        self._keeps_up = plan.consistency.is_stepwise and not self._is_lockstep
        if self._keeps_up:
            self._transport.duties.append(self._keep_up)
        self.vectors = [mode.vector for mode in self.modes]

    @property
    def turns_to_compare(self) -> int | None:
        """The exchanges so far, where ranks go on step by step; else None."""
        return self._turns if self._is_lockstep else None

    def close(self) -> None:
        """Close the vectors. One-sided."""
        if self._keep_up in self._transport.duties:
            self._transport.duties.remove(self._keep_up)
        for mode in self.modes:
            mode.vector.close()

    def start(self, comes_back: bool) -> int:
        """Begin with the parameters of the lowest rank; return the counts so far: none. Collective.

        Where this rank `comes_back` to what the others have, it begins where they are, with the state of one of them:
        after as many exchanges, and its counts. One-sided.
        """
        if comes_back:
            return self._start_with_others()
        for array in self.parameters.arrays:
            self._transport.broadcast(array)
        for mode in self.modes:
            mode.start()
        return 0

    def give(self) -> None:
        """Let ranks that come back get what there is, from here on. One-sided."""
        for mode in self.modes:
            self._end_exchange(mode)

    @interruption.whole
    def start_again(self) -> None:
        """Begin at the parameters that all ranks have now. Local. What is under way is merged no more."""
        self._under_way.clear()
        for mode in self.modes:
            mode.start()
        self.give()

    @interruption.whole
    def look_up(self) -> None:
        """Look the arrays up again. Local. ValueError, TypeError: as `Parameters.look_up`."""
        if self.parameters.look_up():
            arrays = self.parameters.arrays
            for mode, places in zip(self.modes, self._places, strict=True):
                mode.bind([arrays[place] for place in places])

    def exchange(self, count: int) -> None:
        """Merge what is under way, and send the groups whose turn it is, which are merged at once or are under way.

        One-sided. `count`: what the loop has counted. Where a merge has failed under "bsp" or "notify-ack" the group is
        under way: peers have what was sent, or wait until it is merged.
        """
        if self._keeps_up:
            self._transport.tell_left()  # before anything is sent: see `_keep_up`
        with self._moving:
            if self._acknowledges:
                self._merge_under_way()
            else:
                self._under_way.clear()
            due = self._by_turn[self._turns % len(self._by_turn)]
            self._turns += 1
            if self._meter is not None:
                self._meter.begin(sum(mode.vector.array.nbytes for mode in due))
            for mode in due:
                if self._may_return:
                    self._begin_exchange(mode)
                mode.send(float(count))
                self._under_way.append(mode)
                if not self._overlaps:
                    self._merge_under_way()
            if self._meter is not None:
                self._meter.end()

    def drop(self, counts: Mapping[int, float] | None = None) -> None:
        """Drop the messages that have come. One-sided. `counts`: as for `Vector.discard`."""
        for one in self.vectors:
            if not one.closed:
                one.discard(counts or {})

    @contextmanager
    def dropping(self, is_due: bool) -> Iterator[None]:
        """Drop what comes while the block waits for other ranks, if it `is_due`. Local.

        Under "notify-ack" one of them may wait in a scatter until this rank has taken its last message: it would never
        come.
        """
        if not is_due or self._is_lockstep or not self._acknowledges:
            yield
            return
        self._transport.duties.append(self.drop)
        try:
            yield
        finally:
            self._transport.duties.remove(self.drop)

    def kept(self) -> dict[str, Any]:
        """Return the state from which this rank resumes in a later job, with the parameters: not copies."""
        groups = [{"steps": mode.vector.steps_of_all_jobs, **mode.kept()} for mode in self.modes]
        under_way = [place for place, mode in enumerate(self.modes) if mode in self._under_way]
        return {"turns": self._turns, "under_way": under_way, "groups": groups, "arrays": list(self.parameters.arrays)}

    def check(self, given: Mapping[str, Any]) -> None:
        """Check that `resume` can go on from `given`. Local. ValueError: it is of another Replica, or comes late."""
        if any(mode.vector.step for mode in self.modes):
            raise ValueError("the state is loaded before the first exchange")
        ours, theirs = ([(one.shape, one.dtype) for one in map(np.asarray, arrays)]
                        for arrays in (self.parameters.arrays, given["arrays"]))  # fmt: skip
        if ours != theirs or len(given["groups"]) != len(self.modes):
            raise ValueError("the state does not match: it belongs to a Replica with other parameters or fragments")
        for mode, group in zip(self.modes, given["groups"], strict=True):
            for name, array in mode.kept().items():  # nothing is under way, or left out, yet
                if name not in group or np.shape(group[name]) != array.shape:
                    raise ValueError(
                        f"the state does not match: {name!r} belongs to a Replica with another average or outer"
                    )

    @interruption.whole
    def resume(self, given: Mapping[str, Any]) -> None:
        """Go on from what `kept` has returned on this rank in an earlier job, which `check` has checked. Local."""
        self._turns = self._before = int(given["turns"])
        for array, one in zip(self.parameters.arrays, given["arrays"], strict=True):
            array[...] = one
        for mode, group in zip(self.modes, given["groups"], strict=True):
            mode.vector.begin_after(int(group["steps"]))
            mode.start()
            mode.resume(group)
        self._under_way = [self.modes[place] for place in given["under_way"]]

    # -- private ----------------------------------------------------------------------------------------------

    def _keep_up(self) -> None:
        """In a collective call, go on to the exchange of the in-neighbours. One-sided. One of the duties.

        Under "ssp:S" an interval of its own lets each rank make other numbers of exchanges. A rank that is ahead would
        wait in a gather for one that waits for it in the call. All groups go on to one exchange: ranks would else wait
        for each other in different groups.
        """
        if not self._transport.lacks_ranks or not self._moving.acquire(blocking=False):
            return
        try:
            turns = max(self._turns, self._turns_after(lambda mode: mode.vector.newest_step()))
            # Not once all are in the call: a rank may leave it, and exchange, before this one leaves. If this one went
            # on to that, it would be ahead in one Replica alone, and each could wait for the other in another one.
            if self._transport.lacks_ranks:
                self._turns = turns
                for first, modes in zip(self._firsts, self._by_turn, strict=True):
                    for mode in modes:
                        mode.vector.go_on_to(-((first - turns) // len(self._by_turn)))
        finally:
            self._moving.release()

    @property
    def _firsts(self) -> list[int]:
        """By fragment, how many exchanges come before its first one of this job."""
        period = len(self._by_turn)
        return [self._before + (place - self._before) % period for place in range(period)]

    def _turns_after(self, step_of: Callable[[ExchangeMode], int]) -> int:
        """The exchanges that there were once each group had come to its step of this job."""
        steps = [max(map(step_of, modes), default=0) for modes in self._by_turn]
        period = len(self._by_turn)
        return max(first + (step - 1) * period + 1 for first, step in zip(self._firsts, steps, strict=True))

    def _start_with_others(self) -> int:
        for mode in self.modes:
            if (given := mode.vector.given) is None:
                mode.start()
            else:
                mode.take(given)
        count = self.vectors[0].step * self._plan.bounds[0]
        if (given := self.modes[0].vector.given) is not None:
            for place in self.parameters.integers:
                self.parameters.arrays[place][...] = given[f"integers {place}"]
            self._before, count = int(given["before"]), max(count, int(given["count"]))
        self._turns = self._turns_after(lambda mode: mode.vector.step)
        while not self._by_turn[self._turns % len(self._by_turn)]:  # a fragment without arrays, whose turn is over
            self._turns += 1
        return count

    def _merge_under_way(self) -> None:
        under_way = self._under_way
        while under_way:
            under_way[0].merge()
            if self._may_return:
                self._end_exchange(under_way[0])
            del under_way[0]

    def _given(self, mode: ExchangeMode) -> Values:
        """Return the state for a rank that rejoins: that of the group, and with the first one what is not exchanged."""
        given = mode.state()
        if mode is self.modes[0]:
            arrays = self.parameters.arrays
            given |= {f"integers {place}": arrays[place] for place in self.parameters.integers}
            given |= {"count": np.array(self.count_now()), "before": np.array(self._before)}
        return {ARRAY: mode.vector.array, **given}

    def _begin_exchange(self, mode: ExchangeMode) -> None:
        """Hold where ranks that come back are awaited. From here on they may get nothing of the group. One-sided."""
        if (returning := mode.vector.returning) is not None:
            returning.before_exchange()
            returning.is_steady = False

    def _end_exchange(self, mode: ExchangeMode) -> None:
        """Let ranks that come back get what there is now; give it to those that wait. One-sided."""
        if (returning := mode.vector.returning) is not None:
            returning.is_steady = True
            returning.serve()
