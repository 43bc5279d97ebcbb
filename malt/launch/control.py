"""What ranks on other hosts say to the launcher: over a connection each, instead of files in the folder of the job.

A rank says lines of JSON, [name, text], which become the files that it would leave here (malt/launch/job_state.py). The
connection ends with the process: so the launcher knows of those that die, too.

elsewhere-<rank>  a rank on another host has called
ended-<rank>      its process has ended
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dstorm.transports.endpoints import own_addresses
from dstorm.transports.server import AuthenticatedServer
from malt.runner import reporting

_NAME = re.compile(r"(finished|left|status|ready|lost|calls|begun)-\d+|rank-\d+\.txt")
_LONGEST_NBYTES = 1 << 20
_CLOSE_S = 5.0
"""How long what has arrived may take to be written at the end."""


class ControlServer:
    """Listens from the start. `number` is what a rank must know to call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = AuthenticatedServer("malt reception")
        self.number = " ".join([os.uname().nodename, self._server.token, str(self._server.port), *own_addresses()])
        self._writing = threading.Lock()
        self._closing = self._closed = False
        self._server.start(self._listen)

    def report(self, number: int) -> None:
        """Tell all who have called to leave, by the signal of that number. Local."""
        self._server.send(b"%d\n" % number)

    def close(self) -> None:
        """Take no more calls. What has arrived by now is written first, and nothing once this has returned. Local."""
        self._closing = True  # from here on the end of a connection is not that of a rank
        self._server.stop()
        self._server.drain(_CLOSE_S)
        with self._writing:
            self._closed = True

    def _listen(self, rank: int, caller: socket.socket) -> None:
        self._write(f"elsewhere-{rank}", "")
        with contextlib.suppress(OSError), caller.makefile("rb") as lines:
            for name, text in _reports(lines):
                self._write(name, text)
        if not self._closing:
            self._write(f"ended-{rank}", "")

    def _write(self, name: str, text: str) -> None:
        with self._writing, contextlib.suppress(OSError):  # a full disk
            if not self._closed:
                reporting.write(self._folder / name, text)


def _reports(lines: BinaryIO) -> Iterator[tuple[str, str]]:
    """What is said until the connection ends. A line that is too long, or none of ours, is passed over: only the end
    of the connection is that of the rank."""
    while line := lines.readline(_LONGEST_NBYTES):
        if not line.endswith(b"\n"):
            while (rest := lines.readline(_LONGEST_NBYTES)) and not rest.endswith(b"\n"):
                pass
            continue
        with contextlib.suppress(ValueError, TypeError):
            name, text = json.loads(line)
            if _NAME.fullmatch(name) and isinstance(text, str):
                yield name, text
