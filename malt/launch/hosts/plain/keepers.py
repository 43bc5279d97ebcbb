"""The other hosts of a job of plain processes: a keeper on each (malt/launch/hosts/plain/keeper.py), and its launcher.

Where a host is not heard of any more, its ranks may be those that go on. So nothing is ended then but the launcher,
once its own ranks have left, and it says where the others print and how they are ended. What was given up so stays so,
also where such a host is heard of again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO

from dstorm.running_time import RunningTime
from dstorm.stopwatch import LONGEST_STEP_S, Stopwatch
from malt.launch.command import STARTER
from malt.launch.hosts import sent
from malt.launch.hosts.plain.keeper import PULSE_S
from malt.launch.hosts.plain.starter import AWAY, ENDING, OVER
from malt.launch.streams.display import say
from malt.runner import reporting
from malt.runner.program import PIPES

SILENT_S, SILENT_ALONE_S = 5.0, 30.0
"""A host that was not heard of for so long is cut off, or down, for the end of a job whose ranks here have left; and of
one that never had ranks here. SILENT_S after the end of a host's ranks no report of them comes any more."""
START_S = 60.0
"""How long ssh may take until the keeper has started its ranks."""
_UNHEARD_S = 2.0
"""How long after the end of a host's ranks their first report may come, before they have met the others."""
_ENDS_S, _POLL_S = 5.0, 0.05
"""How long a keeper may take to end."""
_SAYS_S = 1.0
"""How long a line waits for those before it to be taken; how long a connection may take to end after its output."""
_PULSES = 2
"""After so many pulses without a piece of what ranks have printed no more is expected at the end."""
_REST_S, _REST_OF_FAILED_S = 600.0, 10.0
"""How long what ranks have printed may take to come at the end: where the job has ended well, and else, as ranks there
may still print."""


