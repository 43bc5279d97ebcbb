"""What a rank reports to the launcher: files in the folder of the job, or lines over a connection from another host.

malt/launch/reports/job_state.py and malt/launch/processes/departure.py list the files. malt/runner/program.py loads
this module by its path, so it imports nothing of malt. When malt imports it later, it gets the same module.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import traceback
from collections.abc import Sequence

CONTROL_SERVER = "MALT_RECEPTION"
"""The variable that gives ranks on other hosts the address of the control server: the name of the launcher's host, a
token, a port, and IP addresses, separated by spaces. Those ranks cannot see the folder of the job."""

CALL = "MALT_CALL"
"""The variable that holds the file descriptor of a rank's connection to the control server."""

_RANKS = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_CONNECT_S = 5.0
_LONGEST_TEXT = 100_000
"""A longer text loses its beginning: the end of a traceback says most, and the launcher takes lines of 1 MiB."""

_sending = threading.RLock()
_folder: str | None = None
_process = 0
"""The process that is the rank. A fork of it is not."""
_has_traceback = False


def start(folder: str | None, endpoint: Sequence[str]) -> str | None:
    """Connect this rank with the launcher. Returns `folder`, or None on another host, where that folder does not exist.
    Local.

    `endpoint`: the words of CONTROL_SERVER. If the connection fails, the launcher knows nothing of this rank.
    """
    global _folder, _process
    _process = os.getpid()
    os.environ.pop(CALL, None)
    is_elsewhere = bool(endpoint) and endpoint[0] != os.uname().nodename
    _folder = None if is_elsewhere else folder
    if is_elsewhere:
        _connect(endpoint)
    return _folder


def _connect(endpoint: Sequence[str]) -> None:
    import socket  # takes 10 ms, which ranks on the launcher's host need not wait

    _, token, port, *addresses = endpoint
    for address in addresses:
        with contextlib.suppress(OSError):
            connection = socket.create_connection((address, int(port)), _CONNECT_S)
            connection.settimeout(None)
            connection.sendall(f"{token} {rank()}\n".encode())
            os.environ[CALL] = str(connection.fileno())
            # A child must not keep the connection open: its end reports the end of the rank.
            os.register_at_fork(after_in_child=connection.close)
            return


def rank() -> str:
    """The number that mpiexec gave this process, or "?" if it is no rank. Local."""
    return next((os.environ[name] for name in _RANKS if name in os.environ), "?")


def folder() -> str | None:
    """The folder of the job. None: this process is no rank that a launcher has started on its host. Local."""
    return _folder if os.getpid() == _process else None


def is_connected() -> bool:
    """Whether this process is a rank with a connection to a launcher on another host. Local."""
    return CALL in os.environ and os.getpid() == _process


def report(name: str, text: str) -> None:
    """Report `text` as the file `name`, if this process was started as a rank by the launcher. Local."""
    if not name.endswith("-?"):
        report_to(_folder, name, text)


def report_to(folder: str | None, name: str, text: str) -> None:
    """Report `text` as the file `name` in `folder`, whole or not at all, or over the connection. Local.

    Without a connection and a folder it does nothing. It raises nothing: the text was printed before, and the job must
    still end.
    """
    if _send(name, text) or not folder:
        return
    with contextlib.suppress(OSError):
        write(os.path.join(folder, name), text)


def report_traceback(error: BaseException) -> None:
    """Report the traceback of `error`, unless one was reported before. Local."""
    global _has_traceback
    if rank() != "?" and not _has_traceback:
        _has_traceback = True
        with contextlib.suppress(Exception):  # an error that cannot be printed
            lines = traceback.format_exception(type(error), error, error.__traceback__)
            report(f"rank-{rank()}.txt", "".join(lines))


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to the file `path`, whole or not at all unless the system crashes. OSError. Local."""
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    os.replace(file.name, path)


def _send(name: str, text: str) -> bool:
    """Send a report over the connection. Returns whether this process is a rank with one."""
    call = os.environ.get(CALL)
    if call is not None:
        # The newline before it ends a line that a signal handler's exception has cut off.
        line = b"\n" + json.dumps([name, text[-_LONGEST_TEXT:]]).encode() + b"\n"
        with _sending, contextlib.suppress(OSError):  # the launcher has ended
            while line:
                line = line[os.write(int(call), line) :]
    return call is not None
