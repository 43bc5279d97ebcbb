"""The arguments of a Replica, checked; those that must be the same on all ranks, described. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dstorm import parse
from malt.replica.outer import counts_steps, described, n_states
from malt.replica.parameters import Parameters
from malt.session.vectors import check_wire
from vol import Graph, arguments
from vol.graphs.builtin import BY_HOST

_AVERAGES = ("model", "delta")


def same_of(parameters: Parameters, average: str, mesh: Graph, sync: str) -> dict[str, Any]:
    """The arguments that must be the same on all ranks."""
    if average not in _AVERAGES:
        raise ValueError(f"average {average!r} is not valid: use {', '.join(map(repr, _AVERAGES))}")
    return {"params": parameters.described, "average": average, "graph": mesh.name, "sync": parse(sync).name}


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
