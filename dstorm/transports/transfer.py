"""The transfer thread: it sends to ranks of other hosts what scatters have handed over, while this rank computes.

It goes in rounds. In a round each outgoing buffer starts the Puts of its next stage. Then come errands, and one flush
for each window: the round trips of all vectors and peers overlap. MPI lets threads call it at the same time only at
level MULTIPLE; below that there is no such thread, and scatters wait.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from dstorm.transport import Load


class Rounds:
    """The rounds of one rank, without a thread of their own. All methods but `drain` may come from any thread.

    `pause(polls)`: how to wait, as `Transport.pause`.
    """

    def __init__(self, pause: Callable[[int], object]) -> None:
        self._pause = pause
        self._loads: tuple[Load, ...] = ()
        self._errands: deque[Callable[[], object]] = deque()
        self._unfinished = 0
        """Errands that were taken up, and are not finished."""
        self._changing = threading.Lock()
        self.calling = threading.Lock()
        """Held during a round. Who holds it keeps the rounds from calling MPI."""

    def add(self, load: Load) -> None:
        """As `Carrier.add`. Local."""
        with self._changing:
            self._loads = (*self._loads, load)

    def remove(self, load: Load) -> None:
        """As `Carrier.remove`. Local; it waits for the end of a round."""
        with self.calling, self._changing:
            self._loads = tuple(one for one in self._loads if one is not load)

    def later(self, errand: Callable[[], object]) -> None:
        """As `Carrier.later`. Local."""
        self._errands.append(errand)
        self.wake()

    def wake(self) -> None:
        """As `Carrier.wake`. Local."""

    def round(self) -> bool:
        """Take every message a stage further; return whether there was anything to do. One-sided."""
        with self.calling:
            started = [load for load in self._loads if load.start()]
            errands = self._run_errands()
            for load in started:
                load.flush()
            for load in started:
                load.finish()
        return bool(started) or errands

    def _run_errands(self) -> bool:
        has_any = bool(self._errands)
        while self._errands:
            self._unfinished += 1
            self._errands.popleft()()
            self._unfinished -= 1
        return has_any

    def drain(self, what: str) -> None:
        """As `Carrier.drain`. One-sided."""
        for load in self._loads:
            load.drain(what)
        polls = 0
        while self._errands or self._unfinished:
            self._pause(polls)
            polls += 1


class TransferThread(Rounds):
    """Rounds in a thread, which sleeps where there is nothing to send. It starts at once."""

    def __init__(self, pause: Callable[[int], object]) -> None:
        super().__init__(pause)
        self._awake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="malt transfer", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """As `Carrier.wake`. Local."""
        self._awake.set()

    def _run(self) -> None:
        while not self._is_stopping:
            self._awake.wait()
            self._awake.clear()
            while self.round():
                pass

    def stop(self) -> None:
        """Return once the thread makes no more calls. Local."""
        self._is_stopping = True
        self._awake.set()
        self._thread.join()
