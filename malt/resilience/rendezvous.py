"""Who begins a session, where ranks may die before it stands: agreed on through files in the folder of the job.

started-<rank>         which process it is (malt/runner/program.py)
<session>-came-<rank>  it has come, and has room for so many bytes of shared memory
<session>-crew         who begins, and with how many bytes each

The last is written once and whole, by whoever first sees that each rank has come or has died: a link to a file of its
own, which fails where there is one already. So all who live come to the same, whoever dies, at whatever moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from dstorm.errors import DeadlinePassed
from malt.runner import reporting

_LOOK_S = 0.002


class Members(NamedTuple):
    """Those who begin."""

    ranks: tuple[int, ...]
    nbytes: int
    """What the least of them has room for."""


class Rendezvous:
    """The ranks of a session come together, as one of them sees it. `session`: a name of it that no other has."""

    def __init__(self, folder: Path, session: str, rank: int, size: int) -> None:
        self._folder, self._session, self._rank, self._size = folder, session, rank, size

    def come(self, nbytes: int, find_failed: Callable[[], Collection[int]], deadline_s: float) -> Members:
        """Say that this rank has come, and return who begins, once all have come or are `find_failed`. Collective.

        DeadlinePassed: some have done neither for so long.
        """
        self._write(f"came-{self._rank}", str(nbytes))
        end = time.monotonic() + deadline_s
        while (members := self._members()) is None:
            here = {rank for rank in range(self._size) if self._path(f"came-{rank}").exists()}
            missing = set(range(self._size)) - here - set(find_failed())
            if not missing:
                self._decide(here)
            elif time.monotonic() > end:
                raise DeadlinePassed("malt.init", dict.fromkeys(missing, 0), dict.fromkeys(missing, deadline_s))
            else:
                time.sleep(_LOOK_S)
        return members

    def _decide(self, here: Collection[int]) -> None:
        ranks = sorted(here)
        nbytes = min(int(self._path(f"came-{rank}").read_text()) for rank in ranks)
        mine = self._write(f"crew-of-{self._rank}", json.dumps([ranks, nbytes]))
        with contextlib.suppress(FileExistsError):
            os.link(mine, self._path("crew"))

    def _members(self) -> Members | None:
        try:
            ranks, nbytes = json.loads(self._path("crew").read_text())
        except FileNotFoundError:
            return None
        return Members(tuple(ranks), nbytes)

    def _path(self, name: str) -> Path:
        return self._folder / f"{self._session}-{name}"

    def _write(self, name: str, text: str) -> Path:
        path = self._path(name)
        reporting.write(path, text)
        return path
