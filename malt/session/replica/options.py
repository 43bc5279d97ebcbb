"""The arguments of a Replica: what it does by them, checked, and which must be the same on all ranks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dstorm import Consistency, parse
from dstorm.words import shown
from malt.session.replica.modes.exchange_mode import ExchangeMode, ModeOptions
from malt.session.replica.modes.models import Models
from malt.session.replica.parameters import Parameters
from malt.session.vectors.vector import check_wire
from vol import AVG, Graph, arguments
from vol.graphs.builtin import BY_HOST
from vol.merging.merge import ROOT_TRAINED

_AVERAGES = ("model", "delta")
AUTO: Final = "auto"
"""The interval that follows what exchanges cost."""


def bounds(every: Any, sync: str, **changed: Any) -> tuple[int, int | None]:
    """The least and the most counts between two exchanges: one number twice, or an interval that follows costs.

    No most: None. `changed`: the arguments `outer`, `wire`, `top` and `fragments`, which are tuned to one number.
    """
    fixed = [name for name, value in changed.items() if value is not None and (name, value) != ("fragments", 1)]
    if every is None:
        return 1, None if not (fixed or parse(sync).acknowledges) else 1
    if every == AUTO if isinstance(every, str) else isinstance(every, (tuple, list)) and len(every) == 2:
        low, high = (1, None) if isinstance(every, str) else every
        low = arguments.whole("every: the lower bound", low, 1)
        if high is not None:
            high = arguments.whole("every: the upper bound", high, low)
        if fixed and low != high:
            raise ValueError(f'every="auto" cannot be combined with {fixed[0]}: give the counts between exchanges')
        return low, high
    if isinstance(every, (str, tuple, list)):
        raise ValueError(f'every must be an integer of at least 1, "auto" or bounds, (low, high), got {shown(every)}')
    number = arguments.whole("every", every, 1)
    return number, number


@dataclass(frozen=True)
class Plan:
    """The choices that the arguments of a Replica determine."""

    bounds: tuple[int, int | None]
    """As the function `bounds` returns them."""
    fragments: int
    consistency: Consistency
    mode: type[ExchangeMode]
    """How each group of parameters is exchanged."""
    mode_options: ModeOptions


def checked(
    parameters: Parameters, mesh: Graph, average: str, sync: str, every: Any, epoch: Any, returns: bool, *,
    rank: int, by_host: bool, fragments: Any, **changed: Any,
) -> tuple[Plan, dict[str, Any]]:  # fmt: skip
    """The plan, and what must be the same on all ranks.

    `rank`: of this process. `by_host`: as of `is_by_host`. `returns`: whether ranks may come back. `changed`: the
    arguments `outer`, `wire` and `top`. TypeError, ValueError: an argument is wrong.
    """
    arguments.choice("average", average, _AVERAGES)
    consistency = parse(sync)
    same: dict[str, Any] = {"params": parameters.described, "average": average, "graph": mesh.name}
    same |= {"sync": consistency.name, "fragments": arguments.whole("fragments", fragments, 1)}
    same |= changed_of(parameters, average, sync, **changed)
    is_narrow = average == "delta" and (changed["wire"] is not None or changed["top"] is not None)
    gossips = changed["outer"] is not None and not mesh.is_complete()
    if is_narrow and gossips:
        raise ValueError(f"outer along the graph {mesh.name!r} sends models, and wire and top are for changes")
    if is_narrow and mesh.shares is not None and consistency.lockstep:
        raise ValueError(f"the graph {mesh.name!r} weighs changes, which wire and top do not allow")
    least, most = bounds(every, sync, fragments=fragments, **changed)
    if least < fragments:
        raise ValueError(f"fragments must be at most every, {least}, got {fragments}")
    if epoch is not None:
        arguments.whole("epoch", epoch, 1)
    agrees = least != most and consistency.lockstep  # on an interval, of which ranks that come back would not know
    if agrees and returns:
        raise ValueError(f'every="auto" under sync={sync!r} is not for ranks that come back: give a number')
    same["every"] = AUTO if agrees else None
    mean = ROOT_TRAINED if by_host else AVG  # few edges between hosts: models weigh by what is new in them
    options = ModeOptions(rank, mean, overlaps=fragments > 1 and consistency.acknowledges, **changed)
    mode = Models if average == "model" else _of_changes(gossips, is_narrow, consistency.acknowledges, options)
    return Plan((least, most), fragments, consistency, mode, options), same


def _of_changes(gossips: bool, is_narrow: bool, acknowledges: bool, options: ModeOptions) -> type[ExchangeMode]:
    """The mode of average="delta"."""
    if gossips or is_narrow or acknowledges:
        from malt.session.replica.modes.changes import BlockChanges, Changes, Gossip

        return Gossip if gossips else BlockChanges if is_narrow else Changes
    from malt.session.replica.modes.change_sums import ChangeSums, SteppedChangeSums

    return ChangeSums if options.outer is None else SteppedChangeSums


def is_by_host(graph: Any, hosts: Sequence[str]) -> bool:
    """Return whether ranks are on several hosts, and `graph` has fewer edges between these than inside them."""
    name = graph.name if isinstance(graph, Graph) else graph
    return isinstance(name, str) and name in BY_HOST and len(set(hosts)) > 1


def changed_of(
    parameters: Parameters, average: str, sync: str, outer: Any, wire: str | None, top: Any
) -> dict[str, Any]:  # fmt: skip
    """The arguments that concern changes, which must be the same on all ranks."""
    given = [name for name, value in (("outer", outer), ("wire", wire), ("top", top)) if value is not None]
    is_model = average == "model"
    if is_model and given and given != ["wire"]:
        raise ValueError(f'{given[0]} is for changes: average="delta"')
    steps = None
    if outer is not None:
        from malt.session.replica.modes.outer import described, n_states

        n_states(outer)
        steps = described(outer)
    for place in parameters.floats if wire is not None else ():
        check_wire(wire, parameters.arrays[place])
    if top is not None and not 0 < arguments.real("top", top) <= 1:
        raise ValueError(f"top must be above 0 and at most 1, got {shown(top)}")
    if is_model and wire is not None and parse(sync).acknowledges:
        raise ValueError('wire of models needs sync="asp" or "ssp:S": otherwise ranks would not have the same mean')
    if not is_model and given and given != ["outer"] and not parse(sync).acknowledges:
        raise ValueError(f'{given[-1]} needs sync="bsp" or "notify-ack": a message that is overwritten would be lost')
    return {"outer": steps, "wire": wire, "top": None if top is None else float(top)}
