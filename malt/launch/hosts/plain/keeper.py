"""The keeper of the ranks of a job of plain processes on a host other than the launcher's.

The launcher runs it there over ssh, by its path; it imports the standard library alone. It reads a line of JSON from
standard input, what to start, and starts it in a session of its own (malt/launch/hosts/plain/starter.py). Then it sends
lines of JSON, [what, value]:

started   the number of the starter's process, which leads that session
printed   rank, 1 or 2 for stdout or stderr, and a piece of what the rank has printed, as Latin-1
alive     every second
done      all that the ranks have printed is sent, and the starter has ended

`end` on standard input: it kills what is left, removes the folder of the job, and ends. Where the connection ends
instead, or nothing comes for SILENCE_S, it waits for the end of the starter: the ranks may be those that go on. What
they print is in the folder of the job. It stays where one of them has ended well, and is else removed.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

PULSE_S, SILENCE_S = 1.0, 30.0
_POLL_S, _PIECE_NBYTES = 0.05, 1 << 16
_PRINTED = re.compile(r".*/printed-(\d+)-([12])")
_NOT_PASSED = "PYTHON", "LD_", "OMPI_", "PRTE_", "PMIX_", "MPI4PY_"
"""The beginnings of variables that ranks get from the launcher alone."""


class Keeper:
    """What runs here, and what it prints. `wanted`: folder, cwd, words, environment and key, as name and text."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self._folder = wanted["folder"]
        self._is_ours = not os.path.isdir(self._folder)  # else the launcher shares its /tmp
        if self._is_ours:
            os.makedirs(self._folder, mode=0o700)
            name, text = wanted["key"]
            with open(os.open(os.path.join(self._folder, name), os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                file.write(text)
        self._read: dict[str, int] = {}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED)}
        with open(os.path.join(self._folder, f"printed-{os.uname().nodename}"), "wb") as errors:
            self._starter = subprocess.Popen(
                wanted["words"], env=kept | wanted["environment"], cwd=wanted["cwd"], stdin=subprocess.DEVNULL,
                stdout=errors, stderr=errors, start_new_session=True,
            )  # fmt: skip
        _send("started", self._starter.pid)

    def run(self) -> None:
        """Pass on what is printed until the launcher ends this. Without its connection wait for the ranks."""
        has_ended = False
        with contextlib.suppress(OSError):
            has_ended = self._run()
        if not has_ended and self._starter.wait() != 0:
            self.end()

    def _run(self) -> bool:
        """Return whether the launcher has ended this; False: its connection has ended. OSError: so it has."""
        heard = said = time.monotonic()
        is_done = False
        while time.monotonic() - heard < SILENCE_S:
            has_ended = self._starter.poll() is not None
            while self._pass_on():
                pass
            if has_ended and not is_done:
                _send("done", None)
                is_done = True
            if select.select([0], [], [], _POLL_S)[0]:
                data = os.read(0, 1 << 16)
                if not data:
                    return False
                if b"end\n" in data:
                    self.end()
                    return True
                heard = time.monotonic()
            if time.monotonic() - said > PULSE_S:
                _send("alive", None)
                said = time.monotonic()
        return False

    def end(self) -> None:
        """Kill what is left, and remove the folder."""
        with contextlib.suppress(OSError):
            os.killpg(self._starter.pid, signal.SIGKILL)
        self._starter.wait()
        if self._is_ours:
            shutil.rmtree(self._folder, ignore_errors=True)
        for path in glob.glob(f"/dev/shm/{os.path.basename(self._folder)}*"):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _pass_on(self) -> bool:
        """Send the next pieces of what ranks have printed; return whether there were any."""
        is_any = False
        for path in glob.glob(os.path.join(self._folder, "printed-*")):
            if (found := _PRINTED.fullmatch(path)) is not None:
                with open(path, "rb") as file:
                    file.seek(self._read.get(path, 0))
                    piece = file.read(_PIECE_NBYTES)
                if piece:
                    is_any = True
                    self._read[path] = self._read.get(path, 0) + len(piece)
                    _send("printed", [int(found[1]), int(found[2]), piece.decode("latin-1")])
        return is_any


def _send(what: str, value: object) -> None:
    sys.stdout.buffer.write(json.dumps([what, value]).encode() + b"\n")
    sys.stdout.buffer.flush()


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 1) or b"\n"  # what follows is for `run`
    return line


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # the launcher has ended
        Keeper(json.loads(_first_line())).run()
