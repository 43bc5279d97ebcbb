"""A rank's answers to who asks what it shows.

A thread reads the pipe ask-<rank> in the folder of the job, and writes shown-<rank> whenever somebody has written a
byte to it. So what nobody looks at costs nothing: no clock runs, and no file is written. A rank on another host, whose
pipe nobody could find, reports every second.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from malt.runner import reporting
from malt.runner.events import ASK, SHOWN

if TYPE_CHECKING:
    from malt.watch.record import Counters

_EVERY_S = 1.0
_MOST_NBYTES = 1 << 16

_counters: Callable[[], Counters] | None = None
_has_begun = False
_answering = threading.Lock()


def start(counters: Callable[[], Counters] | None = None) -> None:
    """Answer from now on, if a launcher has started this process as a rank. Local.

    `counters`: what this rank knows of its exchanges. That of a later call replaces it.
    """
    global _counters, _has_begun
    _counters = counters or _counters
    if _has_begun:
        return
    _has_begun = True
    folder = reporting.folder()
    if folder is not None:
        with contextlib.suppress(OSError):  # the folder is gone, or no file descriptors are left
            path = os.path.join(folder, ASK.format(reporting.rank()))
            os.mkfifo(path, 0o600)
            pipe = os.open(path, os.O_RDWR)  # for writing, too: so it does not end
            _answer_whenever(lambda: bool(os.read(pipe, _MOST_NBYTES)))
    elif reporting.is_connected():
        _answer_whenever(_always)


def _always() -> bool:
    time.sleep(_EVERY_S)
    return True


def _answer_whenever(is_asked: Callable[[], bool]) -> None:
    def run() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the program's threads
        if is_asked():
            atexit.register(_answer)  # somebody watches, and shall see how this rank has ended
            _answer()
        while is_asked():
            _answer()

    threading.Thread(target=run, name="malt answers", daemon=True).start()


def _answer() -> None:
    with _answering, contextlib.suppress(Exception):  # an uncaught exception of a thread would end the job
        reporting.publish(SHOWN.format(reporting.rank()), _text())


def _text() -> str:
    from malt.watch import record, reports  # takes some ms, which the start of a job need not wait

    return reports.record(_counters() if _counters else record.Counters()).text()
