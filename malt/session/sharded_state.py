"""Sharded vectors in a checkpoint: written row by row, and dealt anew to the ranks that read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from malt.files.npz import Streamed
from malt.session import session
from malt.session.sharded import sharded
from malt.world.agreement import succeed
from malt.world.world import World
from vol import ShardedVector
from vol.update import Array

PIECE_NBYTES = 1 << 23
"""What the rank that writes or reads the file holds of a vector at once."""


def streamed(vector: ShardedVector) -> Streamed:
    """The rows of `vector` for a file: whoever writes them pulls them piece by piece. Local. ClosedError."""
    length = max(PIECE_NBYTES * len(vector.local) // max(vector.local.nbytes, 1), 1)

    def pieces() -> Iterator[Array]:
        for start in range(0, vector.shape[0], length):
            session.heartbeat()  # others wait for this rank
            yield vector.pull(slice(start, start + length))

    return Streamed(vector.shape, vector.dtype, pieces)


def dealt(world: World, name: str, kind: str, shape: Sequence[int], rows: Streamed | None) -> ShardedVector:
    """A new sharded vector of this shape and dtype with the rows of the rank that has `rows`. Collective.

    ValueError, MemoryError, on all ranks: as malt.sharded. PeerLost, on all: a rank has failed meanwhile.
    """
    vector = sharded(tuple(shape), kind, name)
    succeed(world.transport, lambda: vector.fill(-0.0))  # plus any number, this is that number bit by bit

    def push() -> None:
        start = 0
        for piece in rows.pieces() if rows is not None else ():
            session.heartbeat()
            vector.push(piece, slice(start, start + len(piece)))
            start += len(piece)

    succeed(world.transport, push)
    world.settle_pushes(f"{name}: its rows are dealt")
    return vector


def open_places(world: World) -> list[int]:
    """The places in `world.vectors` of the sharded vectors that this rank has open. Local."""
    return [place for place, one in enumerate(world.vectors) if isinstance(one, ShardedVector) and not one.closed]


def incomplete(world: World, reports: Mapping[int, Iterable[int]]) -> dict[ShardedVector, int]:
    """The open vectors that have lost a part, each with a rank that has failed with it. Local.

    `reports`: by live rank, its `open_places`: the same on all ranks, as is the result.
    """
    places = sorted(set().union(*reports.values()))
    vectors = [one for place in places if isinstance(one := world.vectors[place], ShardedVector)]
    return {one: min(absent) for one in vectors if (absent := set(one.owners) - set(reports))}
