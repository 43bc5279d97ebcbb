"""The control server: it receives the reports of ranks on other hosts, which cannot see the folder of the job.

Each rank has one connection. It sends its events as lines. Each is added to those of ranks on this host, with the time
at which it comes (malt/runner/events.py). Or it sends [name, text], which becomes the file that a rank here would
write, or asks for a change of the roster (malt/runner/roster.py), and gets an answer. The connection closes when the
process ends, however it ends. What a rank still sends over an earlier connection when it has another one counts no
more: it was started again. The control server adds when a rank connects and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from dstorm.transports.links.endpoints import interfaces
from dstorm.transports.links.server import ANY_PORT, AuthenticatedServer
from malt.runner import reporting, roster
from malt.runner.events import SENT, Event, Kind, Stream, event, parsed

_PUBLISHED = re.compile(r"session-\d+-(published-\d+(\.\d+)?|over)|left-\d+-\d+")
"""What a rank publishes to all others (malt/session/resilience/hosts.py); one that was started again, with its
incarnation. And what one that leaves does (malt/session/world/crew.py)."""
_FILE = re.compile(rf"shown-\d+|{roster.ASK}|{_PUBLISHED.pattern}")
_CLOSE_S = 5.0
"""How long `close` waits for reports that have arrived to be written."""


class ControlServer:
    """A control server, which listens from its construction on.

    `folder`: that of the job. `key`: what its callers know. `hosts`: the names of the hosts of the job, as far as they
    are known: it listens on the interfaces towards these. `ports`: at the first of these that is free, by default any.
    `refused(address)`: called where a caller does not know the key.
    """

    def __init__(
        self, folder: Path, key: str, hosts: Iterable[str] = (), ports: Sequence[int] = ANY_PORT,
        refused: Callable[[str], object] = bool,
    ) -> None:  # fmt: skip
        self._folder = folder
        self.add: Callable[[Event], object] = Stream(folder).add
        """Called with each event that has come."""
        addresses = interfaces(hosts)
        self._server = AuthenticatedServer(reporting.CONTROL_NAME, key, addresses, ports)
        self._server.refused = refused
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
        """Return what a rank needs to connect beside the key: the name `host` of this host, port and IP addresses."""
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
        """Pass on what is new, then report the ranks that have ended. Local.

        In this order, a rank that hears of an end has heard of all restarts before it.
        """
        self.pass_on()
        self.report_ended(ended)

    def pass_on(self) -> bool:
        """Send what ranks have published since the last call to all ranks, also those that connect later. Local.

        Returns whether those that are connected have taken all that was sent so far.
        """
        fresh = dict[str, bytes]()
        with contextlib.suppress(OSError):
            for name in sorted(set(os.listdir(self._folder)) - self._published.keys()):
                if _PUBLISHED.fullmatch(name):
                    text = (self._folder / name).read_text(encoding="utf-8")
                    fresh[name] = f"published {name} {text}\n".encode()
        self._published |= fresh
        return self._server.send(b"".join(fresh.values()))  # also what one has not taken so far

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
        write(Event(Kind.ELSEWHERE, rank))
        with contextlib.suppress(OSError), caller.makefile("rb") as lines:
            self._server.send(b"".join(tuple(self._published.values())) + _ends(self._ended), caller)
            for one in _reports(lines, rank):
                if isinstance(one, Event) or one[0] != roster.ASK:
                    write(one)
                elif self._callers[rank] is caller:
                    self._answer(one[1], caller)
        if not self._closing:
            write(Event(Kind.ENDED, rank))

    def _write(self, rank: int, caller: socket.socket, one: Event | tuple[str, str]) -> None:
        """Write a report of `rank` that has come from `caller`, unless the rank has another connection by now."""
        with self._writing, contextlib.suppress(OSError):  # a full disk
            if self._closed or self._callers[rank] is not caller:
                return
            if isinstance(one, Event):
                self.add(event(one.kind, one.rank, one.text))
            else:
                reporting.write(self._folder / one[0], one[1])

    def _answer(self, asked: str, caller: socket.socket) -> None:
        """Answer a question. Others may report meanwhile: a rank may be stopped as it changes the roster."""
        with contextlib.suppress(OSError):  # a full disk
            self._server.send(f"published {roster.ANSWER} {_answer(self._folder, asked)}\n".encode(), caller)


def _answer(folder: Path, asked: str) -> str:
    """Change the roster as a rank has `asked` for; return the answer. OSError: a full disk.

    Without a roster it is empty: a cleaner of /tmp has removed it.
    """
    number, *arguments = json.loads(asked)
    found, result, why = None, None, ""
    with contextlib.suppress(LookupError):
        try:
            with roster.changing(folder) as found:
                result = found.follow(*arguments)
        except (ValueError, TypeError) as error:
            why = str(error)
    return json.dumps([number, result, why, "" if found is None else roster.text(found)])


def _ends(incarnations: Mapping[int, int]) -> bytes:
    return b"".join(b"ended %d %d\n" % pair for pair in sorted(incarnations.items()))


def _reports(lines: BinaryIO, rank: int) -> Iterator[Event | tuple[str, str]]:
    """The reports of `rank`, events or names and texts of files, until the connection closes.

    A line that is no report is skipped: the rank has ended only when its connection has closed.
    """
    for line in lines:
        one = parsed(line)
        if one is not None and one.kind in SENT and (one.rank == rank or one.kind is Kind.LOST):
            yield one
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            name, text = json.loads(line)
            if _FILE.fullmatch(name) and isinstance(text, str):
                yield name, text
