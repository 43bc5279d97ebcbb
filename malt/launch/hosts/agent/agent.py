"""The program that runs on each other host while a job does. The launcher sends its text over ssh, with that of the
modules of malt that it imports. At the end it leaves nothing of the job.

It reads lines of JSON, [command, value], from standard input, and answers each by [command, value]:

check   what the job needs of this host; answers what is there, and an endpoint that takes connections
reach   endpoints of hosts, by name; answers the names of those to which no connection can be made
reached all hosts have tried: from now on nothing listens here
pause   the launcher is stopped (Ctrl-Z), and will say nothing until the next line: nor does anything of the job run
        here until then; answers
clean   kills what is left of the job, removes its files, and answers; with the folder of the job where the agent of
        that was killed: of an mpiexec, or before it had started ranks
end     does the same without an answer, and ends

Of any job (malt/launch/hosts/agent/watch.py):

watch   the folder of the job, and the identity of the launcher's host; makes it, and sends each report that a rank
        of an mpiexec writes there (malt/runner/reporting.py); answers whose it is, or why it cannot be made

Of a job that an mpiexec starts:

signal  a number: ranks here get that signal

Of a job of plain processes (malt/launch/hosts/agent/ranks.py, which says what is sent):

start   what to start here, after `watch`
sweep   the folder of a job, the process of its agent here, and whether that has made the folder: where it was killed,
        this one ends what it has left, says so (done), and ends
ending  no failed rank is to be started again
roster  the roster of the job (malt/runner/roster.py), which becomes a file here

Every second it sends a line. Where the launcher says nothing for SILENCE_S, or closes the connection, the link is down,
or the launcher was killed: then the agent ends the job of an mpiexec on this host by itself. Plain processes go on.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from types import FrameType
from typing import Any

from dstorm.waits.stopwatch import Stopwatch
from malt.launch.hosts.agent.checks import checked, close, listener, unreached
from malt.launch.hosts.agent.ranks import CannotStart, Ranks, sweep
from malt.launch.hosts.agent.watch import OWN, Watch, clean

PULSE_S, SILENCE_S = 1.0, 30.0
_POLL_S = 0.05


class Agent:
    """The conversation with the launcher."""

    def __init__(self) -> None:
        self._server: socket.socket | None = None
        self._job: Watch | Ranks | None = None
        self._taken = self._unsent = b""
        self._is_paused = self._is_over = self._is_ours = False

    def send(self, line: list[Any]) -> None:
        """Send a line to the launcher, once the connection takes it."""
        self._unsent += json.dumps(line).encode() + b"\n"
        self._flush()

    def run(self) -> None:
        """Answer until the end of the job."""
        os.set_blocking(1, False)  # where the launcher takes nothing, it is heard all the same
        self.send(["hello", os.uname().nodename])
        said, silence, has_more = time.monotonic(), Stopwatch(), False
        while not self._is_over:
            ready = select.select([0], [1] if self._unsent else [], [], 0 if has_more else _POLL_S)
            if ready[1]:
                self._flush()
            if ready[0]:
                if not (data := os.read(0, 1 << 16)):
                    break
                self._take(data)
                silence.restart()  # after a command that has taken long, too
            has_more = self._job is not None and not self._is_paused and self._job.tend(not self._unsent)
            is_silent = silence.seconds() > SILENCE_S and not self._is_paused
            if self._job.is_over_without(is_silent) if self._job is not None else is_silent:
                break
            if time.monotonic() - said > PULSE_S and not self._unsent and not has_more:
                self.send(["alive", None])
                said = time.monotonic()
        if self._job is not None and not self._is_over:
            self._job.pause(False)
            self._job.leave()

    def depart(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM, by which a system that takes this host away tells all processes: let the ranks leave.

        Without ranks of plain processes this process ends. SIGHUP, by which a user ends them, is else ignored.
        """
        if isinstance(self._job, Ranks):
            if number == signal.SIGHUP or not self._job.depart():
                self._job.kill()
        elif number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _flush(self) -> None:
        """Write what the connection takes now."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(1, self._unsent[: 1 << 16]) :]
        except BlockingIOError:
            pass
        except OSError:  # it has ended, as the next read tells
            self._unsent = b""

    def _take(self, data: bytes) -> None:
        """Follow the commands in what was read."""
        *lines, self._taken = (self._taken + data).split(b"\n")
        for line in lines:
            command, value = json.loads(line)
            self._pause(command == "pause")
            self._follow(command, value)

    def _follow(self, command: str, value: Any) -> None:
        if command == "check":
            self._server, endpoint = listener()
            self.send([command, {**checked(value), "endpoint": endpoint}])
        elif command == "reach":
            self.send([command, unreached(value)])
        elif command == "reached" and self._server is not None:
            close(self._server)
        elif command == "watch":
            self.send([command, self._watch(*value)])
        elif command == "start":
            self._start(value)
        elif command == "sweep":
            sweep(*value)
            self._is_over = True
            self.send(["done", None])
        elif command == "pause":
            self.send([command, None])
        elif command in ("clean", "end"):
            self._is_over = command == "end"
            if self._job is not None:
                self._job.end()
            elif value:
                clean(value)
            self._job = None
            self.send([command, None])
        elif self._job is not None:
            self._job.tell(command, value)

    def _pause(self, is_paused: bool) -> None:
        if self._job is not None and is_paused != self._is_paused:
            self._job.pause(is_paused)
        self._is_paused = is_paused

    def _watch(self, folder: str, launcher: list[Any]) -> dict[str, str]:
        try:
            self._job = made = Watch(folder, launcher, self.send)
        except OSError as error:
            return {"trouble": error.strerror or str(error)}
        self._is_ours = made.owner == OWN
        return {"owner": made.owner, "trouble": ""}

    def _start(self, wanted: dict[str, Any]) -> None:
        try:
            self._job = Ranks(wanted, self.send, self._is_ours)
            self.send(["started", os.getpid()])
        except CannotStart as error:
            self.send(["failed", str(error)])


def main() -> None:
    """Run an agent in this process, to the end of the job."""
    agent = Agent()
    for number in (signal.SIGHUP, signal.SIGTERM):  # a signal that is ignored would be so by ranks, too
        signal.signal(number, agent.depart)
    agent.run()


if __name__ == "__main__":
    main()
