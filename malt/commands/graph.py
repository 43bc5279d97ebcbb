"""The command `malt graph`: what a communication graph costs, how fast ranks agree along it, and a drawing of it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dstorm.words import count
from malt.launch.command import with_slots
from malt.launch.hosts.allocation import Host
from malt.launch.machine.mpi_library import LaunchError
from vol.graphs.builtin import BY_HOST, graph
from vol.graphs.graph import Graph

KINDS = (".png", ".svg", ".pdf")
"""The files that a drawing can be written to."""
_PANELS = 12
"""The most phases that are drawn."""
_EDGES = 5000
"""The most edges that are drawn: more are a black disk, and take minutes."""
_RANKS = 4096
"""The most ranks of a graph whose facts are found: more take minutes, or all of the memory."""
_COLUMNS = 4
_FILLS = ("#fde725", "#5ec962", "#7ad0f0", "#f89c6b", "#c9a6e8", "#d0d0d0")
"""The colours of ranks, by host."""


def main(
    name: str, size: int, degree: int | None, seed: int, hosts: Sequence[Host], as_json: bool, plot: Path | None
) -> int:  # fmt: skip
    """Print the facts of a graph, and draw it into the file `plot`. Returns 0. Local.

    `hosts`: those of the ranks, as for malt run; empty: one host, or unknown. LaunchError: there is no such graph, or
    the drawing cannot be made or written.
    """
    if name == "hierarchical" and not hosts:
        raise LaunchError("the graph hierarchical depends on the hosts of the ranks: give --hosts H1:SLOTS,H2:SLOTS")
    if size > _RANKS:
        raise LaunchError(f"-n {size}: the facts of a graph are found for up to {count(_RANKS, 'rank')}")
    names = names_by_rank(hosts, size)
    try:
        built = graph(name, size, degree, seed, hosts=names or None if name in BY_HOST else None)
    except ValueError as error:
        raise LaunchError(str(error)) from None
    if plot is not None:
        draw(built, plot, names)
    found = facts(built, names)
    width = max(map(len, found))
    print(
        json.dumps(found)
        if as_json
        else "\n".join(f"{what.replace('_', ' '):{width}}  {found[what]}" for what in found)
    )
    return 0


def names_by_rank(hosts: Sequence[Host], size: int) -> tuple[str, ...]:
    """The host of each rank: the slots of one host after those of another, as malt run fills them. Local.

    LaunchError: the hosts have too few slots.
    """
    names = [host.name for host in with_slots(hosts, size) for _ in range(host.slots or 0)]
    return tuple(names[:size])


def facts(built: Graph, hosts: Sequence[str] = ()) -> dict[str, Any]:
    """Return the facts that `malt graph` prints. Local.

    `messages`: the number in one exchange of all ranks, as a mean over the steps. `hosts`: the host of each rank.
    """
    edges = [(rank, peer) for table in built.phases for rank, peers in enumerate(table) for peer in peers]
    across = {"across_hosts": round(sum(hosts[a] != hosts[b] for a, b in edges) / built.period, 2)} if hosts else {}
    return {
        "graph": built.name,
        "ranks": built.size,
        "degree": built.degree,
        "period": built.period,
        "messages": round(len(edges) / built.period, 2),
        **across,
        "rounds": built.rounds(),
        "spectral_gap": round(built.spectral_gap(), 4),
    }


def draw(built: Graph, path: Path, hosts: Sequence[str] = ()) -> None:
    """Draw the ranks on a circle and an arrow for each edge, a panel for each phase. Local. LaunchError: as `main`.

    `hosts`: the host of each rank, in the colour of its host.
    """
    if path.suffix.lower() not in KINDS:
        raise LaunchError(f"--plot {path}: the name of a drawing ends in {', '.join(KINDS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise LaunchError("--plot needs matplotlib: pip install '.[plot]' in the checkout") from None
    if len(built.edges) > _EDGES:
        raise LaunchError(
            f"--plot: {len(built.edges):,} edges are too many to draw, {_EDGES:,} at most: use fewer ranks"
        )
    shown = min(built.period, _PANELS)
    columns = min(shown, _COLUMNS)
    figure = Figure(figsize=(4 * columns, 4.2 * math.ceil(shown / columns)), layout="constrained")
    places = [(math.sin(turn), math.cos(turn)) for turn in (2 * math.pi * r / built.size for r in range(built.size))]
    for phase in range(shown):
        axes = figure.add_subplot(math.ceil(shown / columns), columns, phase + 1)
        _draw_phase(axes, built, phase, places, hosts)
    figure.suptitle(f"{built.name}, {count(built.size, 'rank')}")
    try:
        figure.savefig(path)
    except OSError as error:
        raise LaunchError(f"--plot {path}: {error.strerror}") from None


def _draw_phase(axes: Any, built: Graph, phase: int, places: list[tuple[float, float]], hosts: Sequence[str]) -> None:
    axes.set(aspect="equal", xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
    axes.axis("off")
    if built.period > 1:
        axes.set_title(f"step {phase + 1} of {built.period}", fontsize=10)
    margin = max(4.0, min(10.0, 100 / built.size))
    arrow = {
        "arrowstyle": "-|>",
        "color": "#31688e",
        "alpha": 0.6,
        "shrinkA": margin,
        "shrinkB": margin,
        "linewidth": 0.8,
    }
    for rank, peers in enumerate(built.phases[phase]):
        for peer in peers:
            # Bent, so that an edge and the one back are two lines.
            axes.annotate("", places[peer], places[rank], arrowprops={**arrow, "connectionstyle": "arc3,rad=0.12"})
    fills = {host: _FILLS[k % len(_FILLS)] for k, host in enumerate(dict.fromkeys(hosts))}
    for rank, (x, y) in enumerate(places):
        axes.plot(
            [x],
            [y],
            "o",
            color=fills[hosts[rank]] if hosts else _FILLS[0],
            markeredgecolor="#440154",
            markersize=2 * margin,
        )
        axes.text(x, y, str(rank), ha="center", va="center", fontsize=max(4.0, margin))
