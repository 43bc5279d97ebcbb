"""What ranks on other hosts say to the launcher: over a connection each, instead of files in the folder of the job.

A rank says lines of JSON, [name, text], which become the files that it would leave here (malt/rollcall.py). The
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
from pathlib import Path

from dstorm.dialing import own_addresses

_NAME = re.compile(r"(finished|left|status|ready|lost|calls|begun)-\d+|rank-\d+\.txt")
_CALLER = re.compile(r"\d+")
_LONGEST_NBYTES = 1 << 20


class Reception:
    """Listens from the start. `number` is what a rank must know to call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._token = secrets.token_hex(16)
        self._listening = socket.create_server(("", 0), backlog=1024)
        port = self._listening.getsockname()[1]
        self.number = " ".join([os.uname().nodename, self._token, str(port), *own_addresses()])
        threading.Thread(target=self._answer, name="malt reception", daemon=True).start()

    def close(self) -> None:
        """Take no more calls. Local."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                threading.Thread(target=self._listen, args=[caller], name="malt reception", daemon=True).start()

    def _listen(self, caller: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), caller, caller.makefile("rb") as lines:
            token, _, said = lines.readline(100).strip().partition(b" ")
            rank = said.decode()
            if not secrets.compare_digest(token, self._token.encode()) or not _CALLER.fullmatch(rank):
                return
            self._write(f"elsewhere-{rank}", "")
            with contextlib.suppress(OSError, ValueError):
                while line := lines.readline(_LONGEST_NBYTES):
                    name, text = json.loads(line)
                    if _NAME.fullmatch(name):
                        self._write(name, text)
            self._write(f"ended-{rank}", "")

    def _write(self, name: str, text: str) -> None:
        with contextlib.suppress(OSError):  # the job is over, and its folder gone
            draft = self._folder / f"{name}.part"
            draft.write_text(text, encoding="utf-8", errors="backslashreplace")
            draft.replace(self._folder / name)
