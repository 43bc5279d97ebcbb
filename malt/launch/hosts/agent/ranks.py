"""The ranks of a job of plain processes on a host other than the launcher's. The agent is sent with this module: it
imports of malt only what it is sent with.

The agent starts them in its own process group, and again where they fail, as the starter does on the launcher's host
(malt/launch/hosts/plain/starter.py). It sends lines:

started   the number of the agent's process, which leads that group
said      a line for the user: a rank is started again, say
exited    a rank that has failed, its incarnation and its status
printed   rank, 1 or 2 for stdout or stderr, and a piece of what the rank has printed, as Latin-1
done      all that the ranks have printed is sent, and none of them runs, or is started again
failed    why no rank can start here, and what to do: nothing of the job is left

Where the connection ends, the agent waits for the end of the ranks, which may be those that go on. Where the launcher
is silent, it goes on, and so does the launcher if it is heard again; once the ranks have ended, the agent ends, too.
What ranks print is in the folder of the job. It stays where one of them has ended well, and is else removed.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from malt.launch.hosts.agent.checks import kept
from malt.launch.hosts.agent.processes import ELSEWHERE, kill, remove_memory, with_variable
from malt.launch.hosts.agent.watch import TRIAL
from malt.launch.hosts.plain.starter import ENDING
from malt.launch.hosts.plain.starter import Ranks as StartedRanks
from malt.runner.events import Kind
from malt.runner.reporting import INCARNATION, KEY, write

PRINTED = "printed-{}-{}"
"""The files in the folder of the job to which the ranks print: rank, and 1 or 2 for stdout or stderr."""
_PRINTED = re.compile(r".*/printed-(\d+)-([12])")
_PIECE_NBYTES, _PIECES_NBYTES = 1 << 16, 1 << 20
"""How much of a file is sent at once, and of all."""
EXITED = Kind.EXITED.value
ROSTER = "roster"
"""The name of the file of malt/runner/roster.py, and of the command that brings it."""
_POLL_S = 0.05


class CannotStart(Exception):
    """No rank can start on this host: why, and what to do, in a line."""


class Ranks(StartedRanks):
    """The ranks that run here, and their output.

    `wanted`: ranks, size, words, folder, cwd, environment and key; roster. `is_ours`: whether this agent has made
    the folder, and no other agent or launcher uses it. CannotStart: nothing runs.
    """

    def __init__(self, wanted: Mapping[str, Any], send: Callable[[list[Any]], None], is_ours: bool) -> None:
        folder = wanted["folder"]
        self._mark = _mark(folder, os.getpid())
        name, _, value = self._mark.partition("=")
        environ = kept() | wanted["environment"] | {name: value}
        super().__init__(wanted["ranks"], wanted["size"], wanted["words"], folder, environ)
        self._cwd, self._send, self._is_ours = wanted["cwd"], send, is_ours
        self._key = os.path.join(folder, KEY)
        self._read: dict[str, int] = {}
        self._runs, self._is_done = True, False
        with contextlib.suppress(OSError):  # it leads a session
            os.setpgid(0, 0)
        self._write_roster(wanted.get("roster", ""))
        try:
            if is_ours:
                with open(_created(self._key), "w", encoding="utf-8") as file:
                    file.write(wanted["key"])
            self.start()
        except OSError as error:
            self.end()
            raise CannotStart(_why(f"{error.strerror}: {error.filename}")) from None

    def tend(self, takes: bool) -> bool:
        """Look after the ranks, and send the next pieces of what they print, where the launcher `takes` any. Returns
        whether there may be more.
        """
        self._runs = self._runs and self.look_after(time.monotonic())
        has_more = takes and self._pass_on()
        if takes and not (self._runs or has_more or self._is_done):
            self._is_done = True
            self._send(["done", None])
        return has_more

    def pause(self, is_paused: bool) -> None:
        """Stop what runs here, children of ranks included, or let it go on."""
        for number in with_variable(self._mark):
            with contextlib.suppress(OSError):  # it has ended
                os.kill(number, signal.SIGSTOP if is_paused else signal.SIGCONT)

    def is_over_without(self, is_silent: bool) -> bool:
        """Return whether the agent is not needed any more: the launcher `is_silent`, and the ranks have ended."""
        self.is_adrift = is_silent
        return is_silent and not self._runs

    def tell(self, command: str, value: Any) -> None:
        """Follow `ending` and `roster`."""
        if command == ENDING:
            with contextlib.suppress(OSError):  # it is there already
                os.close(_created(os.path.join(self._folder, ENDING)))
        elif command == ROSTER:
            self._write_roster(value)

    def leave(self) -> None:
        """Wait for the end of the ranks. What they have printed stays, where one of them has ended well."""
        self.is_adrift = True
        while self.look_after(time.monotonic()):
            time.sleep(_POLL_S)
        remove_memory(self._folder)
        if all(process.returncode for process in self._processes.values()):
            self.end()
        elif self._is_ours:
            for name in (KEY, TRIAL):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._folder, name))

    def end(self) -> None:
        """Kill what is left, and remove the folder."""
        self.kill()
        kill(lambda: with_variable(self._mark))
        if self._is_ours:
            shutil.rmtree(self._folder, ignore_errors=True)
        remove_memory(self._folder)

    def say(self, text: str) -> None:
        """Tell the user, by the launcher."""
        self._send(["said", f"malt: {text}"])

    def report_failed(self, rank: int, status: int) -> None:
        """Tell the launcher with which status a rank has failed: it has another clock."""
        self._send([EXITED, [rank, self._lives[rank], status]])

    def popen(self, rank: int, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start the process of a rank, which prints into files. OSError."""
        again = INCARNATION in environ
        with _printed(self._folder, rank, 1, again) as out, _printed(self._folder, rank, 2, again) as err:
            return subprocess.Popen(
                self._words, env=environ, cwd=self._cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )  # fmt: skip

    def _write_roster(self, text: str) -> None:
        """Write the roster for starter and ranks, whole or not at all, unless the launcher's is in that place."""
        if self._is_ours and text:
            with contextlib.suppress(OSError):  # a full disk: they go on with the one before
                write(os.path.join(self._folder, ROSTER), text)

    def _pass_on(self) -> bool:
        """Send the next pieces of what ranks have printed; return whether there were any."""
        is_any, paths = False, glob.glob(os.path.join(glob.escape(self._folder), "printed-*"))
        nbytes = min(_PIECE_NBYTES, _PIECES_NBYTES // max(1, len(paths)) + 1)
        for path in paths:
            if (found := _PRINTED.fullmatch(path)) is not None:
                piece = b""
                with contextlib.suppress(OSError), open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                    file.seek(self._read.get(path, 0))
                    piece = file.read(nbytes)
                if piece:
                    is_any = True
                    self._read[path] = self._read.get(path, 0) + len(piece)
                    self._send(["printed", [int(found[1]), int(found[2]), piece.decode("latin-1")]])
        return is_any


def sweep(folder: str, agent: int, is_ours: bool) -> None:
    """End what is left of the ranks of another agent of this host, by its process, where that was killed.

    One that has left in order has removed the key, or all; one that runs looks after its ranks itself.
    """
    if not os.path.exists(f"/proc/{agent}") and os.path.exists(os.path.join(folder, KEY)):
        kill(lambda: with_variable(_mark(folder, agent)))
        remove_memory(folder)
        if is_ours:
            shutil.rmtree(folder, ignore_errors=True)


def _mark(folder: str, agent: int) -> str:
    """The variable of all that an agent of this host starts, children of ranks included."""
    return f"{ELSEWHERE}={folder}@{os.uname().nodename}:{agent}"


def _printed(folder: str, rank: int, number: int, is_again: bool) -> BinaryIO:
    """The file to which a rank prints. OSError: a link is in its place, or a file, unless it was started before."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_APPEND | (0 if is_again else os.O_EXCL)
    return open(os.open(os.path.join(folder, PRINTED.format(rank, number)), flags, 0o600), "wb")


def _created(path: str) -> int:
    """A file that was not there, which no one else may read, nor a link lead elsewhere. OSError."""
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY, 0o600)


def _why(error: str) -> str:
    """Return why ranks cannot be started, and what to do."""
    remedy = f"see whether {sys.executable} runs there"
    if "emporarily unavailable" in error:
        remedy = "raise the limit of processes there (ulimit -u), or run fewer ranks"
    elif "No space" in error:
        remedy = "free space there"
    return f"{error}: {remedy}"
