"""The output of a job: whole lines, those of each rank in the order in which it wrote them.

Ranks on the launcher's host write to named pipes in the folder of the job (malt/runner/program.py): mpiexec may cut a
line in two by a line of another rank. The output of mpiexec, and of ranks on other hosts, comes from mpiexec. An
incomplete line is held back only for a moment, so that prompts and progress bars appear. So is a traceback: equal ones
of several ranks are written once, below a line that names the ranks.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from malt.launch.streams.banners import Banners
from malt.launch.streams.display import PLAIN, Display, keepers, speak_through
from malt.launch.streams.writer import Writer
from malt.runner.program import PIPES

_PART_S = 0.25
"""How long an incomplete line is held back: its rank may lose its core while it writes."""
_TRACEBACK = re.compile(rb"^Traceback \(most recent call last\):\r?\n", re.MULTILINE)
_TRACEBACK_S, _TRACEBACK_NBYTES = 0.08, 1 << 16
"""How a traceback begins; and how long, and how much of it and of what follows, is held back. A rank that fails ends
0.1 s later: what others print about that comes below."""
_POLL_S, _GATHER_S = 0.1, 0.01
"""The interval of the checks for lines held back; and how long to wait for more after a rank has begun to write, so
that its traceback comes in one piece."""
_HIDE_S = 0.2
"""How long a picture may take to go. A terminal may be slow, or stopped by Ctrl-S."""
_DRAIN_S = 5.0
"""How long to read after the end of mpiexec: a process that it has left running may print for ever."""
_PIECE_NBYTES, _MOST_NBYTES = 1 << 16, 1 << 26
"""How much is read at once; and how much is kept for a slow reader before ranks block in their prints."""

_TAG = re.compile(rb"^\[[^\]\n]*,(\d+)\]<std(?:out|err)>: ?", re.MULTILINE)
"""The prefix by which Open MPI names the rank of a line."""


class Lines:
    """Joins the output of several sources into whole lines, which it passes to `write`. Pure.

    `label`: each line begins with the rank that wrote it.
    """

    def __init__(self, write: Callable[[bytes], None], label: bool = False) -> None:
        self._write, self._label = write, label
        self._sources: defaultdict[Source, _Held] = defaultdict(_Held)
        self._open: Source | None = None
        """The source of the incomplete line at the end of what was written."""

    def feed(self, source: Source, data: bytes, now: float) -> None:
        """Take `data`, which `source` wrote by time `now`. Hold an incomplete line back until its end or a `tick`."""
        self._release_old(now - _TRACEBACK_S, source)
        held = self._sources[source]
        *lines, held.part = (held.part + data).split(b"\n")
        if lines and source.rank and source.number == 1:  # the stdout of a rank has no banners
            self._emit(source, b"\n".join([*lines, b""]))
        else:
            self._pass_on(source, b"".join(held.banners.pass_on(line + b"\n") for line in lines), now)
        if lines or held.since is None:
            held.since = now if held.part or held.banners.holds() else None

    def tick(self, now: float, patience_s: float = _PART_S) -> None:
        """Write what was held back for `patience_s` seconds or longer."""
        self._release_old(now - min(patience_s, _TRACEBACK_S))
        for source, held in self._sources.items():
            if held.since is not None and now - held.since >= patience_s:
                # Open MPI's mpiexec ends what it prints about a failure by a zero byte.
                part = held.part if source.rank else held.part.rstrip(b"\0")
                self._emit(source, held.banners.release() + part)
                held.part, held.since = b"", None

    def _pass_on(self, source: Source, data: bytes, now: float) -> None:
        """Write `data`, which are whole lines. Hold a traceback of a rank, and what the rank prints below, back."""
        held = self._sources[source]
        if source.rank and not held.traceback and (found := _TRACEBACK.search(data)):
            self._emit(source, data[: found.start()])
            data, held.began = data[found.start() :], now
        elif not held.traceback:
            self._emit(source, data)
            return
        held.traceback += data
        if len(held.traceback) > _TRACEBACK_NBYTES:
            self._release(source)

    def _release_old(self, moment: float, spared: Source | None = None) -> None:
        """Write the tracebacks that are held back since `moment`, or longer, but for that of `spared`."""
        for source, held in self._sources.items():
            if held.traceback and held.began <= moment and source != spared:
                self._release(source)

    def _release(self, source: Source) -> None:
        """Write the traceback of `source`, once for all ranks that have the same."""
        text = self._sources[source].traceback
        equal = [one for one, held in self._sources.items() if held.traceback == text]
        for one in equal:
            self._sources[one].traceback = b""
        ranks = ", ".join(sorted((one.rank for one in equal), key=int))
        if len(equal) == 1:
            self._emit(source, text)
        elif self._label:
            self._emit(source._replace(rank=ranks), text)
        else:
            self._emit(source, f"ranks {ranks}:\n".encode() + text)

    def end_line(self) -> None:
        """Note that others have ended the incomplete line: a user has typed an answer behind it."""
        self._open = None

    @property
    def is_within_line(self) -> bool:
        """True if what was written does not end with a newline."""
        return self._open is not None

    def banners(self) -> bytes:
        """Return what MPI printed about the end of the job, which was left out of the output."""
        return b"".join(held.banners.found for held in self._sources.values())

    def _emit(self, source: Source, data: bytes) -> None:
        if not data:
            return
        goes_on = self._open == source
        if self._open is not None and not goes_on:
            self._write(b"\n")
        self._open = None if data.endswith(b"\n") else source
        self._write(_labelled(source, data, goes_on) if self._label else data)


class Source(NamedTuple):
    """The origin of some output."""

    rank: str
    """Its rank. Empty: mpiexec."""
    number: int
    """1: stdout; 2: stderr; 0: the launcher itself."""


_LAUNCHER = Source("", 0)


@dataclass
class _Held:
    """The output of a source that is held back."""

    part: bytes = b""
    """An incomplete line."""
    banners: Banners = field(default_factory=Banners)
    since: float | None = None
    traceback: bytes = b""
    """A traceback, and what its rank has printed below it."""
    began: float = 0.0
    """When that has begun."""


def _labelled(source: Source, data: bytes, goes_on: bool) -> bytes:
    if not source.rank:
        return _TAG.sub(rb"[\1] ", data)
    name = b"[" + source.rank.encode() + b"] "
    return (b"" if goes_on else name) + re.sub(rb"\n(?!\Z)", b"\n" + name, data)


class Output:
    """The output of one job. One thread reads it, others print it. `folder`: that of the job.

    is_hurried(): whether the user waits no more for a reader that takes nothing.
    """

    def __init__(
        self, folder: Path, ranks: int, display: Display = PLAIN, is_hurried: Callable[[], bool] = bool
    ) -> None:  # fmt: skip
        self._shown = None if display.ranks is None else {"", *map(str, display.ranks)}
        self._kept: dict[str, Lines] = {}
        if display.folder is not None:
            self._kept = {str(rank): Lines(keep) for rank, keep in enumerate(keepers(display.folder, ranks))}
        self._selector = selectors.DefaultSelector()
        self._end, self._ended = os.pipe()
        """A pipe whose end ends the reading at once."""
        self._selector.register(self._end, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="malt output", daemon=True)
        for rank in range(ranks):
            for number, name in PIPES.items():
                with contextlib.suppress(OSError):  # no more file descriptors: the rank prints through mpiexec
                    path = folder / f"{name}-{rank}"
                    os.mkfifo(path, 0o600)
                    # Open for writing, too: so it does not end when the rank ends.
                    self._listen(os.open(path, os.O_RDWR | os.O_NONBLOCK), Source(str(rank), number))
        self._writers = {1: Writer(1)}
        self._writers[2] = self._writers[1] if os.path.samestat(os.fstat(1), os.fstat(2)) else Writer(2)
        lines = {writer: Lines(writer.write, display.label) for writer in self._writers.values()}
        self._lines = {number: lines[writer] for number, writer in self._writers.items()}
        self._is_hurried = is_hurried
        self._joining = threading.RLock()  # a file of --output that is full is a line, too
        self.pipes: list[int] = []
        """The file descriptors for mpiexec's stdout and stderr."""
        self.other_ends: list[int] = []
        """The read ends, which mpiexec inherits, too. Otherwise it would get SIGPIPE if the launcher is killed: Open
        MPI's would exit then and leave its ranks running."""
        for number in PIPES:
            ours, theirs = os.pipe()
            os.set_blocking(ours, False)
            self._listen(ours, Source("", number))
            self.pipes.append(theirs)
            self.other_ends.append(ours)

    def start(self) -> None:
        """Start to read and print. Call it after the start of mpiexec. Local."""
        for number in self.pipes:
            os.close(number)
        for writer in {*self._writers.values()}:  # no threads before mpiexec was forked
            writer.start()
        self._thread.start()
        speak_through(self._say)

    def screen(self) -> Writer | None:
        """Return the writer to a terminal, that of stdout or else of stderr. None: neither is a terminal. Local."""
        return next((writer for _, writer in sorted(self._writers.items()) if writer.is_screen()), None)

    def note_typed(self) -> None:
        """Note that a user has ended a line on the terminal of standard input. Any thread may call it. Local."""
        with self._joining:
            for number, lines in self._lines.items():
                if os.isatty(number):
                    lines.end_line()
                    self._writers[number].end_line()

    def has_lost(self) -> bool:
        """Return whether some of what was printed could not be written. Local."""
        return any(writer.has_lost for writer in self._writers.values())

    def hide(self) -> None:
        """Take the picture away until the next one is drawn: others are about to write to the terminal. Local."""
        if (screen := self.screen()) is not None:
            screen.hide(_HIDE_S)

    def close(self, picture: Sequence[bytes] = ()) -> bytes:
        """Print the rest of the output, and return what MPI printed about the end of the job. Local.

        `picture`: what is left on the screen below it.
        """
        os.close(self._ended)
        self._thread.join()
        screen = self.screen() if picture else None
        written = {  # stderr last: that of stdout may have to say something
            writer: writer.close(picture if writer is screen else (), self._is_hurried)
            for writer in dict.fromkeys(self._writers.values())
        }
        if written[self._writers[2]]:
            speak_through(None, self._lines[2].is_within_line and screen is not self._writers[2])
        else:  # nobody reads stderr
            speak_through(lambda text: None)
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()
        return b"".join(lines.banners() for lines in {*self._lines.values()})

    def _listen(self, number: int, source: Source) -> None:
        self._selector.register(number, selectors.EVENT_READ, source)

    def _run(self) -> None:
        is_full = False
        while self._end not in (ready := [key.fd for key, _ in self._selector.select(_POLL_S)]):
            if ready and not is_full:
                time.sleep(_GATHER_S)
            is_full = self._read() >= _PIECE_NBYTES
            self._tick()
            while sum(writer.pending for writer in {*self._writers.values()}) > _MOST_NBYTES and not self._is_hurried():
                time.sleep(_GATHER_S)
        os.close(self._selector.unregister(self._end).fd)
        end = time.monotonic() + _DRAIN_S
        while self._read() and time.monotonic() < end:
            pass
        self._tick(0.0)

    def _tick(self, patience_s: float = _PART_S) -> None:
        with self._joining:
            for lines in {*self._lines.values(), *self._kept.values()}:
                lines.tick(time.monotonic(), patience_s)

    def _say(self, text: str) -> None:
        """Print lines of the launcher on stderr. Any thread may."""
        if text:
            with self._joining:
                self._lines[2].feed(_LAUNCHER, text.encode(errors="replace"), time.monotonic())

    def _read(self) -> int:
        """Read at most one piece of each source. Returns the length of the longest, in bytes."""
        most = 0
        found = [key for key, _ in self._selector.select(0) if key.fd != self._end]
        for key in sorted(found, key=lambda one: one.data):
            with contextlib.suppress(BlockingIOError):
                data = os.read(key.fd, _PIECE_NBYTES)
                if not data:
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
                self._feed(key.data, data, time.monotonic())
                most = max(most, len(data))
        return most

    def _feed(self, source: Source, data: bytes, now: float) -> None:
        """Keep and show `data`, as the display has it."""
        if source.rank in self._kept:
            self._kept[source.rank].feed(source, data, now)
        if self._shown is None or source.rank in self._shown:
            with self._joining:
                self._lines[source.number].feed(source, data, now)
