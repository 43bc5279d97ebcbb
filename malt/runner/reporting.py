"""Reports of a rank to the launcher: events in the folder of the job, or over a connection from another host.

malt/runner/program.py loads this module by its path, after malt/runner/events.py, and it imports nothing else of malt.
When malt imports it later, it gets the same module.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from malt.runner.events import FULL, Kind, append, event

if TYPE_CHECKING:
    import socket

CONTROL_SERVER = "MALT_RECEPTION"
"""The variable that gives ranks on other hosts the address of the control server: the name of the launcher's host, a
port, and IP addresses, separated by spaces. Those ranks cannot see the folder of the job."""

CONTROL_NAME = "malt control server"
"""The name by which the control server is called (dstorm/transports/links/handshake.py)."""

KEY = "key"
"""The file in the folder of the job, on each of its hosts, that holds the key of the job, and the name of the host
of each rank, one a line. Ranks read it at their start. The launcher writes it, and has its agents do so over ssh.

So the key stands in no argument and no variable.
"""

CALL = "MALT_CALL"
"""The variable that holds the file descriptor of a rank's connection to the control server."""

RANK, SIZE, HOST_SIZE = "MALT_RANK", "MALT_SIZE", "MALT_HOST_SIZE"
"""The variables of a rank that is a plain process: its number, and how many there are, in all and on its host."""

REJOIN, INCARNATION = "MALT_REJOIN", "MALT_INCARNATION"
"""The variable of a job whose failed ranks are started again (malt/launch/hosts/plain/starter.py); and that of
such a rank, which says how often it was."""

SURVIVE, BEST_EFFORT = "MALT_SURVIVE", "best-effort"
"""The variable that lets live ranks go on when a rank fails. 1: on one host. best-effort: on several hosts, too."""

_RANKS = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", RANK, "SLURM_PROCID")
_CONNECT_S, _AGAIN_S = 5.0, 0.1
"""How long a connection to the launcher may take. One that was started again also tries for so long, and as often."""
_SEND_S, _NAP_S = 2.0, 0.01
"""How long a report that this rank may end after waits for the launcher to take it; others wait for nothing."""
_LAST = Kind.FINISHED, Kind.STATUS, Kind.LEFT, Kind.TRACEBACK
_LONGEST_TEXT = 100_000
"""A longer text of an event loses its beginning: the end of a traceback says most."""

_sending = threading.RLock()
_connection: socket.socket | None = None
"""That of CALL."""
_unsent: list[tuple[str, bytes]] = []
"""The lines that the connection has not taken so far, the first of them perhaps in part. The name is that of a file."""
_is_sending = _is_stuck = False
"""Whether reports are being sent, and whether the launcher took none in time."""
_folder: str | None = None
_process = 0
"""The process that is the rank. A fork of it is not."""
_key: tuple[str, ...] = ()
"""The lines of the file KEY."""
_has_traceback = False


def start(
    folder: str | None, endpoint: Sequence[str], key: str = "", connection: socket.socket | None = None
) -> str | None:  # fmt: skip
    """Connect this rank with the launcher. Returns `folder`, or None on another host, where that folder is not the
    launcher's. Local.

    `endpoint`: the words of CONTROL_SERVER. `key`: that of the job, where the folder does not hold it. `connection`:
    one with a control server on another host that has admitted this rank before. If the connection fails, the launcher
    knows nothing of this rank. One that was started again can come to no session then
    (malt/session/resilience/start.py).
    """
    global _folder, _process, _key
    _process = os.getpid()
    os.environ.pop(CALL, None)
    is_elsewhere = connection is not None or (bool(endpoint) and endpoint[0] != os.uname().nodename)
    _key = (key,) if key else _read_key(folder)
    _folder = folder if rank().isdecimal() and not is_elsewhere else None
    if connection is not None:
        _use(connection)
    elif is_elsewhere and _key:
        end = time.monotonic() + (_CONNECT_S if incarnation() else 0.0)
        while not _connect(*endpoint[1:]) and time.monotonic() < end:
            time.sleep(_AGAIN_S)
    if incarnation():
        report(Kind.AGAIN, str(incarnation()))
    return _folder


def is_rank() -> bool:
    """Return whether this process is the one that `start` has made a rank, and no fork of it. Local."""
    return os.getpid() == _process


def job_key() -> str:
    """The key of the job, by which its ranks admit each other's connections; "" without a launcher. Local."""
    return _key[0] if _key else ""


def job_hosts() -> tuple[str, ...]:
    """The name of the host of each rank, as the launcher was given it; () where that is not known. Local."""
    return _key[1:]


def _read_key(folder: str | None) -> tuple[str, ...]:
    try:
        with open(os.path.join(folder or "", KEY), encoding="utf-8") as file:
            return tuple(file.read().split())
    except OSError:
        return ()


def _connect(port: str, *addresses: str) -> bool:
    """Try to connect with the launcher at each of `addresses`; return whether one has succeeded. Local."""
    for address in addresses if rank().isdecimal() else ():
        with contextlib.suppress(OSError):
            _use(_call()((address, int(port)), job_key(), CONTROL_NAME, int(rank()), _CONNECT_S))
            return True
    return False


def _use(connection: socket.socket) -> None:
    global _connection
    connection.settimeout(None)
    os.environ[CALL] = str(connection.fileno())
    _connection = connection
    # A child must not keep the connection open: its end reports the end of the rank.
    os.register_at_fork(after_in_child=connection.close)


