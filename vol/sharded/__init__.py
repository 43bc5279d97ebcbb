"""Sharded vectors: each rank owns a range of the rows."""

from vol.sharded.arithmetic import Arithmetic, Temporary
from vol.sharded.layout import ShardLayout
from vol.sharded.vector import ShardedVector

__all__ = ["Arithmetic", "ShardLayout", "ShardedVector", "Temporary"]
