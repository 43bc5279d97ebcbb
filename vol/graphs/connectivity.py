"""The ranks of a graph that can reach each other. Pure, and without scipy, which takes longer to import than to mend a
graph."""

from __future__ import annotations

from collections.abc import Iterable

from vol.graphs.builders import Table, reverse


def reached(table: Table, root: int, seen: set[int]) -> list[int]:
    """Return the ranks that `root` leads to, itself among them, which are not in `seen`, and add them to it.

    A rank comes after those that were found from it.
    """
    seen.add(root)
    path, found = [(root, iter(table[root]))], []
    while path:
        rank, targets = path[-1]
        target = next((one for one in targets if one not in seen), None)
        if target is None:
            found.append(rank)
            path.pop()
        else:
            seen.add(target)
            path.append((target, iter(table[target])))
    return found


def components(table: Table, remaining: Iterable[int]) -> list[list[int]]:
    """Return the strongly connected parts of the remaining ranks, ordered by their lowest rank; each ascending.

    The rank that comes last of one search leads to all of its part. Against the edges it leads to no other part that is
    not found already (Kosaraju's algorithm).
    """
    seen: set[int] = set()
    last = [rank for root in remaining if root not in seen for rank in reached(table, root, seen)][::-1]
    against, seen = reverse(table), set()
    return sorted(sorted(reached(against, root, seen)) for root in last if root not in seen)
