"""A thread that writes to stdout or stderr, whose reader may be slow, and draws a picture below it."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import select
import stat
import threading
from collections.abc import Callable, Sequence
from functools import partial

from malt.launch.streams.display import is_in_background, is_screen, say
from malt.launch.streams.terminal import Terminal

_UNKNOWN = os.terminal_size((80, 24))
"""The size of a terminal that does not know it."""
_LAST_S, _POLL_S = 1.0, 0.1
"""How long the rest is written even where the user waits no more; and the interval at which that is looked at."""


def _is_file(number: int) -> bool:
    return stat.S_ISREG(os.fstat(number).st_mode)


class Writer:
    """The only one that writes to the file descriptor `number` while a job runs."""

    def __init__(self, number: int) -> None:
        self._given = self._taken = 0
        """The bytes that were given to `write`, and those that the thread has taken. A sum that two threads change may
        lose what one has added."""
        self.has_lost = False
        """Whether some could not be written, as on a full disk. What nobody reads any more is not lost."""
        self._number, self._terminal = number, Terminal()
        self._queue: queue.SimpleQueue[Callable[[], bytes] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="malt output", daemon=True)

    def start(self) -> None:
        """Start to write. Local."""
        self._thread.start()

    @property
    def pending(self) -> int:
        """The number of bytes not yet written."""
        return self._given - self._taken

    def write(self, data: bytes) -> None:
        """Write `data`, soon. Not by two threads at once. Local."""
        self._given += len(data)
        self._queue.put(partial(self._text, data))

    def end_line(self) -> None:
        """Note that others have ended the incomplete line. Local."""
        self._queue.put(self._terminal.end_line)

    def is_screen(self) -> bool:
        """Return whether it writes to a terminal that can move its cursor. Local."""
        return is_screen(self._number)

    def size(self) -> os.terminal_size | None:
        """Return the size of the terminal that it writes to. None: it is none, or not this process's for now. Local."""
        if self.is_screen() and not is_in_background(self._number):
            with contextlib.suppress(OSError):
                size = os.get_terminal_size(self._number)
                return size if size.columns and size.lines else _UNKNOWN
        return None

    def show(self, picture: Sequence[bytes], columns: int) -> None:
        """Draw `picture` in place of the one before, as `Terminal.show` does, unless the reader is behind. Local."""
        if self._queue.empty():
            self._queue.put(partial(self._terminal.show, picture, columns))

    def hide(self, patience_s: float) -> None:
        """Take the picture away. Wait until that is done, or for `patience_s`. Local."""
        done = threading.Event()

        def note() -> bytes:
            """Note that the picture is gone; draw nothing."""
            done.set()
            return b""

        self._queue.put(partial(self._terminal.show, (), 1))
        self._queue.put(note)
        done.wait(patience_s)

    def close(self, picture: Sequence[bytes] = (), is_hurried: Callable[[], bool] = bool) -> bool:
        """Wait until all is written, and `picture` below it for good, or until is_hurried(). Local.

        Returns whether it is written. If not, the thread is left, and nobody else can write there either.
        """
        self._queue.put(partial(self._terminal.close, picture))
        self._queue.put(None)
        self._thread.join(_LAST_S)
        while self._thread.is_alive() and not is_hurried():
            self._thread.join(_POLL_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (made := self._queue.get()) is not None:
            data = made()
            try:
                while data:
                    data = data[self._write_some(data) :]
            except OSError as error:  # the job goes on
                self._note(error)

    def _note(self, error: OSError) -> None:
        """Say once that output is lost, unless its reader, or the terminal, is gone."""
        is_gone = error.errno == errno.EPIPE or (error.errno == errno.EIO and not _is_file(self._number))
        if not is_gone and not self.has_lost:
            self.has_lost = True
            name = {1: "standard output", 2: "standard error"}.get(self._number, f"file descriptor {self._number}")
            say(f"malt run: what ranks print is lost: {name}: {error.strerror}\n")

    def _write_some(self, data: bytes) -> int:
        """Write the beginning of `data`. Returns its length. Local."""
        try:
            return os.write(self._number, data)
        except BlockingIOError:  # another process has made it non-blocking, as ssh and node do
            select.select([], [self._number], [])
            return 0

    def _text(self, data: bytes) -> bytes:
        self._taken += len(data)
        return self._terminal.text(data)