def _call() -> Callable[..., socket.socket]:
    """dstorm.transports.links.calling.call, whose modules are loaded by their paths as this one.

    It takes 10 ms, which ranks on the launcher's host need not wait.
    """
    for name in ("dstorm.transports.links.handshake", "dstorm.transports.links.calling"):
        if name not in sys.modules:
            path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", *name.split("."))
            spec = importlib.util.spec_from_file_location(name, f"{path}.py")
            assert spec is not None and spec.loader is not None
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
    found: Callable[..., socket.socket] = sys.modules[name].call
    return found


def rank() -> str:
    """The number that mpiexec gave this process, or "?" if it is no rank. Local."""
    return next((os.environ[name] for name in _RANKS if name in os.environ), "?")


def is_plain() -> bool:
    """Return whether this process is a rank of a job of plain processes: no mpiexec has started it. Local."""
    return RANK in os.environ and next(name for name in _RANKS if name in os.environ) == RANK


def survive_of(environ: Mapping[str, str]) -> str | None:
    """Return the value of MALT_SURVIVE, or None if it is unset, empty or 0. ValueError: another value."""
    value = environ.get(SURVIVE, "")
    if value not in ("", "0", "1", BEST_EFFORT):
        raise ValueError(f"{SURVIVE} must be 1, 0 or {BEST_EFFORT}, got {value!r}")
    return value if value not in ("", "0") else None


def incarnation() -> int:
    """Return the number of times that this rank was restarted after a failure (malt run --rejoin). Local."""
    return int(os.environ.get(INCARNATION) or 0) if is_plain() else 0


def folder() -> str | None:
    """The folder of the job. None: this process is no rank that a launcher has started on its host. Local."""
    return _folder if is_rank() else None


def is_connected() -> bool:
    """Return whether this process is a rank with a connection to a launcher on another host. Local."""
    return CALL in os.environ and is_rank()


def report(kind: Kind, text: str = "", of: int | None = None) -> None:
    """Report an event of rank `of`, or of this one, if the launcher has started this process as a rank. Local.

    It raises nothing: the text was printed before, and the job must still end. A fork of the rank reports nothing.
    """
    if is_connected():
        one = event(kind, int(rank()) if of is None else of, text[-_LONGEST_TEXT:])
        _send("", one.line(), _SEND_S if kind in _LAST else 0.0)
    elif (here := folder()) is not None:
        try:
            append(here, event(kind, int(rank()) if of is None else of, text))
        except OSError:  # on a full disk that it has failed is known, though not how
            if kind is Kind.STATUS:
                is_first_without_space(here)


def is_first_without_space(folder: str) -> bool:
    """Note in `folder` that it takes no more events. Returns whether no other rank has done so. Local."""
    try:
        os.close(os.open(os.path.join(folder, FULL), os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        return not isinstance(error, FileExistsError)
    return True


def publish(name: str, text: str) -> None:
    """Show `text` to the launcher, and to the other ranks, as the file `name` in the folder of the job. Local.

    Whole or not at all, or over the connection. A text under the same name replaces the one before. It raises nothing.
    """
    if is_connected():
        _send(name, b"\n" + json.dumps([name, text]).encode() + b"\n", 0.0)
    elif (here := folder()) is not None:
        with contextlib.suppress(OSError):
            write(os.path.join(here, name), text)


def report_traceback(error: BaseException) -> None:
    """Report the traceback of `error`, unless one was reported before. Local."""
    global _has_traceback
    if not _has_traceback:
        _has_traceback = True
        with contextlib.suppress(Exception):  # an error that cannot be printed
            lines = traceback.format_exception(type(error), error, error.__traceback__)
            report(Kind.TRACEBACK, "".join(lines))


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to the file `path`, whole or not at all unless the system crashes. OSError. Local.

    Until it is whole it has a name that no reader takes for that of another file: a point and a number are an
    incarnation (malt/session/resilience/hosts.py).
    """
    with open(f"{path}~{os.getpid()}", "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    os.replace(file.name, path)


def _send(name: str, line: bytes, patience_s: float) -> None:
    """Send a line over the connection, in place of one with the text of the same file, if that is not sent so far.

    Where the launcher is cut off, the line stays here until a later one finds a way. No rank waits for that.
    """
    with _sending, contextlib.suppress(OSError):  # the launcher has ended
        _unsent[:] = [one for one in _unsent if not name or one[0] != name]
        _unsent.append((name, line))
        if not _is_sending:  # else a signal handler has come between: what it reports is sent next
            _send_all(patience_s)


def _send_all(patience_s: float) -> None:
    """Send the reports that are unsent. Those that the connection does not take within `patience_s` stay so.

    After a wait in vain none waits again, until the connection takes some. OSError: it has ended.
    """
    global _is_sending, _is_stuck
    if _connection is None:
        return
    import socket

    end = time.monotonic() + patience_s
    _is_sending = True
    try:
        while _unsent:
            line = _unsent[0][1]
            try:
                sent = _connection.send(line, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if _is_stuck or time.monotonic() >= end:
                    _is_stuck = _is_stuck or patience_s > 0
                    return
                time.sleep(_NAP_S)
                continue
            _is_stuck = False
            if sent < len(line):
                _unsent[0] = ("", line[sent:])
            else:
                del _unsent[0]
    finally:
        _is_sending = False
