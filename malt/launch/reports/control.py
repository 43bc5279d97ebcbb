"""The control server: it receives the reports of ranks on other hosts, which cannot see the folder of the job.

Each rank has one connection. It sends lines of JSON, [name, text], and each line becomes the file that a rank on this
host would write (malt/launch/reports/job_state.py). The connection closes when the process ends, however it ends. What
a rank still sends over an earlier connection when it has another one counts no more: it was started again. The control
server writes two more files:

elsewhere-<rank>  the rank, on another host, has connected
ended-<rank>      its process has ended
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from dstorm.transports.links.endpoints import interfaces
from dstorm.transports.links.server import AuthenticatedServer
from malt.launch.hosts.plain.starter import begin_anew
from malt.runner import reporting

_PUBLISHED = re.compile(r"session-\d+-published-\d+(\.\d+)?")
"""What a rank publishes to all others (malt/resilience/hosts.py); one that was started again, with its incarnation."""
_NAME = re.compile(rf"(again|finished|left|status|ready|lost|shown)-\d+|rank-\d+\.txt|{_PUBLISHED.pattern}")
_AGAIN = reporting.AGAIN.format("")
_LONGEST_NBYTES = 1 << 20
_CLOSE_S = 5.0
"""How long `close` waits for reports that have arrived to be written."""


class ControlServer:
    """A control server, which listens from its construction on.

    `folder`: that of the job. `key`: what its callers know. `hosts`: the names of the hosts of the job, as far as they
    are known: it listens on the interfaces towards these.
    """

    def __init__(self, folder: Path, key: str, hosts: Iterable[str] = ()) -> None:
        self._folder = folder
        addresses = interfaces(hosts)
        self._server = AuthenticatedServer(reporting.CONTROL_NAME, key, addresses)
        self.port, self.addresses = self._server.port, addresses
        self._writing = threading.Lock()
        self._closing = self._closed = False
        self._ended: dict[int, int] = {}
        """The incarnations of ranks of this host whose processes have ended."""
        self._callers: dict[int, socket.socket] = {}
        """The last connection of each rank."""
        self._published: dict[str, bytes] = {}
        self._server.start(self._listen)

    def endpoint(self, host: str) -> str:
        """What a rank needs to connect beside the key: the name `host` of this host, port and IP addresses."""
        return " ".join([host, str(self.port), *self.addresses])

    def notify(self, number: int) -> None:
        """Ask all connected ranks to leave, by the signal `number`. Local."""
        self._server.send(b"%d\n" % number)

    def pass_signal(self, number: int) -> None:
        """Have all connected ranks get the signal `number`. Local."""
        self._server.send(b"signal %d\n" % number)

    def report_ended(self, incarnations: Mapping[int, int]) -> None:
        """Tell all ranks, also those that connect later, which processes have ended for certain. Local.

        `incarnations`: of the ranks that have ended. Otherwise they could not tell a rank that has ended from one that
        they have lost.
        """
        fresh = {rank: ended for rank, ended in incarnations.items() if self._ended.get(rank, -1) < ended}
        if fresh:
            self._ended |= fresh
            self._server.send(_ends(fresh))

    def tell(self, ended: Mapping[int, int]) -> None:
        """As `pass_on`, and `report_ended`. Local.

        In this order: who hears that a rank has ended has heard of all that were started again before that.
        """
        self.pass_on()
        self.report_ended(ended)

    def pass_on(self) -> None:
        """Send what ranks have published since the last call to all ranks, also those that connect later. Local."""
        with contextlib.suppress(OSError):
            for name in sorted(set(os.listdir(self._folder)) - self._published.keys()):
                if _PUBLISHED.fullmatch(name):
                    text = (self._folder / name).read_text(encoding="utf-8")
                    self._published[name] = f"published {name} {text}\n".encode()
                    self._server.send(self._published[name])

    def close(self) -> None:
        """Accept no more connections. Writes the reports that have arrived; none is written after the return. Local."""
        self._closing = True  # connections that end from here on are closed by this server
        self._server.stop()
        self._server.drain(_CLOSE_S)
        with self._writing:
            self._closed = True

    def _listen(self, rank: int, caller: socket.socket) -> None:
        with self._writing:
            self._callers[rank] = caller
        write = partial(self._write, rank, caller)
        write(f"elsewhere-{rank}", "")
        with contextlib.suppress(OSError), caller.makefile("rb") as lines:
            caller.send(b"".join(tuple(self._published.values())) + _ends(self._ended))
            for name, text in _reports(lines):
                write(name, text)
        if not self._closing:
            write(f"ended-{rank}", "")

    def _write(self, rank: int, caller: socket.socket, name: str, text: str) -> None:
        """Write a report of `rank` that has come from `caller`, unless the rank has another connection by now."""
        with self._writing, contextlib.suppress(OSError, ValueError):  # a full disk; no number
            if self._closed or self._callers[rank] is not caller:
                return
            if name == reporting.AGAIN.format(rank):
                begin_anew(self._folder, rank, int(text))
            elif not name.startswith(_AGAIN):
                reporting.write(self._folder / name, text)


def _ends(incarnations: Mapping[int, int]) -> bytes:
    return b"".join(b"ended %d %d\n" % pair for pair in sorted(incarnations.items()))


def _reports(lines: BinaryIO) -> Iterator[tuple[str, str]]:
    """The reports, name and text, until the connection closes.

    A line that is too long, or no report, is skipped: the rank has ended only when its connection has closed.
    """
    while line := lines.readline(_LONGEST_NBYTES):
        if not line.endswith(b"\n"):
            while (rest := lines.readline(_LONGEST_NBYTES)) and not rest.endswith(b"\n"):
                pass
            continue
        with contextlib.suppress(ValueError, TypeError):
            name, text = json.loads(line)
            if _NAME.fullmatch(name) and isinstance(text, str):
                yield name, text
