"""Progress threads: they complete Puts to a rank that computes.

Inside a host a Put is a copy, and needs no action of its target. Over a network without RDMA it completes only while
its target is inside the MPI library (MPI-4.1, 12.7.3 leaves that to the implementation). So each rank of a world that
spans hosts has a progress thread. It is the MPI library's own where the environment asks for a good one. Otherwise it
is a `Helper`, which calls the library every now and then. A Helper needs the GIL for some microseconds each time, so
compiled code must release it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

OPENMPI_THREAD = "OMPI_MCA_btl_tcp_progress_thread"
"""The variable that makes Open MPI receive TCP in a thread of its own, without the GIL. MPI_Init reads it. MPICH's
MPIR_CVAR_ASYNC_PROGRESS is not used: its thread spins, and takes half of a core that computes."""

OPENMPI_YIELD = "OMPI_MCA_mpi_yield_when_idle"
"""The variable that makes Open MPI yield its core while it waits. MPI_Init reads it."""
SHORTEST_NAP_S = 5e-5
LONGEST_NAP_S = 2e-3
_RELIEVED_S = 4e-3
"""The nap where another thread has polled. An exchange of 40 B in lockstep takes 75 us instead of 57 without it."""
_GROWTH = 2.0
"""Factor of the nap after each idle poll: seven polls, 6 ms, from the shortest nap to the longest."""
_SHARE = 0.01
"""Share of the processor time that polls may take while there is no traffic. Waking up costs as much again."""
_BUSY = 3.0
"""A poll that costs so many times the usual is busy: it has moved bytes. A wrong guess costs those seven polls."""
_LEARNING, _EASING = 1 / 32, 1 / 8
"""Weight of an idle poll in the usual cost, where it costs more, and where it costs less.

Polls that wait for another thread inside the library cost more, too. Were that learned for good, traffic would pass for
idleness: naps of 10 ms, between which it piles up.
"""
_DOUBT = 1 / 16384
"""Weight of a busy poll there. Bytes may stream for seconds, but a cost that stays for good is not traffic."""
ADVICE = {
    True: "malt: MPI runs at thread level SERIALIZED and ranks are on several hosts: malt's calls of MPI take turns "
    "with its helper thread's; your own must not overlap with them (mpi4py's default thread level lets them)",
    False: "malt: MPI runs at a thread level that allows no helper thread and ranks are on several hosts: over TCP a "
    "scatter waits while its receiver computes (mpi4py's default thread level avoids this)",
}
"""The line that rank 0 prints where the thread level is below MULTIPLE, by whether it is SERIALIZED."""
_STOP_S = 5.0
"""How long to wait for the thread to end. A library that hangs in it must not hold up the exit."""
_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""The number of the system call sched_setattr, by machine (man 2 sched_setattr)."""
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
"""struct sched_attr: its size, policy, flags, nice, priority, runtime, deadline, period."""
_SLICE_NS = 100_000
"""The shortest that Linux takes."""


def run_at_once() -> None:
    """Let this thread run as soon as it wakes, where others use all cores: it asks for little time at once. Local.

    Linux from 6.12 on then puts it before threads that ask for more (EEVDF). Else a thread that computes is interrupted
    at the next tick, which comes every 4 ms by default. Where the system knows no such thing nothing happens.
    """
    number = _SET_ATTRIBUTES.get(os.uname().machine)
    if number is not None and sys.platform == "linux":
        attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, 0, 0, 0, 0, _SLICE_NS, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)


def spans_hosts(hosts: Iterable[str]) -> bool:
    """Return whether the ranks are on more than one host. `hosts`: by rank, as in `Transport`."""
    return len(set(hosts)) > 1


def can_yield(library: str) -> bool:
    """Return whether this MPI can be told to yield its core while it waits, as malt run does where that is needed.
    Pure."""
    return library.startswith("Open MPI")


def spins(library: str, environ: Mapping[str, str]) -> bool:
    """Return whether a thread that waits in the MPI library keeps a core from others. `library`, as
    `Transport.library`.

    Open MPI's yields it where the environment says so, as `malt run` does where there are more ranks than cores.
    """
    return not library.startswith("Open MPI") or environ.get(OPENMPI_YIELD, "0") in ("", "0")


def library_helps(library: str, environ: Mapping[str, str]) -> bool:
    """Return whether the MPI library has a progress thread of its own. `library`, as `Transport.library`."""
    return library.startswith("Open MPI") and environ.get(OPENMPI_THREAD, "0") not in ("", "0")


class Naps:
    """The naps between polls, by the cost of the polls. Pure.

    MPI does not report whether a poll has moved bytes; its processor time does. Traffic comes in bursts (mark, payload
    in pieces, publish). So after a busy poll the next ones follow at short intervals. Without traffic they are rare,
    and cost next to nothing.
    """

    def __init__(self) -> None:
        self._nap_s = LONGEST_NAP_S
        self._usual_s = 0.0
        """Cost of an idle poll after a long nap, when all caches are cold."""

    def nap_s(self, cost_s: float) -> float:
        """Seconds until the next poll, after one that took `cost_s` of processor time."""
        usual_s = self._usual_s or cost_s
        longest_s = max(LONGEST_NAP_S, usual_s / _SHARE)
        busy = cost_s > _BUSY * usual_s
        idle = (_EASING if cost_s < usual_s else _LEARNING) if self._nap_s >= LONGEST_NAP_S else 0.0
        weight = _DOUBT if busy else idle
        self._usual_s = usual_s + weight * (min(cost_s, _BUSY * usual_s) - usual_s)
        self._nap_s = SHORTEST_NAP_S if busy else min(_GROWTH * self._nap_s, longest_s)
        return self._nap_s


class Helper:
    """A thread that calls `poll`, which enters the MPI library, until it is stopped. It starts at once."""

    def __init__(self, poll: Callable[[], object]) -> None:
        self._poll = poll
        self.calling = threading.Lock()
        """While another thread holds this lock, the helper does not call `poll`."""
        self.is_relieved = False
        """Set where another thread has polled: for a nap the helper need not, and would be in its way."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="malt progress", daemon=True)
        self._thread.start()
        # The thread must end before the interpreter takes the GIL away for good and MPI is finalized.
        atexit.register(self.stop)

    def _run(self) -> None:
        run_at_once()
        naps = Naps()
        while not self._stopping:
            if self.is_relieved:
                self.is_relieved = False
                time.sleep(_RELIEVED_S)
                continue
            before_s = time.thread_time()
            with self.calling:
                self._poll()
            time.sleep(naps.nap_s(time.thread_time() - before_s))

    def stop(self) -> None:
        """Return once the thread makes no more calls. Local. A second call does nothing."""
        self._stopping = True
        self._thread.join(_STOP_S)
        atexit.unregister(self.stop)


def unless_held(lock: threading.RLock, function: Callable[[], object]) -> Callable[[], None]:
    """Return a function that calls `function`, but not while another thread holds `lock`.

    That thread is inside the library, and makes progress itself.
    """

    def call() -> None:
        """Call the function, unless another thread holds the lock. Local."""
        if lock.acquire(blocking=False):
            try:
                function()
            finally:
                lock.release()

    return call


class Serialized:
    """A proxy of `target`, an object of the MPI library, whose methods hold `lock` while they run."""

    def __init__(self, target: object, lock: threading.RLock) -> None:
        self._target, self._lock = target, lock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return partial(self._call, found) if callable(found) else found

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(*args, **kwargs)
