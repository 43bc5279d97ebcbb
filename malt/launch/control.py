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
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dstorm.transports.endpoints import own_addresses
from malt.runner import program

_NAME = re.compile(r"(finished|left|status|ready|lost|calls|begun)-\d+|rank-\d+\.txt")
_CALLER = re.compile(r"\d+")
_LONGEST_NBYTES = 1 << 20
_CLOSE_S = 5.0
"""How long what has arrived may take to be written at the end."""


class Reception:
    """Listens from the start. `number` is what a rank must know to call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._token = secrets.token_hex(16)
        self._listening = socket.create_server(("", 0), backlog=1024)
        port = self._listening.getsockname()[1]
        self.number = " ".join([os.uname().nodename, self._token, str(port), *own_addresses()])
        self._writing = threading.Lock()
        self._closing = self._closed = False
        self._callers: list[tuple[socket.socket, threading.Thread]] = []
        self._answering = threading.Thread(target=self._answer, name="malt reception", daemon=True)
        self._answering.start()

    def tell(self, number: int) -> None:
        """Tell all who have called to leave, by the signal of that number. Local."""
        for caller, _ in list(self._callers):
            with contextlib.suppress(OSError):  # it has ended
                caller.send(b"%d\n" % number, socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Take no more calls. What has arrived by now is written first, and nothing once this has returned. Local."""
        end = time.monotonic() + _CLOSE_S
        self._closing = True  # from here on the end of a connection is not that of a rank
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._answering.join(_CLOSE_S)
        for caller, _ in self._callers:
            with contextlib.suppress(OSError):  # it has ended
                caller.shutdown(socket.SHUT_RD)
        for _, thread in self._callers:
            thread.join(max(0.0, end - time.monotonic()))
        with self._writing:
            self._closed = True

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                thread = threading.Thread(target=self._listen, args=[caller], name="malt reception", daemon=True)
                self._callers.append((caller, thread))
                thread.start()

    def _listen(self, caller: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), caller, caller.makefile("rb") as lines:
            token, _, said = lines.readline(100).strip().partition(b" ")
            rank = said.decode()
            if not secrets.compare_digest(token, self._token.encode()) or not _CALLER.fullmatch(rank):
                return
            self._write(f"elsewhere-{rank}", "")
            with contextlib.suppress(OSError):
                for name, text in _said(lines):
                    self._write(name, text)
            if not self._closing:
                self._write(f"ended-{rank}", "")

    def _write(self, name: str, text: str) -> None:
        with self._writing, contextlib.suppress(OSError):  # a full disk
            if not self._closed:
                program.write(self._folder / name, text)


def _said(lines: BinaryIO) -> Iterator[tuple[str, str]]:
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
