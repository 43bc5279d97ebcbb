"""The ranks of a job of plain processes on a host other than the launcher's. The agent is sent with this module: it
imports of malt only what it is sent with.

What to start is started in a session of its own (malt/launch/hosts/plain/starter.py). Then lines are sent:

started   the number of the starter's process, which leads that session
said      a line of the starter: a rank is started again, say
exited    a rank that has failed, its incarnation and its status
printed   rank, 1 or 2 for stdout or stderr, and a piece of what the rank has printed, as Latin-1
done      all that the ranks have printed is sent, and the starter has ended; where it was killed, the agent kills them
failed    why no rank can start here, and what to do: nothing of the job is left

Where the connection ends, the agent waits for the end of the starter: the ranks may be those that go on. Where the
launcher is silent, it goes on, and so does the launcher if it is heard again; once the starter has ended, the agent
ends, too. As long as the launcher is not heard, a file says so to the starter (ADRIFT). What ranks print is in the
folder of the job. It stays where one of them has ended well, and is else removed.
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
from collections.abc import Callable
from typing import Any

from malt.launch.hosts.agent.checks import kept
from malt.launch.hosts.agent.processes import ELSEWHERE, kill, remove_memory, with_variable
from malt.launch.hosts.plain.starter import ADRIFT, AWAY, ENDING, EXITED, NONE_ENDED_WELL
from malt.runner.reporting import write

_PIECE_NBYTES, _PIECES_NBYTES = 1 << 16, 1 << 20
"""How much of a file is sent at once, and of all."""
_STARTER_S = 5.0
"""How long a killed starter may take to end."""
_PRINTED = re.compile(r".*/printed-(\d+)-([12])")
_EXITED = re.compile(rf"{EXITED} (\d+) (\d+) (\d+)")
ROSTER = "roster"
"""The name of the file of malt/runner/roster.py, and of the command that brings it."""
_HAS_STARTED = 0, NONE_ENDED_WELL, 128 + signal.SIGTERM, 128 + signal.SIGHUP


class CannotStart(Exception):
    """No rank can start on this host: why, and what to do, in a line."""


class Ranks:
    """The ranks that run here, and their output.

    `wanted`: folder, cwd, words, environment and key, as name and text; roster. `is_ours`: whether this agent has made
    the folder, and no other agent or launcher uses it. CannotStart: nothing runs.
    """

    def __init__(self, wanted: dict[str, Any], send: Callable[[list[Any]], None], is_ours: bool) -> None:
        self._folder, self._is_ours = wanted["folder"], is_ours
        name, key = wanted["key"]
        self._key = os.path.join(self._folder, name)
        self._mark = f"{ELSEWHERE}={self._folder}@{os.uname().nodename}:{os.getpid()}"
        self._send, self._is_done = send, False
        self._read: dict[str, int] = {}
        self._starter: subprocess.Popen[bytes] | None = None
        self._errors = os.path.join(self._folder, f"starter-{os.uname().nodename}")
        name, _, value = self._mark.partition("=")
        given = {**wanted["environment"], name: value, AWAY: self._folder if is_ours else ""}
        self._write_roster(wanted.get("roster", ""))
        try:
            if is_ours:
                with open(_created(self._key), "w", encoding="utf-8") as file:
                    file.write(key)
            with open(_created(self._errors), "wb") as errors:
                self._starter = subprocess.Popen(
                    wanted["words"], env=kept() | given, cwd=wanted["cwd"],
                    stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            self.end()
            raise CannotStart(_why(f"{error.strerror}: {error.filename}")) from None
        send(["started", self._starter.pid])

    def tend(self) -> bool:
        """Send the next pieces of what is printed. Returns whether there may be more.

        CannotStart: the starter has failed; nothing of the job is left.
        """
        status = self._status()
        if status is not None and status not in _HAS_STARTED and status > 0:
            why = self._last_error()
            self.end()
            raise CannotStart(_why(why))
        if status is not None and status < 0 and not self._is_done:  # it was killed: nobody looks after its ranks
            kill(lambda: with_variable(self._mark))
        has_more = self._pass_on()
        if status is not None and not has_more and not self._is_done:
            self._is_done = True
            self._send(["done", None])
        return has_more

    def pause(self, is_paused: bool) -> None:
        """Stop what runs here, or let it go on."""
        if self._starter is not None:
            with contextlib.suppress(OSError):  # all has ended
                os.killpg(self._starter.pid, signal.SIGSTOP if is_paused else signal.SIGCONT)

    def is_over_without(self, is_silent: bool) -> bool:
        """Return whether the agent is not needed any more: the launcher `is_silent`, and the starter has ended."""
        self._tell(ADRIFT, is_silent)
        return is_silent and self._status() is not None

    def depart(self) -> None:
        """Let the starter end the ranks, as SIGTERM tells it to: in order, where the job may go on with fewer."""
        if self._starter is not None and self._starter.poll() is None:
            self._starter.terminate()

    def tell(self, command: str, value: Any) -> None:
        """Follow `ending` and `roster`."""
        if command == ENDING:
            self._tell(ENDING, True)
        elif command == ROSTER:
            self._write_roster(value)

    def leave(self) -> None:
        """Wait for the end of the ranks. What they have printed stays, where one of them has ended well."""
        assert self._starter
        self._tell(ADRIFT, True)
        status = self._starter.wait()
        self._tell(ADRIFT, False)
        remove_memory(self._folder)
        if status != 0:
            self.end()
        elif self._is_ours:
            with contextlib.suppress(OSError):
                os.unlink(self._key)

    def end(self) -> int:
        """Kill what is left, and remove the folder. Returns the number of processes killed."""
        killed = 0
        if self._starter is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._starter.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # it waits for a disk, say
                self._starter.wait(_STARTER_S)
            killed = kill(lambda: with_variable(self._mark))
        if self._is_ours:
            shutil.rmtree(self._folder, ignore_errors=True)
        remove_memory(self._folder)
        return killed

    def _status(self) -> int | None:
        return self._starter.poll() if self._starter is not None else 0

    def _tell(self, name: str, is_so: bool) -> None:
        """Tell the starter by the file `name` in the folder of the job, or by its absence."""
        path = os.path.join(self._folder, name)
        with contextlib.suppress(OSError):  # it is so already
            os.close(_created(path)) if is_so else os.unlink(path)

    def _write_roster(self, text: str) -> None:
        """Write the roster for starter and ranks, whole or not at all, unless the launcher's is in that place."""
        if self._is_ours and text:
            with contextlib.suppress(OSError):  # a full disk: they go on with the one before
                write(os.path.join(self._folder, ROSTER), text)

    def _pass_on(self) -> bool:
        """Send the next pieces of what ranks have printed; return whether there were any."""
        is_any, paths = self._pass_on_said(), glob.glob(os.path.join(self._folder, "printed-*"))
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

    def _pass_on_said(self) -> bool:
        """Send the next line of the starter that is for the user or the launcher; return whether there was any."""
        with contextlib.suppress(OSError), open(self._errors, "rb") as file:
            file.seek(self._read.get(self._errors, 0))
            line = file.readline(_PIECE_NBYTES)
            if line.endswith(b"\n"):
                self._read[self._errors] = file.tell()
                text = line.decode(errors="replace").rstrip()
                if text.startswith("malt: "):
                    self._send(["said", text])
                elif (found := _EXITED.fullmatch(text)) is not None:
                    self._send([EXITED, list(map(int, found.groups()))])
                return True
        return False

    def _last_error(self) -> str:
        """The last line that the starter itself has printed."""
        with contextlib.suppress(OSError), open(self._errors, errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
            return lines[-1] if lines else "it printed nothing"
        return "it printed nothing"


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
