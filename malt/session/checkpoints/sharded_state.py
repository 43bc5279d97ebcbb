"""Sharded vectors in a checkpoint: written row by row, and dealt anew to the ranks that read it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from malt.files.npz import Streamed
from malt.session.vectors.sharded import sharded
from malt.session.world.agreement import succeed
from malt.session.world.world import World
from vol import OwnedVector, ShardedVector, SparseShardedVector, resting
from vol.update import Array

PIECE_NBYTES = 1 << 23
"""What the rank that writes or reads the file holds of a vector at once."""
_KEY, _VALUE = "key", "value"


def streamed(vector: OwnedVector, touched: int) -> Streamed:
    """The rows of `vector` for a file: whoever writes them pulls them piece by piece. Local. ClosedError.

    `touched`: of a sparse vector, the number of its entries, which rest: they are its rows.
    """
    if isinstance(vector, SparseShardedVector):
        return _entries(vector, touched)
    assert isinstance(vector, ShardedVector)
    length = max(PIECE_NBYTES * len(vector.local) // max(vector.local.nbytes, 1), 1)

    def pieces() -> Iterator[Array]:
        for start in range(0, vector.shape[0], length):
            yield vector.pull(slice(start, start + length))

    return Streamed(vector.shape, vector.dtype, pieces)


def _entries(vector: SparseShardedVector, touched: int) -> Streamed:
    dtype = np.dtype([(_KEY, np.int64), (_VALUE, vector.dtype)])
    pieces = vector.pieces(max(PIECE_NBYTES // dtype.itemsize, 1))

    def entries() -> Iterator[Array]:
        for keys, values in pieces:
            piece = np.empty(len(keys), dtype)
            piece[_KEY], piece[_VALUE] = keys, values
            yield piece

    return Streamed((touched,), dtype, entries, vector.shape[0])


@contextlib.contextmanager
def rested(world: World, state: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """Keep the entries of the sparse vectors in `state` as they are while the block runs. Collective, as it begins.

    Yields their numbers, by name.
    """
    sparse = {name: one for name, one in sorted(state.items()) if isinstance(one, SparseShardedVector)}
    vectors = list(sparse.values())
    with resting(vectors, world.transport):
        world.grow(vectors)  # another thread of a rank may have pushed since the last time
        yield {name: vector.touched() for name, vector in sparse.items()}


def head(member: Streamed) -> list[Any]:
    """Return what all ranks must know to make the vector: dtype, shape, and whether it is sparse. Pure."""
    if member.length is None:
        return [member.dtype.str, member.shape, "dense"]
    return [member.dtype[_VALUE].str, member.length, "sparse"]


def dealt(world: World, name: str, head: Sequence[Any], rows: Streamed | None) -> OwnedVector:
    """A new sharded vector of this `head` with the rows of the rank that has `rows`. Collective.

    ValueError, MemoryError, on all ranks: as malt.sharded. PeerLost, on all: a rank has failed meanwhile.
    """
    dtype, shape, kind = head
    vector: ShardedVector | SparseShardedVector = sharded(shape, dtype, name, kind=kind)
    if isinstance(vector, ShardedVector):
        succeed(world.transport, lambda: vector.fill(-0.0))  # plus any number, this is that number bit by bit

    def push() -> None:
        start = 0
        for piece in rows.pieces() if rows is not None else ():
            if isinstance(vector, SparseShardedVector):
                vector.push(piece[_VALUE], piece[_KEY])
            else:
                vector.push(piece, slice(start, start + len(piece)))
            start += len(piece)

    succeed(world.transport, push)
    world.settle_pushes(f"{name}: its rows are dealt")
    return vector


def open_places(world: World) -> list[int]:
    """The places in `world.vectors` of the sharded vectors that this rank has open. Local."""
    return [place for place, one in enumerate(world.vectors) if isinstance(one, OwnedVector) and not one.closed]


def incomplete(world: World, reports: Mapping[int, Iterable[int]]) -> dict[OwnedVector, int]:
    """The open vectors that have lost a part, each with a rank that has failed with it. Local.

    `reports`: by live rank, its `open_places`: the same on all ranks, as is the result.
    """
    places = sorted(set().union(*reports.values()))
    vectors = [one for place in places if isinstance(one := world.vectors[place], OwnedVector)]
    return {one: min(absent) for one in vectors if (absent := set(one.owners) - set(reports))}
