"""The chunks that this rank was sent, by content hash."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

from malt.launch.machine.memory import free_memory

_SHARE: Final = 0.25
"""The part of the host's free memory that the caches of its ranks take together."""


class _Kept(NamedTuple):
    chunk: Any
    nbytes: int


class Cache:
    """Chunks by content hash: those not used for the longest time give way where memory is short."""

    def __init__(self, ranks_of_host: int) -> None:
        self._ranks_of_host = ranks_of_host
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._has_grown = False
        self.digests: list[str] = []
        """The content hashes of the dataset that this rank was last told of."""

    def places(self) -> list[int]:
        """The chunks of that dataset that are here."""
        return [place for place, digest in enumerate(self.digests) if digest in self._kept]

    def get(self, digest: str) -> Any:
        """The chunk of this hash, which counts as used. KeyError: it is not there."""
        self._kept.move_to_end(digest)
        return self._kept[digest].chunk

    def put(self, digest: str, chunk: Any, nbytes: int) -> None:
        """Keep a chunk whose arrays take so many bytes."""
        self._kept[digest] = _Kept(chunk, nbytes)
        self._has_grown = True

    def trim(self) -> None:
        """Drop chunks, those not used for the longest time first, until all fit into their share of free memory."""
        if not self._has_grown:
            return
        self._has_grown = False
        free, taken = free_memory(), sum(one.nbytes for one in self._kept.values())
        most = _SHARE * (free + taken) / self._ranks_of_host if free is not None else taken
        while taken > most:
            taken -= self._kept.popitem(last=False)[1].nbytes
