"""`malt.graph`, and the graphs of vectors: built for the hosts of the session."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dstorm import ClosedError
from malt.session import session
from malt.session.world.world import World
from vol import Graph, as_graph
from vol.graphs import builtin


def graph(name: str, size: int, degree: int | None = None, seed: int = 0, hosts: Sequence[str] | None = None) -> Graph:
    """Return the built-in graph `name` of `size` ranks. It is strongly connected over a period at every size. Local.

    all           every rank to every other
    ring          r to r + 1
    halton        offsets 1 + floor(N v), v = 0, 1/2, 1/4, 3/4, 1/8 ... (van der Corput, base 2; MALT-2's)
    chord         offsets N/2, N/4, ..., 1
    exponential   offsets 1, 2, 4, ... below N
    one-peer      one of the exponential graph's offsets at a time, in turn: period ceil(log2 N)
    pairs         one random peer at a time, both ways, from `seed`: every other edge of a random ring, then the others;
                  period 2 ceil(log2 N), less where pairs would come again; N odd: one rank in turn has no peer
    base          the Base-(degree + 1) graph (Takezawa et al. 2023, arXiv 2305.11420): at most `degree` peers at a
                  time, both ways; after a period, of at most 2 log(N) / log(degree + 1) + 2 steps, weighted averages
                  are the mean of all ranks, at every N: see Graph.weight
    hypercube     r to r with one bit flipped, if there is such a rank; both ways
    torus         four neighbours in a grid that wraps, as square as the factors of N allow; N prime: a ring both ways
    random        regular in and out, from `seed`; contains a random ring through all ranks
    star          every rank to rank 0 and back
    hierarchical  every rank to all of its host; between two hosts the k-th rank of one to the k-th of the other, modulo
                  their numbers of ranks; all hosts are peers up to 3, else as in "auto", of about log2 of them each
    auto          "all" up to 4 ranks; else the graph of the largest spectral gap among chord, exponential, halton and
                  some random ones, each with at most ceil(log2 N) peers. On several hosts: "hierarchical"

    `degree`: the largest number of peers of a rank at a step, for halton, chord, exponential, random and base; by
    default ceil(log2 N), for base 1. The other graphs accept only the degree that they have. `hosts`: the name of the
    host of each rank, for hierarchical and auto; by default those of the session, if it has N ranks. TypeError,
    ValueError: an unknown name, or a bad size, degree, seed or host; hierarchical without hosts.
    """
    if hosts is None and isinstance(name, str) and name in builtin.BY_HOST:
        hosts = _hosts_of(size)
    return builtin.graph(name, size, degree, seed, hosts)


def session_graph(world: World, spec: Any) -> Graph:
    """The graph of the ranks of `world` that `spec`, as the argument `graph` of malt.vector, names or describes. Local.

    Where ranks come and go it is always the graph of that name of the ranks that there are, without those that failed.
    Raises the errors of malt.graph and of Graph.from_dict.
    """

    def made(size: int) -> Graph:
        """That of the first ranks. Local."""
        return as_graph(spec, size, hosts=world.transport.hosts[:size])

    whole = made(world.transport.size)
    return replace(whole, smaller=made) if world.is_elastic and isinstance(spec, str) else whole


def _hosts_of(size: int) -> tuple[str, ...] | None:
    """The host names of the session, by rank. None: there is no session, or it has another number of ranks."""
    with suppress(ClosedError):
        world = session.present_world()
        if world is not None and world.transport.size == size:
            return world.transport.hosts
    return None
