"""The events of this rank, written into a file that it has mapped (layout.py).

A record is in the file as soon as it is written, without a call of the system: a rank that is killed leaves all of
them. The ring holds the newest; the totals count all.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from threading import get_ident

from dstorm.trace import EdgeTotals
from malt.watch.trace import layout
from malt.watch.trace.layout import RECORD, TOTALS, Kind

_THREADS = 255
_LAST_NAME = "others"
_MESSAGES, _NBYTES, _MERGED, _OVERWRITTEN, _WAITED_S, _READ = range(len(TOTALS))
_SETTLED = (_MESSAGES, _NBYTES, _MERGED, _OVERWRITTEN, _READ)


class Log:
    """The events of one rank: a `dstorm.trace.Trace`.

    `ranks`: how many there are in the job. Peers are named by their ranks in the job, of which `members` has one for
    each rank of the session. `clock`: that of their transport. OSError: the file cannot be written.
    """

    def __init__(
        self, path: str, rank: int, ranks: int, capacity: int = layout.CAPACITY,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        self.members: tuple[int, ...] = tuple(range(ranks))
        self._capacity, self._start, self._clock = capacity, layout.records_at(ranks), clock
        nbytes = self._start + capacity * RECORD.size
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            os.posix_fallocate(file, 0, nbytes)  # a page that the disk has no room for would kill the rank later
            self._file = mmap.mmap(file, nbytes)
        finally:
            os.close(file)
        totals, length = layout.totals_at(ranks)
        self._totals = memoryview(self._file)[totals : totals + length].cast("d")
        self._counted = memoryview(self._file)[layout.COUNT_AT : layout.COUNT_AT + 8].cast("Q")
        self._places = count()
        self._names: dict[str, int] = {}
        self._threads: dict[int, int] = {}
        self._is_called = False
        layout.HEADER.pack_into(
            self._file, 0, layout.MAGIC, layout.VERSION, rank, ranks, 0, capacity, 0, 0, os.getpid(),
            0.0, 0.0, 0.0, 0.0,
        )  # fmt: skip

    def begin(self, now: float, offset_s: float = 0.0, error_s: float = 0.0) -> None:
        """Write down the clock of this rank, which is `now`, and how it stands to that of the lowest rank. Local."""
        struct.pack_into("<4d", self._file, layout.CLOCKS_AT, now, time.time(), offset_s, error_s)

    def name(self, text: str) -> int:
        """As `Trace.name`. Local."""
        number = self._names.get(text)
        if number is None:
            number = self._names[text] = min(len(self._names), layout.NAMES - 1)
            shown = (text if number < layout.NAMES - 1 else _LAST_NAME).encode(errors="replace")
            struct.pack_into(f"{layout.NAME_NBYTES}s", self._file, layout.name_at(number), shown)
            struct.pack_into("<I", self._file, layout.NAMES_AT, number + 1)
        return number

    def sent(self, name: int, step: int, start: float, end: float, messages: Iterable[tuple[int, int]]) -> None:
        """As `Trace.sent`. Local."""
        whole = 0
        for peer, nbytes in messages:
            member = self.members[peer]
            whole += nbytes
            self._add(member, _MESSAGES, 1)
            self._add(member, _NBYTES, nbytes)
            self._write(Kind.SENT, end, 0.0, member, name, step, nbytes)
        self._write(Kind.SCATTER, start, end - start, -1, name, step, whole)

    def merged(
        self, name: int, step: int, start: float, end: float, messages: Iterable[tuple[int, int]],
        overwritten: Iterable[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        """As `Trace.merged`. Local."""
        merged = 0
        for peer, its_step in messages:
            member = self.members[peer]
            merged += 1
            self._add(member, _MERGED, 1)
            self._write(Kind.MERGED, end, 0.0, member, name, its_step, step - its_step)
        for peer, number in overwritten:
            member = self.members[peer]
            self._add(member, _OVERWRITTEN, number)
            self._write(Kind.OVERWRITTEN, end, 0.0, member, name, step, number)
        self._write(Kind.GATHER, start, end - start, -1, name, step, merged)

    def waited(self, what: str, start: float, end: float, peers: Iterable[tuple[int, float]]) -> None:
        """As `Trace.waited`. Local."""
        name = self.name(what)
        for peer, seconds in peers:
            member = self.members[peer]
            self._add(member, _WAITED_S, seconds)
            self._write(Kind.WAITED, start, seconds, member, name, 0, 0)
        self._write(Kind.WAIT, start, end - start, -1, name, 0, 0)

    def yielded(self, start: float, end: float) -> None:
        """As `Trace.yielded`. Local."""
        self._write(Kind.YIELD, start, end - start, -1, 0, 0, 0)

    @contextlib.contextmanager
    def call(self, what: str) -> Iterator[None]:
        """As `Trace.call`. Local."""
        if self._is_called:
            yield
            return
        self._is_called, start = True, self._clock()
        try:
            yield
        finally:
            self._is_called = False
            self._write(Kind.CALL, start, self._clock() - start, -1, self.name(what), 0, 0)

    def failed(self, ranks: Iterable[int], now: float) -> None:
        """Note that ranks of the session were seen to have failed. Local."""
        for rank in ranks:
            self._write(Kind.FAILED, now, 0.0, self.members[rank], 0, 0, 0)

    def settle(self, edges: Mapping[int, EdgeTotals]) -> None:
        """As `Trace.settle`. Local."""
        for peer, edge in edges.items():
            for what, number in zip(_SETTLED, edge, strict=True):
                self._add(self.members[peer], what, number)

    # -- private ----------------------------------------------------------------------------------------------

    def _add(self, member: int, what: int, number: float) -> None:
        self._totals[member * len(TOTALS) + what] += number

    def _write(self, kind: int, start: float, seconds: float, peer: int, name: int, step: int, value: int) -> None:
        place = next(self._places)  # one for each, also where several threads write
        thread = self._threads.get(get_ident())
        if thread is None:
            thread = self._threads[get_ident()] = min(len(self._threads), _THREADS)
        at = self._start + place % self._capacity * RECORD.size
        RECORD.pack_into(self._file, at, start, seconds, kind, thread, peer, name, 0, step & 0xFFFFFFFF, value)
        self._counted[0] = place + 1
