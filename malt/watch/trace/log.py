"""The events of this rank, written into a file that it has mapped (layout.py).

A record is in the file as soon as it is written, without a call of the system: a rank that is killed leaves all of
them. The ring holds the newest. Before a part of it is overwritten, what it says by peer is added to the totals.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import RLock, get_ident
from typing import Any

import numpy as np

from dstorm.trace import EdgeTotals
from malt.watch.trace import layout
from malt.watch.trace.layout import DTYPE, FIELDS, RECORD, TOTALS, Kind, code

_THREADS = 255
_LAST_NAME = "others"
_PARTS = 16
"""The parts of the ring: one of them is overwritten at a time."""
_AT_ONCE = 64
"""The most records that are written at once."""
_MOST_STEPS = 0xFFFF_FFFF
"""A record has the lower 32 bits of a step: training may take more steps."""
_MOST_BEHIND = 1 << 15
"""A message that is further behind, or ahead, has a record of its own."""
_NBYTES = RECORD.size


class Log:
    """The events of one rank: a `dstorm.trace.Trace`.

    `ranks`: how many there are in the job. `clock`: that of their transport. OSError: the file cannot be written.
    """

    def __init__(
        self, path: str, rank: int, ranks: int, capacity: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:  # fmt: skip
        self._part = max(1, (capacity or layout.capacity(ranks)) // _PARTS)
        self._capacity, self._start, self._clock = self._part * _PARTS, layout.records_at(ranks), clock
        nbytes = self._start + self._capacity * RECORD.size
        self._file = _mapped(path, nbytes)
        layout.HEADER.pack_into(
            self._file, 0, layout.MAGIC, layout.VERSION, rank, ranks, 0, self._capacity, 0, 0, os.getpid(),
            0.0, 0.0, 0.0, 0.0, 0,
        )  # fmt: skip
        self._records = np.frombuffer(self._file, DTYPE, self._capacity, self._start)
        totals, length = layout.totals_at(ranks)
        self._totals = np.frombuffer(self._file, np.float64, length // 8, totals).reshape(ranks, len(TOTALS))
        self._written = memoryview(self._file)[layout.COUNT_AT : layout.COUNT_AT + 8].cast("Q")
        self._pack = RECORD.pack_into
        self._packs: list[Callable[..., None]] = [struct.Struct(f"<{n * FIELDS}").pack_into for n in range(_AT_ONCE)]
        self._place = self._room_until = 0
        """The number of the next record; of the first one that lies in the next part of the ring."""
        self._lock = RLock()
        self._names: dict[str, int] = {}
        self._first = get_ident()
        self._threads: dict[int, int] = {self._first: 0}
        self._calling: set[int] = set()
        """The threads that are in a call which is noted."""
        self.name_peers(tuple(range(ranks)))

    def name_peers(self, members: tuple[int, ...]) -> None:
        """Name peers by their ranks in the job, of which `members` has one for each rank of the session. Local."""
        self._members = members
        self._sent = [code(Kind.SENT, peer) for peer in members]
        self._scatters = [code(Kind.SCATTER, peer) for peer in members]
        self._merged = [code(Kind.MERGED, peer) for peer in members]
        self._gathers = [code(Kind.GATHER, peer) for peer in members]

    def begin(self, now: float, offset_s: float = 0.0, error_s: float = 0.0) -> None:
        """Write down the clock of this rank, which is `now`, and how it stands to that of the lowest rank. Local."""
        struct.pack_into("<4d", self._file, layout.CLOCKS_AT, now, time.time(), offset_s, error_s)

    def begun(self, now: float) -> None:
        self.name(f"{layout.TRAINS}{now}")

    def name(self, text: str) -> int:
        number = self._names.get(text)
        if number is None:
            with self._lock:
                number = self._names[text] = min(len(self._names), layout.NAMES - 1)
                shown = (text if number < layout.NAMES - 1 else _LAST_NAME).encode(errors="replace")
                struct.pack_into(f"{layout.NAME_NBYTES}s", self._file, layout.name_at(number), shown)
                struct.pack_into("<I", self._file, layout.NAMES_AT, number + 1)
        return number

    def sent(self, name: int, step: int, start: float, end: float, messages: Sequence[tuple[int, int]]) -> None:
        step &= _MOST_STEPS
        if len(messages) == 1:
            ((peer, nbytes),) = messages
            self._write_one(start, end - start, self._scatters[peer], name, step, nbytes)
            return
        fields: list[Any] = []
        whole = 0
        for peer, nbytes in messages:
            whole += nbytes
            fields += (end, 0.0, self._sent[peer], name, step, nbytes)
        fields += (start, end - start, _SCATTER, name, step, whole)
        self._write(fields)

    def merged(
        self, name: int, step: int, start: float, end: float, senders: Sequence[int], steps: Sequence[int],
        overwritten: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        if not overwritten:
            if not senders:
                self._write_one(start, end - start, _GATHER, name, step & _MOST_STEPS, 0)
                return
            if len(senders) == 1 and -_MOST_BEHIND <= (behind := step - steps[0]) < _MOST_BEHIND:
                about = name | (behind & 0xFFFF) << 16
                self._write_one(start, end - start, self._gathers[senders[0]], about, step & _MOST_STEPS, 1)
                return
        fields: list[Any] = []
        for peer, its_step in zip(senders, steps, strict=True):
            fields += (end, 0.0, self._merged[peer], name, its_step & _MOST_STEPS, step - its_step)
        step &= _MOST_STEPS
        for peer, number in overwritten:
            fields += (end, 0.0, code(Kind.OVERWRITTEN, self._members[peer]), name, step, number)
        fields += (start, end - start, _GATHER, name, step, len(senders))
        self._write(fields)

    def waited(self, what: str, start: float, end: float, peers: Iterable[tuple[int, float]]) -> None:
        name, fields = self.name(what), []
        for peer, seconds in peers:
            fields += [start, seconds, code(Kind.WAITED, self._members[peer]), name, 0, 0]
        self._write([*fields, start, end - start, code(Kind.WAIT), name, 0, 0])

    def yielded(self, start: float, end: float) -> None:
        self._write_one(start, end - start, _YIELD, 0, 0, 0)

    @contextlib.contextmanager
    def call(self, what: str) -> Iterator[None]:
        thread = get_ident()
        if thread in self._calling:
            yield
            return
        self._calling.add(thread)
        start = self._clock()
        try:
            yield
        finally:
            self._calling.discard(thread)
            self._write_one(start, self._clock() - start, code(Kind.CALL), self.name(what), 0, 0)

    def failed(self, ranks: Iterable[int], now: float) -> None:
        """Note that ranks of the session were seen to have failed. Local."""
        for rank in ranks:
            self._write_one(now, 0.0, code(Kind.FAILED, self._members[rank]), 0, 0, 0)

    def settle(self, edges: Mapping[int, EdgeTotals]) -> None:
        with self._lock:
            for peer, edge in edges.items():
                self._totals[self._members[peer]] += layout.settled(edge)

    # -- private ----------------------------------------------------------------------------------------------

    def _write_one(self, start: float, seconds: float, about: int, name: int, step: int, value: int) -> None:
        """Write a record. It is what most exchanges cost: each look at another object counts where caches are cold."""
        if get_ident() != self._first:
            about |= self._thread() << 8
        with self._lock:
            place = self._place
            if place == self._room_until:
                self._make_room()
            at = self._start + place % self._capacity * _NBYTES
            self._pack(self._file, at, start, seconds, about, name, step, value)
            self._place = self._written[0] = place + 1

    def _write(self, fields: Sequence[Any]) -> None:
        """Write records, whose fields come one after the other."""
        count = len(fields) // len(FIELDS)
        with self._lock:
            if count >= _AT_ONCE or self._place + count > self._room_until:
                for at in range(0, len(fields), len(FIELDS)):
                    self._write_one(*fields[at : at + len(FIELDS)])
                return
            if get_ident() != self._first:
                fields, thread = list(fields), self._thread()
                fields[2 :: len(FIELDS)] = [one | thread << 8 for one in fields[2 :: len(FIELDS)]]
            at = self._start + self._place % self._capacity * _NBYTES
            self._packs[count](self._file, at, *fields)
            self._place = self._written[0] = self._place + count

    def _make_room(self) -> None:
        """Add the part of the ring that is overwritten next to the totals."""
        if self._place >= self._capacity:
            at = self._place % self._capacity
            old = layout.expanded(self._records[at : at + self._part])
            self._totals += layout.totals(old, len(self._totals))
            struct.pack_into("<Q", self._file, layout.SINCE_AT, self._place - self._capacity + self._part)
        self._room_until += self._part

    def _thread(self) -> int:
        """The number of this thread."""
        return self._threads.setdefault(get_ident(), min(len(self._threads), _THREADS))


def _mapped(path: str, nbytes: int) -> mmap.mmap:
    """Return a new file of so many bytes, mapped. OSError: there is none then. Local."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # a process that has mapped it is killed (SIGBUS) if it is cut off
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.posix_fallocate(file, 0, nbytes)  # a page that the disk has no room for would kill the rank later
        return mmap.mmap(file, nbytes)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(file)


_SCATTER, _GATHER, _YIELD = code(Kind.SCATTER), code(Kind.GATHER), code(Kind.YIELD)
