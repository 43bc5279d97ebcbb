"""Graphs along which averaging is exact after finitely many steps, for any number of ranks. Pure.

Y. Takezawa, R. Sato, H. Bao, K. Niwa, M. Yamada: Beyond Exponential Graph: Communication-Efficient Topologies for
Decentralized Learning via Finite-time Convergence, NeurIPS 2023, arXiv 2305.11420, algorithms 1 to 3.

A step holds, for each rank with peers, the shares of its average: {rank or peer: share}, integers. An edge goes
both ways, with the same weight. So each step keeps the mean of all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache, reduce
from operator import or_

from vol.graphs.builders import Peers, Phases

Step = dict[int, dict[int, int]]
Shares = tuple[tuple[tuple[int, ...], ...], ...]
"""By phase and rank: the share of its own array, and those of its in-neighbours, ascending."""


def phases(size: int, degree: int) -> Phases:
    """Return the tables of the Base-(degree + 1) graph, in which ranks have at most `degree` peers. Local.

    After a period of averages with `shares` all ranks have the mean of all.
    """
    return tuple(tuple(_peers(step, rank) for rank in range(size)) for step in _steps(size, degree))


def shares(size: int, degree: int) -> Shares | None:
    """Return the shares of the averages along `phases`. Local. None: they are all plain means."""
    found = tuple(
        tuple(tuple(step.get(rank, {rank: 1})[each] for each in (rank, *_peers(step, rank))) for rank in range(size))
        for step in _steps(size, degree)
    )
    return None if all(len(set(one)) == 1 for table in found for one in table) else found


def _peers(step: Step, rank: int) -> Peers:
    return tuple(sorted(step.get(rank, {}).keys() - {rank}))


@lru_cache(maxsize=8)
def _steps(size: int, degree: int) -> list[Step]:
    return _base(range(size), degree) or [{}]


def _base(ranks: Sequence[int], degree: int) -> list[Step]:
    """Algorithm 3. Equal pieces average first, then ranks with the same place in them; all at once where that is
    shorter.

    The number of pieces is the largest divisor of the number of ranks without a prime factor above degree + 1.
    """
    count = len(ranks)
    for prime in range(2, degree + 2):  # one that is no prime divides no more when it is reached
        while count % prime == 0:
            count //= prime
    pieces = [ranks[start : start + count] for start in range(0, len(ranks), count)]
    steps = _together([_simple(piece, degree) for piece in pieces])
    steps += _together([_hyper_hypercube(place, degree) for place in zip(*pieces, strict=True)])
    at_once = _simple(ranks, degree)
    return at_once if len(at_once) < len(steps) else steps


def _simple(ranks: Sequence[int], degree: int) -> list[Step]:
    """Algorithm 2, the Simple Base-(degree + 1) graph.

    The parts are the digits of the number of ranks in base degree + 1, the largest first; a part consists of pieces
    whose sizes are one power of the base. Each part averages. Then one part after the other exchanges with all later
    ones, which have the mean of all with what is later still. Last, the pieces average: each has met the same ranks.
    """
    if _factors(len(ranks), degree + 1) is not None:
        return _hyper_hypercube(ranks, degree)
    parts = _parts(ranks, degree + 1)
    whole = [[rank for piece in part for rank in piece] for part in parts]
    first = [_hyper_hypercube(part, degree) for part in whole]
    last = [
        [_hyper_hypercube(piece, degree) for piece in part] if len(part[0]) > 1 else [cube]
        for part, cube in zip(parts, first, strict=True)
    ]
    steps = _together(first)
    for m in range(len(last[0][0]) + 1):
        step: Step = {}
        for place, part in enumerate(parts):
            begun = m - min(place + 1, len(parts) - 1)
            if begun >= 0:
                for cube in filter(None, last[place]):
                    step |= cube[begun % len(cube)]
            elif m == place:
                step |= _exchange(part, [rank for later in whole[place + 1 :] for rank in later], degree)
        steps.append(step)
    return steps


def _parts(ranks: Sequence[int], base: int) -> list[list[Sequence[int]]]:
    """Return the pieces of each part, whose sizes are powers of `base`, descending."""
    powers = [1]
    while powers[-1] * base <= len(ranks):
        powers.append(powers[-1] * base)
    parts, start = [], 0
    for power in reversed(powers):
        if count := (len(ranks) - start) // power:
            parts.append([ranks[at : at + power] for at in range(start, start + count * power, power)])
            start += count * power
    return parts


def _exchange(pieces: Sequence[Sequence[int]], later: Sequence[int], degree: int) -> Step:
    """Return the step in which each of `later` meets one rank of each piece, and the others average in groups.

    One of `later` is left with the mean of all these ranks and of those that are later than itself, weighted by their
    numbers.
    """
    mine = sum(map(len, pieces))
    every = mine + len(later)
    step: Step = {}
    for place, rank in enumerate(later):
        met = [piece[place] for piece in pieces]
        step[rank] = {rank: (every - mine) * len(pieces), **dict.fromkeys(met, mine)}
        for peer in met:
            step[peer] = {peer: every * len(pieces) - mine, rank: mine}
    idle = [rank for piece in pieces for rank in piece[len(later) :]]
    groups = (idle[start : start + degree + 1] for start in range(0, len(idle), degree + 1))
    return step | _average([group for group in groups if len(group) > 1])


def _hyper_hypercube(ranks: Sequence[int], degree: int) -> list[Step]:
    """Algorithm 1. The ranks are a grid, as long along each axis as a factor of their number; a step averages along
    one of them."""
    steps, stride = [], 1
    for factor in _factors(len(ranks), degree + 1) or ():
        firsts = (start for start in range(len(ranks)) if start // stride % factor == 0)
        steps.append(_average([ranks[start : start + stride * factor : stride] for start in firsts]))
        stride *= factor
    return steps


@cache
def _factors(number: int, most: int) -> tuple[int, ...] | None:
    """Return the fewest factors of `number` that are at most `most`, the largest first; None: there are none."""
    if number == 1:
        return ()
    found = [
        (factor, *others)
        for factor in range(min(number, most), 1, -1)
        if number % factor == 0 and (others := _factors(number // factor, most)) is not None
    ]
    return min(found, key=len, default=None)


def _average(groups: Sequence[Sequence[int]]) -> Step:
    return {rank: dict.fromkeys(group, 1) for group in groups for rank in group}


def _together(sequences: Sequence[Sequence[Step]]) -> list[Step]:
    """Return the steps of all ranks. A sequence that is shorter than others begins again, which changes nothing."""
    length = max(map(len, sequences))
    return [reduce(or_, (steps[m % len(steps)] for steps in sequences if steps), {}) for m in range(length)]
