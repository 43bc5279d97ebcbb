"""The partial_fit loops of all ranks: how they begin alike, exchange and end equal."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from dstorm import ClosedError, parse
from dstorm.errors import Refused
from malt.files.values import joined, pack, parted
from malt.session import session
from malt.session.replica.consensus import call_of, partners
from malt.session.replica.options import bounds
from malt.session.replica.replica import Replica
from malt.session.replica.totals import ReplicaStatistics
from malt.session.vectors.creation import agree_on_replica
from malt.session.vectors.graphs import session_graph
from malt.session.world.agreement import agree, exchange, succeed
from malt.sklearn.states import Counts, State, state_of
from vol import arguments
from vol.update import Array

_CALL: Final = "malt.sklearn.average"
_OWN: Final = ("random_state", "verbose", "n_jobs", "init")
"""Parameters of estimators that may differ between ranks."""
_BEGUN: Final = "begun"
"""What ranks that come are told of an averaging: what the others have begun with. None: they have not."""
_APART: Final = "ranks add up at the end what they have counted, which is lost where one leaves or fails"
"""Why no rank comes or goes."""


class Averaging:
    """The estimator of this rank, and what it exchanges. Collective.

    Without coefficients there is nothing to exchange. So the first partial_fit on each rank, or its finish, is
    collective, and makes the Replica. A rank that comes to others that have made it begins where they are.
    """

    def __init__(self, estimator: Any, every: Any, epoch: int | None, graph: Any, sync: str) -> None:
        self._world = world = session.world()
        self._transport = world.transport

        def check() -> tuple[State, Mapping[str, Any]]:
            state = state_of(estimator)
            if world.is_elastic and isinstance(state, Counts):
                raise ValueError(f"{type(estimator).__name__}: {_APART}: start it without --elastic")
            same: dict[str, Any] = {"graph": session_graph(world, graph).name, "sync": parse(sync).name}
            least, most = bounds(every, sync)
            same["every"] = least if least == most else f"auto, {least} to {most}"
            if epoch is not None:
                arguments.whole("epoch", epoch, 1)
            classes = _listed(getattr(estimator, "classes_", None))
            same |= {
                f"the parameter {name}": repr(value)
                for name, value in estimator.get_params(deep=False).items()
                if name not in _OWN
            }
            return state, {**self._described, "fitted": bool(state.arrays), "classes": classes, **same}

        self.estimator = estimator
        with self._transport.calling(_CALL):  # no rank comes in the middle
            name = f"{_CALL} {world.replicas_made + 1}"
            self._state, comes_back = agree_on_replica(world, check, _CALL)
            if comes_back and isinstance(self._state, Counts):
                raise Refused(world.rank, f"{_CALL}: {type(estimator).__name__}: {_APART}")
            self._options = {"every": every, "epoch": epoch, "graph": graph, "sync": sync, "name": name}
            self._signature = inspect.signature(estimator.partial_fit)
            self._counted = self._counts_from = self._counter
            """The counter of all estimators at the start; that from which this rank counts, which may come later."""
            self._replica: Replica | None = None
            """None before the first call, and where counts are added up in the end."""
            self._begun = self._finished = False
            self._noted: dict[str, Any] = world.creations.replicas[-1] if self._transport.returns is not None else {}
            """What ranks that come are told."""
            self._found: Mapping[str, Any] | None = self._noted.get(_BEGUN) if comes_back else None
            """What the others have begun with to which this rank has come. None: it begins with them."""
            if self._state.arrays:
                self._begin_replica({}, fitted=True)

    def partial_fit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Call partial_fit of the estimator, and exchange where that is due. One-sided; the first call is collective.

        ClosedError: the call follows `finish`. What partial_fit raises; in the first call on all ranks.
        """
        if self._finished:
            raise ClosedError(f"{_CALL}: finish was called before: call average(estimator) again to continue")
        call = self._signature.bind(*args, **kwargs)
        if self._begun:
            self._narrow(call)
            self.estimator.partial_fit(*call.args, **call.kwargs)
        else:
            self._begin(call)
        self._state.calls += 1
        if self._replica is not None:
            self._replica.step()

    def finish(self) -> None:
        """Replace the state by the mean of the ranks that have called partial_fit. Collective."""
        if self._finished:
            return
        if not self._begun:
            self._begin(None)
        if self._replica is not None:
            self._replica.close()
        while not self._take_mean(ends=True):
            pass  # the others agree, and go on
        self._finished = True

    def agree(self) -> None:
        """Replace the model by the mean over all ranks, and continue. Collective. ClosedError: it follows `finish`."""
        if self._finished:
            raise ClosedError(f"{_CALL}: finish was called before: call average(estimator) again to continue")
        if not self._begun:
            self._begin(None)
        self._take_mean(ends=False)

    def statistics(self) -> ReplicaStatistics:
        """Those of the Replica. Local."""
        return ReplicaStatistics() if self._replica is None else self._replica.statistics()

    # -- private ----------------------------------------------------------------------------------------------

    def _take_mean(self, ends: bool) -> bool:
        """Take the mean, to finish if it `ends`, else to agree; return whether all ranks finish. Collective.

        Counts are added up on all ranks alike, whether they finish or agree. What `_add_up` counts stays each rank's
        own until all finish.
        """
        if self._replica is not None:
            self._state.is_common = self._transport.size > 1
            is_over = self._replica.take_mean(ends)
            if is_over == ends:
                self._replica.deliver()
            self._state.is_common = False
            if is_over:
                self._add_up()
            return is_over
        with self._transport.calling(call_of(_CALL)):
            is_over, _ = partners(self._world, _CALL, ends, lambda: self._described)
            if self._begun and isinstance(self._state, Counts):
                self._state.count_on(self._counts_of_all(self._state.calls > 0))
        return is_over

    @property
    def _counter(self) -> Any:
        """The estimator's counter of what it was trained on."""
        return getattr(self.estimator, self._state.counter, self._state.counts_from)

    @property
    def _described(self) -> Mapping[str, Any]:
        return {"estimator": type(self.estimator).__name__}

    def _begin(self, call: inspect.BoundArguments | None) -> None:
        """Make the first call on all ranks, from the same state. Collective. `call`: None: this rank has no rows.

        Where no rank has rows nothing is begun. A rank that comes to others that have begun does so alone.
        """
        if self._found is not None:
            return self._come_to_others(self._found, call)

        def check() -> tuple[bool, Mapping[str, Any]]:
            classes = None if call is None else call.arguments.get("classes")
            seed = self._state.seed() if call is not None and self._transport.size > 1 else None
            kind = None if classes is None else np.asarray(classes).dtype.str
            return True, {**self._described, "_calls": call is not None, "_seed": seed,
                          "_classes": _listed(classes), "_dtype": kind}  # fmt: skip

        with self._transport.calling(_CALL):  # no rank comes in the middle
            _, reports = agree(self._transport, _CALL, check)
            callers = [rank for rank, one in reports.items() if one["_calls"]]
            if callers:
                self._begin_with(callers, call, _union(reports), reports[callers[0]]["_seed"])

    def _begin_with(
        self, callers: list[int], call: inspect.BoundArguments | None, classes: Array | None, seed: int | None
    ) -> None:  # fmt: skip
        """Make the first call, for which the ranks `callers` have rows. Collective. `seed`: that of all ranks."""
        if call is not None and "classes" in self._signature.parameters:
            call.arguments["classes"] = classes
        first, told = self._first(callers, call, seed)
        if told is None:  # the ranks with rows have failed
            return
        self._together(lambda: None if first else self._follow(call, told, classes, seed))
        begun = {key: value for key, value in told.items() if not isinstance(value, np.ndarray)}
        kind = None if classes is None else classes.dtype.str
        self._begin_replica({**begun, "_classes": _listed(classes), "_dtype": kind}, trained=call is not None)

    def _come_to_others(self, found: Mapping[str, Any], call: inspect.BoundArguments | None) -> None:
        """Begin where the others are, and make the first call from there. One-sided. `found`: as `_found`."""
        self._follow(None, found, _union({0: found}), None)
        self._begin_replica(found)
        if call is not None:
            self._narrow(call)
            self.estimator.partial_fit(*call.args, **call.kwargs)

    def _first(
        self, callers: list[int], call: inspect.BoundArguments | None, seed: int | None
    ) -> tuple[bool, Mapping[str, Any] | None]:
        """Return whether this rank was among those trained first, and what the lowest of them sends. Collective."""
        told: Mapping[str, Any] | None = None
        first = False
        while callers and told is None:
            first = self._transport.rank in (callers if self._state.begins_alike else callers[:1])
            mine = self._together(partial(self._tell, call if first else None, seed))
            everyone = self._transport.allgather(joined([pack(mine)]).tobytes())
            found = {rank: parted(np.frombuffer(one, np.uint8))[0] for rank, one in enumerate(everyone) if one}
            callers = [rank for rank in callers if rank in found]
            told = next((one for one in found.values() if one is not None), None)
        return first, told

    def _tell(self, call: inspect.BoundArguments | None, seed: int | None) -> Mapping[str, Any] | None:
        """Train this rank's first rows, and return what the others need to begin as it has. None: it comes later."""
        if call is None:
            return None
        self._fit(call.args, call.kwargs, self._state.start(seed, None))
        return self._state.tell(call.arguments.get("y"))

    def _follow(
        self, call: inspect.BoundArguments | None, told: Mapping[str, Any], classes: Array | None, seed: int | None
    ) -> None:  # fmt: skip
        """Train this rank's first rows from the state that another one has told of; without rows, take its shape."""
        start = self._state.start(seed, told)
        if call is not None:
            return self._fit(call.args, call.kwargs, start)
        X, y = self._state.blank(told, classes)
        given = {} if classes is None else {"classes": classes}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a batch that is too small
            self._fit((X, y), given, start)

    def _fit(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        """Call partial_fit with other parameters of the estimator."""
        before = {name: getattr(self.estimator, name) for name in parameters}
        self.estimator.set_params(**parameters)
        try:
            self.estimator.partial_fit(*args, **kwargs)
        finally:
            self.estimator.set_params(**before)

    def _together(self, work: Callable[[], Any]) -> Any:
        """The result of work() once it has returned on all ranks. Collective. An own error keeps its type."""
        try:
            return succeed(self._transport, work, _CALL)
        except RuntimeError as error:
            own = error.__cause__
            if own is not None and str(error) == f"{type(own).__name__}: {own}":
                raise own from None
            raise

    def _begin_replica(self, begun: Mapping[str, Any], trained: bool = False, fitted: bool = False) -> None:
        """Make the Replica. Collective. `trained`: this rank's first rows count: its state stays as it is.

        `begun`: what ranks that come are told. `fitted`: the estimators were, before.
        """
        features, dtype = self.estimator.n_features_in_, str(self._state.arrays[0].dtype)
        if self._found is None:
            same = {**self._described, "n_features_in_": features, "dtype": dtype}
            agree(self._transport, _CALL, lambda: (True, same))
            self._noted[_BEGUN] = begun
        self._begun = True
        if isinstance(self._state, Counts):
            return self._state.begin(self._counts_of_all()[0] if fitted else None)
        mine = self._state.take()
        self._replica = Replica(self._state.take, set=self._state.put, **self._options)
        self._replica.trust()
        if trained:
            self._state.put(mine)
        self._give_counters(self._replica)

    def _give_counters(self, replica: Replica) -> None:
        """Have ranks that come count on from the counters of one that is there; do so, if this one has. Local."""
        given = replica.vectors[0].accompany(lambda: {"counter": self._counter, "counted": self._counted})
        if given is not None:
            self._counts_from, self._counted = given["counter"].item(), given["counted"].item()
            setattr(self.estimator, self._state.counter, self._counts_from)

    def _counts_of_all(self, counts: bool = True) -> list[list[Array]]:
        """Those of the ranks that have some, by rank, ascending. Collective."""
        everyone = self._transport.allgather(joined([pack(self._state.arrays if counts else [])]).tobytes())
        return [found for one in everyone if one and (found := parted(np.frombuffer(one, np.uint8))[0])]

    def _narrow(self, call: inspect.BoundArguments) -> None:
        """Leave out classes that are known: those of a rank's rows may be some of them."""
        classes = call.arguments.get("classes")
        if classes is not None and set(np.asarray(classes).tolist()) <= set(self.estimator.classes_.tolist()):
            call.arguments["classes"] = None

    def _add_up(self) -> None:
        """Count what all ranks were trained on. Collective."""
        name, calls = self._state.counter, self._state.calls
        mine = self._counter - self._counts_from if calls else 0
        reports = exchange(self._transport, [calls > 0, self._counted, mine])
        setattr(self.estimator, name, reports[min(reports)][1] + sum(one[2] for one in reports.values()))
        self._state.rescale(max(1, sum(one[0] for one in reports.values())))


def _listed(classes: Any) -> list[Any] | None:
    """`classes` as JSON can express them."""
    found: list[Any] | None = None if classes is None else np.asarray(classes).tolist()
    return found


def _union(reports: Mapping[int, Mapping[str, Any]]) -> Array | None:
    """The classes that ranks have given, ascending. None: none has given any. ValueError: numbers and texts."""
    given = [np.asarray(one["_classes"], one["_dtype"]) for one in reports.values() if one["_classes"] is not None]
    if not given:
        return None
    if len({array.dtype.kind in "biuf" for array in given}) > 1:
        raise ValueError(f"{_CALL}: classes are numbers on some ranks, and not on others")
    return np.unique(np.concatenate(given))
