"""The keeper of the ranks of a job of plain processes on a host other than the launcher's.

The launcher sends its text over ssh, with that of the modules of malt that it imports. It reads a line of JSON from
standard input, what to start, and starts it in a session of its own (malt/launch/hosts/plain/starter.py). Then it sends
lines of JSON, [what, value]:

started   the number of the starter's process, which leads that session
folder    that of the job here, where it is not the one that was wanted: its place is missing, or full
said      a line of the starter: a rank is started again, say
printed   rank, 1 or 2 for stdout or stderr, and a piece of what the rank has printed, as Latin-1
alive     every second
done      all that the ranks have printed is sent, and the starter has ended
failed    why no rank can start here, and what to do. Nothing is left of the job then; the keeper ends with status 1

Lines on standard input:

ending    no failed rank is to be started again
end       kill what is left, remove the folder of the job, and end
pause     the launcher is stopped (Ctrl-Z), and will say nothing until the next line; nor does anything run here

Where the connection ends instead, it waits for the end of the starter: the ranks may be those that go on. Where nothing
comes for SILENCE_S, it goes on, and so does the launcher if it is heard again; once the starter has ended, the keeper
ends, too. As long as the launcher is not heard, a file says so to the starter (ADRIFT). What ranks print is in the
folder of the job. It stays where one of them has ended well, and is else removed.
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
import stat
import subprocess
import sys
import time
from typing import Any

from dstorm.stopwatch import Stopwatch

PULSE_S, SILENCE_S = 1.0, 30.0
_POLL_S, _PIECE_NBYTES, _PIECES_NBYTES = 0.05, 1 << 16, 1 << 20
"""How much of a file is sent at once, and of all."""
_KILLED_S, _COMES_S = 5.0, 2.0
"""How long killed processes may take to end; and a line to be sent, or a key that another keeper writes, to come."""
_PRINTED = re.compile(r".*/printed-(\d+)-([12])")
_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
"""Where the folder of the job is made if it cannot be made where the launcher has it."""
_NOT_PASSED = "PYTHON", "LD_", "OMPI_", "PRTE_", "PMIX_", "MPI4PY_"
"""The beginnings of variables that ranks get from the launcher alone."""
_TRIES, _EXEC_S, _KERNEL_THREAD = 6, 0.01, 0x00200000
"""As in malt/launch/hosts/agent/watch.py."""
_MARK = "MALT_KEEPER"
"""The variable by which the keeper finds what its starter has started, children of ranks included."""
NONE_ENDED_WELL = 3
"""The status of a starter that has started all its ranks, of which none has ended well."""
_HAS_STARTED = 0, NONE_ENDED_WELL, 128 + signal.SIGTERM
ENDING, ADRIFT = "ending", "adrift"
"""Files in the folder of the job for the starter: no rank is started again; the launcher is not heard."""


class CannotStart(Exception):
    """No rank can start on this host: why, and what to do, in a line."""


class Keeper:
    """What runs here, and what it prints. `wanted`: folder, cwd, words, environment and key, as name and text.

    CannotStart: nothing runs.
    """

    def __init__(self, wanted: dict[str, Any]) -> None:
        self._folder, self._is_ours = _folder(wanted["folder"], *wanted["key"])
        self._key = os.path.join(self._folder, wanted["key"][0])
        self._mark = f"{self._folder}@{os.uname().nodename}:{os.getpid()}"
        self._read: dict[str, int] = {}
        self._unsent = b""
        self._is_paused = False
        self._starter: subprocess.Popen[bytes] | None = None
        self._errors = os.path.join(self._folder, f"starter-{os.uname().nodename}")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED)}
        given = {
            name: self._folder if value == wanted["folder"] else value for name, value in wanted["environment"].items()
        }
        try:
            with open(_created(self._errors), "wb") as errors:
                self._starter = subprocess.Popen(
                    wanted["words"], env=kept | given | {_MARK: self._mark}, cwd=wanted["cwd"],
                    stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            self.end()
            raise CannotStart(_why(f"{error.strerror}: {error.filename}")) from None
        if self._folder != wanted["folder"]:
            self._send("folder", self._folder)
        self._send("started", self._starter.pid)

    def run(self) -> None:
        """Pass on what is printed until the launcher ends this. Without its connection wait for the ranks.

        CannotStart: the starter has failed; nothing is left.
        """
        assert self._starter
        has_ended = False
        with contextlib.suppress(OSError):
            has_ended = self._run(self._starter)
        if has_ended:
            return
        self._pause(False)
        self._tell(ADRIFT, True)
        status = self._starter.wait()
        self._tell(ADRIFT, False)
        self._remove_memory()
        if status != 0:
            self.end()
        elif self._is_ours:  # what the ranks have printed stays
            with contextlib.suppress(OSError):
                os.unlink(self._key)

    def _run(self, starter: subprocess.Popen[bytes]) -> bool:
        """Return whether the launcher has ended this; False: its connection has ended. OSError: so it has."""
        said, silence, is_done, taken = time.monotonic(), Stopwatch(), False, b""
        os.set_blocking(1, False)  # where the launcher takes nothing, it is heard all the same
        while True:
            status = starter.poll()
            if status is not None and status not in _HAS_STARTED and status > 0:
                why = self._last_error()
                self.end()
                raise CannotStart(_why(why))
            has_more = not self._unsent and self._pass_on()
            if not self._unsent and not has_more and status is not None and not is_done:
                self._send("done", None)
                is_done = True
            if time.monotonic() - said > PULSE_S and not self._unsent and not has_more:
                self._send("alive", None)
                said = time.monotonic()
            if select.select([0], [1] if self._unsent else [], [], 0 if has_more else _POLL_S)[0]:
                data = os.read(0, 1 << 16)
                if not data:
                    return False
                silence.restart()
                *lines, taken = (taken + data).split(b"\n")
                for line in lines:
                    self._pause(line == b"pause")
                    if line == b"ending":
                        self._tell(ENDING, True)
                if b"end" in lines:
                    self.end()
                    return True
            is_adrift = silence.seconds() > SILENCE_S and not self._is_paused
            if is_adrift and status is not None:
                return False
            self._tell(ADRIFT, is_adrift)
            self._flush()

    def _pause(self, is_paused: bool) -> None:
        if is_paused != self._is_paused and self._starter is not None:
            with contextlib.suppress(OSError):  # all has ended
                os.killpg(self._starter.pid, signal.SIGSTOP if is_paused else signal.SIGCONT)
        self._is_paused = is_paused

    def _tell(self, name: str, is_so: bool) -> None:
        """Tell the starter by the file `name` in the folder of the job, or by its absence."""
        path = os.path.join(self._folder, name)
        with contextlib.suppress(OSError):  # it is so already
            os.close(_created(path)) if is_so else os.unlink(path)

    def end(self) -> None:
        """Kill what is left, and remove the folder."""
        if self._starter is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._starter.pid, signal.SIGKILL)
            end = time.monotonic() + _KILLED_S
            with contextlib.suppress(subprocess.TimeoutExpired):  # it waits for a disk, say
                self._starter.wait(_KILLED_S)
            while found := self._processes():
                for process in found:
                    with contextlib.suppress(OSError):
                        os.kill(process, signal.SIGKILL)
                if time.monotonic() > end:
                    break
                time.sleep(_POLL_S)
        if self._is_ours:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._remove_memory()

    def _remove_memory(self) -> None:
        """Remove the memory that the ranks have shared: none of them runs any more."""
        for path in glob.glob(f"/dev/shm/{os.path.basename(self._folder)}-*"):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _processes(self) -> list[int]:
        """What the starter has started, and its children, by the variables that they have. What is dead has none."""
        found, left = list[int](), [word for word in os.listdir("/proc") if word.isdecimal()]
        for _ in range(_TRIES):
            marked = {word: _has_mark(word, os.fsencode(f"{_MARK}={self._mark}")) for word in left}
            found += [int(word) for word in left if marked[word]]
            if not (left := [word for word in left if marked[word] is None]):
                break
            time.sleep(_EXEC_S)
        return found

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
                    self._send("printed", [int(found[1]), int(found[2]), piece.decode("latin-1")])
        return is_any

    def _pass_on_said(self) -> bool:
        """Send the next line of the starter that is for the user; return whether there was any."""
        with contextlib.suppress(OSError), open(self._errors, "rb") as file:
            file.seek(self._read.get(self._errors, 0))
            line = file.readline(_PIECE_NBYTES)
            if line.endswith(b"\n"):
                self._read[self._errors] = file.tell()
                if line.startswith(b"malt: "):
                    self._send("said", line.decode(errors="replace").rstrip())
                return True
        return False

    def _last_error(self) -> str:
        """The last line that the starter itself has printed."""
        with contextlib.suppress(OSError), open(self._errors, errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
            return lines[-1] if lines else "it printed nothing"
        return "it printed nothing"

    def _send(self, what: str, value: object) -> None:
        self._unsent += _line(what, value)
        self._flush()

    def _flush(self) -> None:
        """Write what the connection takes now. OSError: it has ended."""
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[os.write(1, self._unsent[:_PIECE_NBYTES]) :]


def _has_mark(word: str, mark: bytes) -> bool | None:
    """Whether a process has the variable `mark`. None: it has no variables so far, as in the midst of exec."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{word}/environ", "rb") as file:
            if environ := file.read():
                return mark in environ.split(b"\0")
        with open(f"/proc/{word}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return False if fields[0] in (b"Z", b"X") or int(fields[6]) & _KERNEL_THREAD else None
    return False


def _folder(wanted: str, name: str, key: str) -> tuple[str, bool]:
    """Make the folder of the job, with its key in the file `name`: `wanted`, or one of that name elsewhere.

    Returns it, and whether this keeper has made it. CannotStart: none can be made.
    """
    first, why = os.path.dirname(wanted), ""
    for above in dict.fromkeys([first, *_FOLDERS]):
        try:
            folder = os.path.join(above, os.path.basename(wanted))
            return folder, _make(folder, name, key)
        except OSError as error:
            why = why or error.strerror or str(error)
    raise CannotStart(
        f"nothing can be made in {first} ({why}): free space there, or set TMPDIR to a folder that all hosts have"
    )


def _make(folder: str, name: str, key: str) -> bool:
    """Make a folder with a key; return False if it is there, of this user alone, with the same key.

    The launcher, or another host of the job, shares its place then. OSError: it cannot be made, or is another's.
    """
    path = os.path.join(folder, name)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o777 != 0o700:
            raise FileExistsError(0, f"{folder} is there already, and is not of this job") from None
        end = time.monotonic() + _COMES_S
        while _text(path) != key:
            if time.monotonic() > end:
                raise FileExistsError(0, f"{folder} is there already, and has another key") from None
            time.sleep(_POLL_S)
        return False
    try:
        with open(_created(path), "w", encoding="utf-8") as file:
            file.write(key)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return True


def _created(path: str) -> int:
    """A file that was not there, which no one else may read, nor a link lead elsewhere. OSError."""
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY, 0o600)


def _text(path: str) -> str | None:
    with contextlib.suppress(OSError), open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8") as file:
        return file.read()
    return None


def _why(error: str) -> str:
    """Why ranks cannot be started, and what to do."""
    remedy = f"see whether {sys.executable} runs there"
    if "emporarily unavailable" in error:
        remedy = "raise the limit of processes there (ulimit -u), or run fewer ranks"
    elif "No space" in error:
        remedy = "free space there"
    return f"{error}: {remedy}"


def _line(what: str, value: object) -> bytes:
    return json.dumps([what, value]).encode() + b"\n"


def _first_line() -> bytes:
    """The first line of standard input, or what there is of it. What follows is for `run`."""
    return b"".join(iter(lambda: os.read(0, 1).strip(b"\n"), b""))


def main() -> int:
    """Keep what the launcher asks for; return the status."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with contextlib.suppress(OSError, json.JSONDecodeError):  # the launcher has ended
            Keeper(json.loads(_first_line())).run()
    except CannotStart as error:
        with contextlib.suppress(OSError):
            if select.select([], [1], [], _COMES_S)[1]:
                os.write(1, b"\n" + _line("failed", str(error)))  # what was cut off before it is no line
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
