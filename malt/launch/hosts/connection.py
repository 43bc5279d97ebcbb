"""A connection of the launcher to its agent on another host (malt/launch/hosts/agent.py), over one ssh."""

from __future__ import annotations

import contextlib
import json
import queue
import shlex
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from malt.launch.hosts.agent import PULSE_S

_TEXT = Path(__file__).with_name("agent.py")
_START = "import os; exec(compile(b''.join(iter(lambda: os.read(0, 1).strip(b'\\0'), b'')), 'malt-agent', 'exec'))"
"""Runs the text that comes on standard input up to a zero byte. What follows is for that program."""
_SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ConnectionAttempts=1")
_AGENTS = (
    "PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent", "HYDRA_LAUNCHER_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
)  # fmt: skip
"""The variables by which users have their mpiexec start its daemons by another program than ssh."""

_ENDS_S = 1.0
"""How long a remote shell that has closed its output may take to end, and its last words to come."""


class Silent(Exception):
    """An agent has not answered in time, or its connection has ended."""


def remote_shell(environ: Mapping[str, str]) -> list[str]:
    """Return the words to which a host and a command are added to run it there. Pure."""
    own = next((environ[name] for name in _AGENTS if environ.get(name)), None)
    return shlex.split(own.split(" : ")[0]) if own else list(_SSH)


class Connection:
    """A connection to an agent on `host`, run by `python`. `shell`: as of `remote_shell`. OSError: there is none."""

    def __init__(self, host: str, shell: Sequence[str], python: str) -> None:
        self.host = host
        self.heard_at = time.monotonic()
        self.reports: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        """What ranks there have reported: name and text."""
        self._answers: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._errors = b""
        self._process = subprocess.Popen(
            [*shell, host, f"exec {shlex.quote(python)} -I -c {shlex.quote(_START)}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._outgoing.put(_TEXT.read_bytes() + b"\0")
        self._reading = threading.Thread(target=self._read_errors, daemon=True)
        self._reading.start()
        threading.Thread(target=self._write, args=(self._process.stdin,), daemon=True).start()
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    @property
    def process(self) -> int:
        """The number of its process on this host."""
        return self._process.pid

    def ask(self, command: str, value: object = None) -> None:
        """Send a command. A connection that has ended takes none."""
        self._outgoing.put(json.dumps([command, value]).encode() + b"\n")

    def answer(self, command: str, end: float) -> Any:
        """Return the value of the answer to `command`, waiting until the time `end`. Silent: there is none."""
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                found = self._answers.get(timeout=left)
                if found is None:
                    self._answers.put(None)
                    raise Silent
                if found[0] == command:
                    return found[1]
        raise Silent

    def ended(self) -> tuple[int | None, str]:
        """Return the status of the remote shell, or None while it runs, and what it has printed on stderr."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS_S)
            self._reading.join(_ENDS_S)
        return self._process.poll(), self._errors.decode(errors="replace")

    def close(self) -> None:
        """End the connection, and with it the agent."""
        self._outgoing.put(None)
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()

    def _write(self, pipe: IO[bytes]) -> None:
        """Write what is to be sent, and a line now and then: the agent ends the job where it hears nothing."""
        with contextlib.suppress(OSError, ValueError):
            has_begun = False
            while True:
                try:
                    data = self._outgoing.get(timeout=PULSE_S if has_begun else None)
                except queue.Empty:
                    data = b'["alive", null]\n'
                if data is None:
                    return
                pipe.write(data)
                pipe.flush()
                # A pulse after `pause` would end the pause: the launcher stops right after it.
                has_begun = not data.startswith(b'["pause"')

    def _read_errors(self) -> None:
        for line in self._process.stderr or ():
            self._errors += line

    def _listen(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            self.heard_at = time.monotonic()
            with contextlib.suppress(ValueError, TypeError):  # what a shell prints at login
                command, value = json.loads(line)
                if command == "report":
                    self.reports.put((value[0], value[1]))
                elif command != "alive":
                    self._answers.put((command, value))
        self._answers.put(None)
