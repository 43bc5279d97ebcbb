"""The processes of a job on this host: they are found by a variable, and killed. The agent is sent with this module."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import time
from collections.abc import Callable

from dstorm.membership.processes import stat_fields
from malt.launch.hosts.agent.traces import numbers

_POLL_S, _KILLED_S = 0.05, 5.0
"""How long killed processes may take to end."""
_TRIES, _EXEC_S = 6, 0.01
"""How often the variables of a process are read that has none, and the time between: it may be in the midst of exec."""
WITHIN = "MALT_WITHIN"
"""The variable of all processes of a job, children of ranks included: its folder."""
ELSEWHERE = "MALT_AGENT"
"""The variable by which an agent finds the ranks that it has started, children of ranks included. Other agents leave
them alone where names of one machine stand for hosts."""
_DAEMONS = "prted", "orted", "hydra_pmi_proxy", "hydra_bstrap_proxy"
_ENDED, _KERNEL_THREAD = (b"Z", b"X"), 0x00200000
"""The states of a process that has ended, and the flag of a thread of the kernel, in proc_pid_stat(5)."""


def kill(find: Callable[[], set[int]]) -> None:
    """Kill what find() finds, until it finds nothing, or what is killed does not end."""
    end = time.monotonic() + _KILLED_S
    while found := find():
        for process in found:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        if time.monotonic() > end:
            break
        time.sleep(_POLL_S)


def remove_memory(folder: str) -> None:
    """Remove the memory that the plain processes of a job have shared here: none of them runs any more."""
    for path in glob.glob(f"/dev/shm/{os.path.basename(folder)}-*"):
        with contextlib.suppress(OSError):
            os.unlink(path)


def with_variable(text: str) -> set[int]:
    """The processes that have the variable `text`, NAME=VALUE."""
    return {number for number, variables in environments().items() if os.fsencode(text) in variables.split(b"\0")}


def of_job(folder: str) -> set[int]:
    """The processes of a job that run here: those with its variable, and daemons with its folder on their line.

    And the daemons that have started them.
    """
    mark, found = os.fsencode(f"{WITHIN}={folder}"), set[int]()
    for number, environ in environments().items():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if number == os.getpid() or stat_fields(number)[0] in _ENDED or os.fsencode(f"{ELSEWHERE}=") in environ:
                continue
            if mark in environ.split(b"\0") or (os.fsencode(folder) in _line(number) and _name(number) in _DAEMONS):
                found.add(number)
                parent = int(stat_fields(number)[1])
                if _name(parent) in _DAEMONS:
                    found.add(parent)
    return found


def _line(number: int) -> bytes:
    with open(f"/proc/{number}/cmdline", "rb") as file:
        return file.read()


def _name(number: int) -> str:
    return os.path.basename(_line(number).split(b"\0")[0].decode(errors="replace"))


def environments() -> dict[int, bytes]:
    """The variables of the processes, by number. Those of a process in the midst of exec are read once it is over."""
    found, left = dict[int, bytes](), numbers()
    for attempt in range(_TRIES):
        if attempt and left:
            time.sleep(_EXEC_S)
        left = [number for number in left if _is_unread(number, found)]
    return found | dict.fromkeys(left, b"")


def _is_unread(number: int, found: dict[int, bytes]) -> bool:
    """Add the variables of a process to `found`. Returns whether it has none although it runs a program."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{number}/environ", "rb") as file:
            found[number] = file.read()
        fields = stat_fields(number) if not found[number] else []
        return bool(fields) and fields[0] not in _ENDED and not int(fields[6]) & _KERNEL_THREAD
    return False
