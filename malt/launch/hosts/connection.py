"""A connection of the launcher to its agent on another host (malt/launch/hosts/agent/agent.py), over one ssh."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import IO, Any

from dstorm.waits.stopwatch import Stopwatch
from malt.launch.hosts import source_text
from malt.launch.hosts.agent.agent import PULSE_S
from malt.launch.hosts.reachability import Probe
from malt.launch.hosts.shell import command_on

_AGENT = "malt.launch.hosts.agent"
_MODULES = (
    "dstorm.transports.links.addresses", "dstorm.waits.running_time", "dstorm.waits.stopwatch",
    "dstorm.membership.processes", "malt.runner.events", "malt.runner.reporting", "malt.runner.roster",
    "malt.watch.processes", f"{_AGENT}.closing", f"{_AGENT}.traces", f"{_AGENT}.processes",
    "malt.launch.hosts.plain.starter", f"{_AGENT}.checks", f"{_AGENT}.watch", f"{_AGENT}.ranks",
)  # fmt: skip
_POLL_S = 0.25
_ENDS_S, _ERRORS_NBYTES = 1.0, 1 << 16
"""How long a remote shell that has closed its output may take to end; and how much of what it complains of is read."""
_PAUSES_S = 1.0
"""How long agents may take to say that they wait."""


ENDED = "ended"
"""What is taken last, as if the agent had said it: the connection has ended."""


class Silent(Exception):
    """An agent has not answered in time, or its connection has ended."""


def program() -> bytes:
    """Return the text of the agent. Local."""
    return source_text.text("malt.launch.hosts.agent.agent", _MODULES)


class Connection:
    """A connection to an agent on `host`, run by `python`. `shell`: as of `remote_shell`. OSError: there is none."""

    def __init__(self, host: str, shell: Sequence[str], python: str) -> None:
        self.host = host
        self.take: Callable[[str, Any], bool] = lambda command, value: False
        """Called, by a thread, with each line that comes. Returns whether it is of the job, and no answer."""
        self.silence = Stopwatch()
        """Since something was heard of the agent."""
        self.probe = Probe()
        """Asks whether the network of the host answers, once its addresses are known."""
        self.paused = threading.Event()
        """Set where the agent has answered to `pause`."""
        self._answers: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command_on(shell, host, f"exec {shlex.quote(python)} -I -c {shlex.quote(source_text.START)}"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin and self._process.stdout
        self._outgoing.put(program() + b"\0")
        threading.Thread(target=self._write, args=(self._process.stdin,), daemon=True).start()
        self._listening = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._listening.start()

    @property
    def is_open(self) -> bool:
        """True if something may still be heard of the agent."""
        return self._listening.is_alive()

    def ask(self, command: str, value: object = None) -> None:
        """Send a command. A connection that has ended takes none."""
        self._outgoing.put(json.dumps([command, value]).encode() + b"\n")

    def answer(self, command: str, waited: Stopwatch, limit_s: float) -> Any:
        """Return the value of the answer to `command`. Waits until `waited` is at `limit_s`. Silent: there is none."""
        while True:
            left = limit_s - waited.seconds()
            try:
                found = self._answers.get(timeout=max(0.0, min(left, _POLL_S)))
            except queue.Empty:
                if left <= 0:
                    raise Silent from None
                continue
            if found is None:
                self._answers.put(None)
                raise Silent
            if found[0] == command:
                return found[1]

    def ended(self) -> tuple[int | None, str]:
        """Return the status of the remote shell, or None while it runs, and what it has printed on stderr."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS_S)
        # pread: a seek would move the place at which it writes, too
        return self._process.poll(), os.pread(self._errors.fileno(), _ERRORS_NBYTES, 0).decode(errors="replace")

    def close(self) -> None:
        """End the connection. A thread that waits for an answer gets Silent."""
        self._outgoing.put(None)
        self._answers.put(None)
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        self._errors.close()

    def _write(self, pipe: IO[bytes]) -> None:
        """Write what is to be sent, and a line now and then: the agent ends the job where it hears nothing."""
        with contextlib.suppress(OSError, ValueError), pipe:
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

    def _listen(self, pipe: IO[bytes]) -> None:
        with pipe:
            for line in pipe:
                self.silence.restart()
                with contextlib.suppress(ValueError, TypeError):  # what a shell prints at login
                    command, value = json.loads(line)
                    if command == "pause":
                        self.paused.set()
                    elif not self.take(command, value) and command != "alive":
                        self._answers.put((command, value))
                self.silence.restart()  # it may have taken long
        self.take(ENDED, None)
        self._answers.put(None)


def suspend(connections: Sequence[Connection], number: int) -> None:
    """Have the agents wait before SIGSTOP, which stops this process, and go on after SIGCONT. Local."""
    for one in connections:
        one.paused.clear()
        one.ask("pause" if number == signal.SIGSTOP else "alive")
    waited = Stopwatch()
    for one in connections if number == signal.SIGSTOP else ():
        one.paused.wait(max(0.0, _PAUSES_S - waited.seconds()))
