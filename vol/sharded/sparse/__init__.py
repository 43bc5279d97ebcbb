"""Sparse sharded vectors: the touched entries alone are kept, and a key's hash says whose an entry is."""

from vol.sharded.sparse.layout import HashedLayout
from vol.sharded.sparse.vector import SparseShardedVector, resting

__all__ = ["HashedLayout", "SparseShardedVector", "resting"]
