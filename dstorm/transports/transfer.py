"""The transfer thread: it sends to ranks of other hosts what scatters have handed over, while this rank computes.

It goes in rounds. In a round each outgoing buffer puts a message for each peer. Then come errands, and one flush for
each window: the round trips of all vectors and peers overlap. MPI lets threads call it at the same time only at
level MULTIPLE; below that there is no such thread, and scatters wait. Links between hosts let any thread call them.

A scatter holds the call lock of its vector, then for a moment the lock of its buffer. A round holds `calling`, and
takes the lock of each buffer twice. No MPI call, copy or join is made under the lock of a buffer, and neither a call
lock nor `calling` is taken under it.

With MPICH a flush holds the lock that all other MPI calls wait for, except MPI_Win_sync. So under asp a rank makes no
MPI call of its own: heartbeats are errands, and `pause` leaves polling to the thread while a round is under way.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dstorm.errors import TransferFailed
from dstorm.queues.waits.waiting import Awaited, Waiting
from dstorm.transport import Load, Transport
from dstorm.transports.progress import run_at_once


@dataclass(eq=False)
class _Errand:
    """Calls that the transfer thread makes for others."""

    run: Callable[[], object]
    receivers: Sequence[Awaited]
    """The ranks that they write to."""
    is_done: bool = False


class Rounds:
    """The rounds of one rank, without a thread of their own. All methods but `drain` may come from any thread.

    `transport`: whose clock and waits they use. `deadline_s`: how long what was handed over may stand still while
    `drain` waits for it.
    """

    def __init__(self, transport: Transport, deadline_s: float) -> None:
        self._clock, self._rank = transport.clock, transport.rank
        self.waiting = Waiting(transport, deadline_s, lambda: None)
        """How `drain` waits for errands."""
        self.moved_at = self._clock()
        self.busy_s = 0.0
        self._loads: tuple[Load, ...] = ()
        self._errands: deque[_Errand] = deque()
        """Those that are not finished, oldest first."""
        self._error: BaseException | None = None
        """What has ended a round."""
        self._changing = threading.Lock()
        self.calling = threading.Lock()
        """Held during a round. Who holds it keeps the rounds from calling MPI."""
        self.is_under_way = False
        """Whether a round is under way, and calls MPI."""

    def add(self, load: Load) -> None:
        """Carry `load` from now on, until `remove`. Local."""
        with self._changing:
            self._loads = (*self._loads, load)

    def remove(self, load: Load) -> None:
        """Remove a buffer, after the end of a round. Local."""
        with self.calling, self._changing:
            self._loads = tuple(one for one in self._loads if one is not load)

    def later(self, errand: Callable[[], object], peers: Iterable[int]) -> None:
        """Call `errand()` soon: it makes one-sided calls to `peers` that this rank does not wait for. Local."""
        now = self._clock()
        self._errands.append(_Errand(errand, [Awaited(peer, heard_at=now) for peer in sorted(peers)]))
        self.wake()

    def wake(self) -> None:
        """Do nothing: without a thread the caller makes the rounds. Local."""

    def check(self) -> None:
        """TransferFailed: an error has ended it, and it carries nothing any more. Local."""
        if self._error is not None:
            raise TransferFailed(self._rank, self._error) from self._error

    def round(self) -> bool:
        """Send a message of each buffer to each peer; return whether there was anything to do. One-sided.

        An error of MPI comes out here, and for good in `check`.
        """
        with self.calling:
            self.is_under_way = True
            try:
                return self._go_round()
            except BaseException as error:
                self._error = error
                raise
            finally:
                self.is_under_way = False

    def _go_round(self) -> bool:
        start = self._clock()
        started = [load for load in self._loads if load.start()]
        errands = self._run_errands()
        for load in started:
            load.flush()
        for load in started:
            load.finish()
        if started or errands:
            self.moved_at = self._clock()
            self.busy_s += self.moved_at - start
        return bool(started) or errands

    def _run_errands(self) -> bool:
        has_any = bool(self._errands)
        while self._errands:
            errand = self._errands[0]
            errand.run()
            errand.is_done = True
            self._errands.popleft()
        return has_any

    def drain(self, what: str, timeout_s: float | None = None) -> None:
        """Return when all that was handed over before this call has arrived; what comes meanwhile has time."""
        errands, start = tuple(self._errands), self._clock()

        def left_s() -> float | None:
            """Return what is left of `timeout_s`."""
            return None if timeout_s is None else max(0.0, timeout_s - (self._clock() - start))

        def missing() -> list[Awaited]:
            """The receivers of the errands that are not finished."""
            self.check()
            return [receiver for errand in errands if not errand.is_done for receiver in errand.receivers]

        self.wake()  # a signal handler may have raised in a scatter, before it did
        for load in self._loads:
            load.drain(what, left_s())
        self.waiting.until_none(what, missing, left_s(), lambda: self.moved_at)


class TransferThread(Rounds):
    """Rounds in a thread, which sleeps where there is nothing to send. It starts at once.

    An error ends it. Then each scatter and each collective call raises TransferFailed.
    """

    def __init__(self, transport: Transport, deadline_s: float) -> None:
        super().__init__(transport, deadline_s)
        self._awake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="malt transfer", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Take up what the loads have got meanwhile. Local."""
        self._awake.set()

    def _run(self) -> None:
        run_at_once()
        with contextlib.suppress(Exception):  # `check` raises it where the user sees it
            is_last = False
            while not is_last:
                self._awake.wait(self._nap_s())
                self._awake.clear()
                is_last = self._is_stopping  # once more: what was handed over before leaves
                while self.round():
                    pass

    def _nap_s(self) -> float | None:
        """Return the time for which the thread sleeps where nobody wakes it; None: for ever."""
        due_at = min((load.due_at for load in self._loads), default=math.inf)
        return None if due_at == math.inf else max(0.0, due_at - self._clock())

    def stop(self, longest_s: float | None = None) -> None:
        """Return once the thread makes no more calls, or after `longest_s` seconds. Local."""
        self._is_stopping = True
        self._awake.set()
        self._thread.join(longest_s)
