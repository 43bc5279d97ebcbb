"""The order in which the results of chunks are reduced: a tree over chunk numbers. Pure.

Node (level, place) stands for the chunks from place * 2**level up to the next node of its level. Its value is that of
its left half combined with that of its right half, or that of its left half alone where the right one has no chunks.
So the order depends on the number of chunks alone, and not on who has the results, or on when they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Node = tuple[int, int]
Value = TypeVar("Value")


def insert(
    values: dict[Node, Value], node: Node, value: Value, count: int, combine: Callable[[Value, Value], Value]
) -> None:  # fmt: skip
    """Add the value of `node` to `values`, and combine what has become neighbours: siblings never stay side by side.

    `count`: the number of chunks. combine(left, right) may change both.
    """
    level, place = node
    while place or 1 << level < count:
        sibling = (level, place ^ 1)
        if sibling in values:
            other = values.pop(sibling)
            value = combine(other, value) if place % 2 else combine(value, other)
        elif place % 2 or (place + 1) << level < count:
            break
        level, place = level + 1, place // 2
    values[level, place] = value


def covered(nodes: Iterable[Node], count: int) -> set[int]:
    """The chunks that `nodes` stand for, of `count` chunks."""
    return {chunk for level, place in nodes for chunk in range(place << level, min((place + 1) << level, count))}
