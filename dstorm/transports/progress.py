"""Progress of one-sided communication towards a rank that computes.

Inside a host a Put is a copy, and needs nobody. Over a network that is not RDMA it completes only while its target is
inside the MPI library (MPI-4.1, 12.7.3 leaves that to the implementation). In a world that spans hosts each rank
therefore has help: a thread of the MPI library's own, where the environment has asked for a good one, else a thread of
ours that calls the library every now and then: `Helper`. It needs the GIL for some microseconds each time, so compiled
code must release it.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

OPENMPI_THREAD = "OMPI_MCA_btl_tcp_progress_thread"
"""What makes Open MPI receive TCP in a thread of its own, without the GIL; it reads it in MPI_Init. MPICH's
MPIR_CVAR_ASYNC_PROGRESS spins, and takes half of a full core's compute: not used."""

SHORTEST_NAP_S = 5e-5
LONGEST_NAP_S = 2e-3
_GROWTH = 2.0
"""Of the nap after a poll that moved nothing: seven polls from the shortest to the longest, 6 ms."""
_SHARE = 0.01
"""Of the processor time that polls may take in silence; waking up for them costs as much again."""
_BUSY = 3.0
"""A poll that costs so many times the usual has moved bytes. A wrong guess costs those seven polls."""
_LEARNING = 1 / 16
"""The weight of a new silent poll in what is usual."""
_DOUBT = 1 / 16384
"""That of a busy one: bytes may stream for seconds, but what stays forever is not traffic."""
ADVICE = {
    True: "malt: MPI runs at thread level SERIALIZED and ranks are on several hosts: malt's calls of MPI take turns "
    "with its helper thread's; your own must not overlap with them (mpi4py's default thread level lets them)",
    False: "malt: MPI runs at a thread level that allows no helper thread and ranks are on several hosts: over TCP a "
    "scatter waits while its receiver computes (mpi4py's default thread level mends that)",
}
"""What rank 0 says where the thread level is below MULTIPLE, by whether it is SERIALIZED."""
_STOP_S = 5.0
"""How long to wait for the thread to end: it may sit in a library that is stuck, which must not hold up an exit."""


def spans_hosts(hosts: Iterable[str]) -> bool:
    """Whether some rank of a world cannot share memory with some other: `hosts` by rank, as in `Transport`."""
    return len(set(hosts)) > 1


def library_helps(library: str, environ: Mapping[str, str]) -> bool:
    """Whether the MPI library itself receives while the program computes."""
    return library.startswith("Open MPI") and environ.get(OPENMPI_THREAD, "0") not in ("", "0")


class Pace:
    """How long to nap between two polls, by what they cost. Pure.

    MPI does not say whether a poll has moved bytes; its processor time does. Traffic comes in trains (mark, payload in
    pieces, publish), so a busy poll makes the next ones frequent; in silence they are rare, and cost next to nothing.
    """

    def __init__(self) -> None:
        self._nap_s = LONGEST_NAP_S
        self._usual_s = 0.0
        """What a silent poll costs after the longest nap, when all caches are cold."""

    def nap_s(self, cost_s: float) -> float:
        """Seconds until the next poll, after one that took `cost_s` of processor time."""
        usual_s = self._usual_s or cost_s
        longest_s = max(LONGEST_NAP_S, usual_s / _SHARE)
        busy = cost_s > _BUSY * usual_s
        weight = _DOUBT if busy else _LEARNING if self._nap_s >= longest_s else 0.0
        self._usual_s = usual_s + weight * (min(cost_s, _BUSY * usual_s) - usual_s)
        self._nap_s = SHORTEST_NAP_S if busy else min(_GROWTH * self._nap_s, longest_s)
        return self._nap_s


class Helper:
    """A thread that calls `poll`, which enters the MPI library, until it is stopped. Starts at once."""

    def __init__(self, poll: Callable[[], object]) -> None:
        self._poll = poll
        self.calling = threading.Lock()
        """Whoever holds it keeps the thread from calling."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="malt progress", daemon=True)
        self._thread.start()
        # Before the interpreter takes the GIL away for good, and MPI is finalized under the thread.
        atexit.register(self.stop)

    def _run(self) -> None:
        pace = Pace()
        while not self._stopping:
            before_s = time.thread_time()
            with self.calling:
                self._poll()
            time.sleep(pace.nap_s(time.thread_time() - before_s))

    def stop(self) -> None:
        """Return once the thread makes no more calls. Local; a second call does nothing."""
        self._stopping = True
        self._thread.join(_STOP_S)
        atexit.unregister(self.stop)


def unless_held(lock: threading.RLock, function: Callable[[], object]) -> Callable[[], None]:
    """`function`, skipped where another thread holds `lock`: that one is inside the library, and moves bytes itself."""

    def call() -> None:
        if lock.acquire(blocking=False):
            try:
                function()
            finally:
                lock.release()

    return call


class Serialized:
    """An object of the MPI library, here `target`: each of its methods holds `lock` while it runs."""

    def __init__(self, target: object, lock: threading.RLock) -> None:
        self._target, self._lock = target, lock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return partial(self._call, found) if callable(found) else found

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(*args, **kwargs)