class Keeper:
    """The keeper on `host`, which starts `ranks` there. `since(moment)`: the seconds from then on, as in `Keepers`."""

    def __init__(
        self, host: str, ranks: Sequence[int], size: int, program: Sequence[str], environ: Mapping[str, str],
        folder: Path, shell: Sequence[str], since: Callable[[float], float],
    ) -> None:  # fmt: skip
        self.host, self.ranks, self._folder, self._since = host, tuple(ranks), folder, since
        self.place = str(folder)
        """The folder of the job there."""
        self._began = self._heard_at = time.monotonic()
        self.starter: int | None = None
        """The number of the process there that has started the ranks."""
        self.is_done = threading.Event()
        self._done_at = 0.0
        self._why = ""
        """Why the ranks there cannot start, as the keeper has said."""
        self.is_printing = False
        """Whether a piece that ranks there have printed is being printed here."""
        self.pulses = 0
        """How often it was heard of since the last piece, when it had no more."""
        self._outputs: dict[tuple[int, int], int] = {}
        self._process = subprocess.Popen(
            [*shell, host, f"exec {shlex.quote(sys.executable)} -I -c {shlex.quote(sent.START)}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        words = [sys.executable, STARTER, ",".join(map(str, ranks)), str(size), *program]
        wanted = {
            "folder": str(folder), "cwd": os.getcwd(), "words": words, "environment": {**environ, AWAY: "1"},
            "key": [reporting.KEY, (folder / reporting.KEY).read_text(encoding="utf-8")],
        }  # fmt: skip
        assert self._process.stdin and self._process.stdout
        self._input = self._process.stdin
        self._is_paused = False
        self._saying = threading.Lock()
        self._saying.acquire()  # until the first line is written: none comes before it
        self._listening = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._listening.start()
        text = sent.text("malt.launch.hosts.plain.keeper", sent.STOPWATCH)  # longer than a pipe takes
        first = text + b"\0" + json.dumps(wanted).encode() + b"\n"
        threading.Thread(target=self._pulse, args=(first,), daemon=True).start()

    @property
    def process(self) -> int:
        """The number of its process on this host."""
        return self._process.pid

    def silent_s(self) -> float:
        """For how long it was not heard of; 0 before it has started ranks, and while what they print cannot be."""
        if self.starter is None or self.is_printing:
            return 0.0
        return self._since(self._heard_at)

    def failure(self, heard: Collection[int]) -> str:
        """Why the ranks there cannot meet the others, or "". `heard`: the ranks that have reported anything."""
        names = _named(self.ranks)
        if self._why:
            return f"host {self.host}: {names} cannot start there: {self._why}"
        if self.starter is None and not self._listening.is_alive():
            status = self._process.poll()
            how = "" if status is None else f" with status {status}"
            return f"host {self.host}: the connection has ended{how} before {names} had started there"
        if self.starter is None and self._since(self._began) > START_S:
            return f"host {self.host}: nothing has come from it for {START_S:.0f} s, {names} cannot start there"
        unheard = sorted(set(self.ranks) - set(heard))
        if unheard and self.is_done.is_set() and self._since(self._done_at) > _UNHEARD_S:
            return f"host {self.host}: {_named(unheard)} ended there without a report, and could not start or connect"
        return ""

    def is_unheard(self, members: Collection[int]) -> bool:
        """Whether its ranks have ended, and no report of that came of some of `members`: by another way than this."""
        return self.has_been_done() and bool({*self.ranks} & {*members})

    def has_been_done(self) -> bool:
        """Whether its ranks ended so long ago that what they have reported has come."""
        return self.is_done.is_set() and self._since(self._done_at) > SILENT_S

    def pause(self, is_paused: bool) -> None:
        """Tell it that this process is about to be stopped, with what runs there; or that it goes on."""
        self._is_paused = is_paused  # no pulse follows the line: it would end the pause
        self._say(b"pause\n" if is_paused else b"alive\n")

    def stop_starting(self) -> None:
        """Tell it that no failed rank is to be started again."""
        self._say(b"ending\n")

    def request_end(self) -> None:
        """Ask it to kill and remove what is left there."""
        self._say(b"end\n")

    def end(self) -> None:
        """Wait until what is left there is killed and removed, where it can be reached."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS_S)
        self.drop()

    def drop(self) -> None:
        """End the connection alone."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._input.close()

    def _say(self, line: bytes, is_pulse: bool = False) -> None:
        if self._saying.acquire(timeout=_SAYS_S):  # else the line before it is not taken
            self._write(b"" if is_pulse and self._is_paused else line)

    def _write(self, line: bytes) -> None:
        """Write a line, and let others write the next one."""
        try:
            with contextlib.suppress(OSError, ValueError):
                self._input.write(line)
                self._input.flush()
        finally:
            self._saying.release()

    def _pulse(self, first: bytes) -> None:
        """Say the first line, and that this host lives now and then."""
        self._write(first)
        while self._process.poll() is None:
            time.sleep(PULSE_S)
            self._say(b"alive\n", is_pulse=True)

    def _listen(self, pipe: IO[bytes]) -> None:
        with pipe:
            self._take(pipe)
        for number in self._outputs.values():
            os.close(number)
        with contextlib.suppress(subprocess.TimeoutExpired):  # its output ends a moment before its process does
            self._process.wait(_SAYS_S)

    def _take(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            self._heard_at = time.monotonic()
            with contextlib.suppress(ValueError, TypeError):  # what a shell prints at login
                what, value = json.loads(line)
                if what == "printed":
                    self.pulses = 0
                    self._print(*value)
                    self._heard_at = time.monotonic()
                elif what == "alive":
                    self.pulses += 1
                elif what == "started":
                    self.starter = value
                elif what == "folder":
                    self.place = str(value)
                elif what == "said":
                    say(f"{value}\n")
                elif what == "failed":
                    self._why = str(value)
                elif what == "done":
                    self._done_at = time.monotonic()
                    self.is_done.set()

    def _print(self, rank: int, number: int, piece: str) -> None:
        """Write what a rank has printed to its pipe in the folder of the job, as ranks of this host do themselves."""
        data = piece.encode("latin-1")
        self.is_printing = True
        with contextlib.suppress(OSError):  # the job has ended, and nobody reads
            if (rank, number) not in self._outputs:
                pipe = os.open(self._folder / f"{PIPES[number]}-{rank}", os.O_WRONLY | os.O_NONBLOCK)
                os.set_blocking(pipe, True)
                self._outputs[rank, number] = pipe
            while data:
                data = data[os.write(self._outputs[rank, number], data) :]
        self.is_printing = False


class Keepers:
    """The keepers of a job. `away`: the ranks on each other host, by its name. `shell`: as of `remote_shell`."""

    def __init__(
        self, away: Mapping[str, Sequence[int]], size: int, program: Sequence[str], environ: Mapping[str, str],
        folder: Path, shell: Sequence[str],
    ) -> None:  # fmt: skip
        self._running = RunningTime(time.monotonic(), LONGEST_STEP_S)
        self._keepers = [
            Keeper(host, ranks, size, program, environ, folder, shell, self._since) for host, ranks in away.items()
        ]
        self._folder = folder
        has_own = sum(len(one.ranks) for one in self._keepers) < size
        self._silent_s = SILENT_S if has_own else SILENT_ALONE_S
        self._left: list[Keeper] = []
        """Those that are given up."""
        self._has_failed = self._is_ending = False
        self.is_over = False
        """Whether `leave` was called."""
        self.last_words = ""
        """The line that ends the output where ranks may go on without this host."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._keepers)

    def processes(self) -> list[int]:
        """The processes of the connections, on this host."""
        return [one.process for one in self._keepers]

    def pausing(self, suspend: Callable[[int], None]) -> Callable[[int], None]:
        """Return suspend(number), which tells the keepers where this process is stopped, and goes on."""

        def pause_and_suspend(number: int) -> None:
            """Tell the keepers before SIGSTOP and after SIGCONT, and suspend."""
            for one in self._keepers if number == signal.SIGSTOP else ():
                one.pause(True)
            suspend(number)
            for one in self._keepers if number == signal.SIGCONT else ():
                one.pause(False)

        return pause_and_suspend

    def unreached(self) -> set[int]:
        """The ranks of which no more is heard: their hosts are not, or they ended there a while ago."""
        lost = [one for one in self._keepers if self._is_silent(one) or one.has_been_done()]
        return {rank for one in lost for rank in one.ranks}

    def _since(self, moment: float) -> float:
        """The seconds from `moment` on in which this process ran: it looks often, and `have_failed` is a look, too."""
        self._running.poll(time.monotonic())
        return self._running.since(moment)

    def have_failed(self, heard: Collection[int]) -> bool:
        """Whether ranks of a host cannot meet the others. Prints why, once. `heard`: as in `Keeper.failure`."""
        self._running.poll(time.monotonic())
        if not self._has_failed and (why := next(filter(None, (one.failure(heard) for one in self._keepers)), "")):
            self._has_failed = True
            say(f"malt run: {why}\n")
        return self._has_failed

    def stop_starting(self) -> None:
        """Have no failed rank started again any more, once the job ends (ENDING)."""
        if self._keepers and not self._is_ending and (self._folder / ENDING).exists():
            self._is_ending = True
            for one in self._keepers:
                one.stop_starting()

    def is_cut_off(self, members: Collection[int]) -> bool:
        """Whether this host has lost some others, and on those that it still hears none of the ranks `members` runs."""
        lost = [one for one in self._keepers if self._is_silent(one) or one.is_unheard(members)]
        heard = [one for one in self._keepers if one not in lost]
        return bool(lost) and all(one.is_done.is_set() or not {*one.ranks} & {*members} for one in heard)

    @property
    def are_left(self) -> bool:
        """Whether hosts are given up, on which ranks may go on."""
        return bool(self._left)

    def leave(self, members: Collection[int]) -> None:
        """Let the starter of this host end, and give up the hosts where ranks may go on. `last_words` says which.

        `members`: as in `is_cut_off`.
        """
        self.is_over = True
        with contextlib.suppress(OSError):  # a cleaner of /tmp has removed it: the starter is ended by a signal
            (self._folder / OVER).touch()
        self._left = [one for one in self._keepers if self._is_silent(one) and not one.is_done.is_set()]
        silent = ", ".join(one.host for one in self._keepers if self._is_silent(one))
        lost = [
            f"{_named(one.ranks)} may go on on host {one.host}, and print to "
            f"{one.place}/printed-* there; to end them: ssh {one.host} kill -- -{one.starter}"
            for one in self._left
        ] + [
            f"{_named(sorted({*one.ranks} & {*members}))} ended on host {one.host}, and how is not known, as no report "
            "of it came"
            for one in self._keepers if one.is_unheard(members)
        ]  # fmt: skip
        self.last_words = f"malt run: this host has lost others: {'; '.join(lost) or silent}\n"

    def collect(self, status: int, is_hurried: Callable[[], bool]) -> None:
        """Wait until all that ranks have printed there has come, as long as it comes. Says what has not.

        `status`: that of the job. is_hurried(): whether the user waits no more.
        """
        waited, limit_s = Stopwatch(), _REST_OF_FAILED_S if status else _REST_S
        kept = [one for one in self._keepers if one.starter is not None and one not in self._left]
        for one in kept:
            one.pulses = 0
        for one in kept:
            while one.pulses <= _PULSES and not one.is_done.wait(_POLL_S):
                if self._is_silent(one) or is_hurried() or waited.seconds() > limit_s:
                    say(f"malt run: host {one.host}: the end of what {_named(one.ranks)} printed is left out\n")
                    break

    def end(self) -> None:
        """End what is left of the job on the hosts that can be reached and are not given up."""
        reached = [one for one in self._keepers if one not in self._left and not self._is_silent(one)]
        for one in reached:
            one.request_end()
        for one in self._keepers:
            if one in reached:
                one.end()
            else:
                one.drop()
        self._keepers = []

    def _is_silent(self, one: Keeper) -> bool:
        return one.silent_s() > self._silent_s


def _named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
