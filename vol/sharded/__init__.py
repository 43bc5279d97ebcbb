"""Sharded vectors: each rank owns a part of the rows."""

from vol.sharded.arithmetic import Arithmetic, Temporary
from vol.sharded.layout import ShardLayout
from vol.sharded.operand import dots
from vol.sharded.owned import OwnedVector
from vol.sharded.sparse import HashedLayout, SparseShardedVector, resting
from vol.sharded.vector import ShardedVector

__all__ = [
    "Arithmetic",
    "HashedLayout",
    "OwnedVector",
    "ShardLayout",
    "ShardedVector",
    "SparseShardedVector",
    "Temporary",
    "dots",
    "resting",
]
