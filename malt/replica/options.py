"""The arguments of a Replica, checked; those that must be the same on all ranks, described. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dstorm import parse
from malt.replica.outer import counts_steps, described, n_states
from malt.replica.parameters import Parameters
from malt.session.vectors import check_wire
from vol import Graph, arguments
from vol.graphs.builtin import BY_HOST

_AVERAGES = ("model", "delta")
AUTO: Final = "auto"
"""The interval that follows what exchanges cost."""


def same_of(parameters: Parameters, average: str, mesh: Graph, sync: str) -> dict[str, Any]:
    """The arguments that must be the same on all ranks."""
    if average not in _AVERAGES:
        raise ValueError(f"average {average!r} is not valid: use {', '.join(map(repr, _AVERAGES))}")
    return {"params": parameters.described, "average": average, "graph": mesh.name, "sync": parse(sync).name}


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
            raise ValueError(f'every="auto" does not go with {fixed[0]}: give the number of counts between exchanges')
        return low, high
    if isinstance(every, (str, tuple, list)):
        raise ValueError(f'every must be a whole number from 1 up, "auto" or bounds, (low, high), got {every!r}')
    number = arguments.whole("every", every, 1)
    return number, number


def agreement_on(least: int, most: int | None, sync: str, returns: bool) -> str | None:
    """What must be the same on all ranks of `bounds`: whether they are to agree on an interval.

    ValueError: ranks that come back would not know of it. `returns`: whether ranks may come back.
    """
    if least == most or not parse(sync).lockstep:
        return None
    if returns:
        raise ValueError(f'every="auto" under sync={sync!r} is not for ranks that come back: give a number')
    return AUTO


def checked(
    parameters: Parameters, mesh: Graph, average: str, sync: str, every: Any, epoch: Any, returns: bool, *,
    fragments: Any, **changed: Any,
) -> tuple[tuple[int, int | None], bool, dict[str, Any]]:  # fmt: skip
    """The bounds of the interval, whether ranks gossip, and what must be the same on all of them.

    `changed`: the arguments `outer`, `wire` and `top`. `returns`: as for `agreement_on`. TypeError, ValueError: an
    argument is wrong.
    """
    same = same_of(parameters, average, mesh, sync)
    same["fragments"] = arguments.whole("fragments", fragments, 1)
    same |= changed_of(parameters, average, sync, fragments=fragments, **changed)
    gossips = changed["outer"] is not None and not mesh.is_complete()
    if average == "delta" and (changed["wire"] is not None or changed["top"] is not None):
        check_graph(mesh, gossips, sync)
    least, most = bounds(every, sync, fragments=fragments, **changed)
    if least < fragments:
        raise ValueError(f"fragments must be at most every, {least}, got {fragments}")
    if epoch is not None:
        arguments.whole("epoch", epoch, 1)
    same["every"] = agreement_on(least, most, sync, returns)
    return (least, most), gossips, same


def is_by_host(graph: Any, hosts: Sequence[str]) -> bool:
    """Whether ranks are on several hosts, and `graph` has fewer edges between these than inside them."""
    name = graph.name if isinstance(graph, Graph) else graph
    return isinstance(name, str) and name in BY_HOST and len(set(hosts)) > 1


def check_graph(mesh: Graph, gossips: bool, sync: str) -> None:
    """ValueError: parts of changes, or rounded ones, are not for this graph."""
    if gossips:
        raise ValueError(f"outer along the graph {mesh.name!r} sends models, and wire and top are for changes")
    if mesh.shares is not None and parse(sync).lockstep:
        raise ValueError(f"the graph {mesh.name!r} weighs changes, which wire and top do not allow")


def changed_of(
    parameters: Parameters, average: str, sync: str, outer: Any, wire: str | None, top: Any, fragments: int
) -> dict[str, Any]:  # fmt: skip
    """The arguments that concern changes, which must be the same on all ranks."""
    given = [name for name, value in (("outer", outer), ("wire", wire), ("top", top)) if value is not None]
    is_model = average == "model"
    if is_model and given and given != ["wire"]:
        raise ValueError(f'{given[0]} is for changes: average="delta"')
    if outer is not None:
        n_states(outer)
        if counts_steps(outer) and (fragments > 1 or len(parameters.by_dtype()) > 1):
            raise ValueError("outer counts its steps, so it is for one fragment, and for parameters of one dtype")
    for place in parameters.floats if wire is not None else ():
        check_wire(wire, parameters.arrays[place])
    if top is not None and not 0 < arguments.real("top", top) <= 1:
        raise ValueError(f"top must be above 0, and 1 at most, got {top!r}")
    if is_model and wire is not None and parse(sync).acknowledges:
        raise ValueError('wire of models needs sync="asp" or "ssp:S": all would not have the same mean')
    if not is_model and given and given != ["outer"] and not parse(sync).acknowledges:
        raise ValueError(f'{given[-1]} needs sync="bsp" or "notify-ack": a message that is overwritten would be lost')
    return {"outer": described(outer), "wire": wire, "top": None if top is None else float(top)}
