"""The other hosts of a job of plain processes: a keeper on each (malt/launch/hosts/plain/keeper.py), and its launcher.

Where a host is not heard of any more, its ranks may be those that go on. So nothing is ended then but the launcher,
once its own ranks have left, and it says where the others print and how they are ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from malt.launch.command import STARTER
from malt.launch.hosts.plain.keeper import PULSE_S
from malt.launch.hosts.plain.starter import AWAY, OVER
from malt.runner import reporting
from malt.runner.program import PIPES

_KEEPER = str(Path(__file__).with_name("keeper.py"))
SILENT_S = 5.0
"""A host that was not heard of for so long is cut off, or down, for the end of a job whose ranks here have left."""
_DONE_S, _ENDS_S = 2.0, 5.0


class Keeper:
    """The keeper on `host`, which starts `ranks` there."""

    def __init__(
        self, host: str, ranks: Sequence[int], size: int, program: Sequence[str], environ: Mapping[str, str],
        folder: Path, shell: Sequence[str],
    ) -> None:  # fmt: skip
        self.host, self.ranks, self._folder = host, tuple(ranks), folder
        self.heard_at = time.monotonic()
        self.starter: int | None = None
        """The number of the process there that has started the ranks."""
        self.is_done = threading.Event()
        self._outputs: dict[tuple[int, int], int] = {}
        self._process = subprocess.Popen(
            [*shell, host, f"exec {shlex.quote(sys.executable)} -I {shlex.quote(_KEEPER)}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        words = [sys.executable, STARTER, ",".join(map(str, ranks)), str(size), *program]
        wanted = {
            "folder": str(folder), "cwd": os.getcwd(), "words": words, "environment": {**environ, AWAY: "1"},
            "key": [reporting.KEY, (folder / reporting.KEY).read_text(encoding="utf-8")],
        }  # fmt: skip
        assert self._process.stdin and self._process.stdout
        self._input = self._process.stdin
        self._saying = threading.Lock()
        self._say(json.dumps(wanted).encode() + b"\n")
        self._listening = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._listening.start()
        threading.Thread(target=self._pulse, daemon=True).start()

    @property
    def process(self) -> int:
        """The number of its process on this host."""
        return self._process.pid

    def end(self) -> None:
        """Have what is left there killed and removed, where it can be reached."""
        self._say(b"end\n")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS_S)
        self.drop()

    def drop(self) -> None:
        """End the connection alone."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()

    def _say(self, line: bytes) -> None:
        with self._saying, contextlib.suppress(OSError, ValueError):
            self._input.write(line)
            self._input.flush()

    def _pulse(self) -> None:
        while self._process.poll() is None:
            time.sleep(PULSE_S)
            self._say(b"alive\n")

    def _listen(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            self.heard_at = time.monotonic()
            with contextlib.suppress(ValueError, TypeError):  # what a shell prints at login
                what, value = json.loads(line)
                if what == "printed":
                    self._print(*value)
                elif what == "started":
                    self.starter = value
                elif what == "done":
                    self.is_done.set()

    def _print(self, rank: int, number: int, piece: str) -> None:
        """Write what a rank has printed to its pipe in the folder of the job, as ranks of this host do themselves."""
        if (rank, number) not in self._outputs:
            self._outputs[rank, number] = os.open(self._folder / f"{PIPES[number]}-{rank}", os.O_WRONLY)
        data = piece.encode("latin-1")
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._outputs[rank, number], data) :]


class Keepers:
    """The keepers of a job. `away`: the ranks on each other host, by its name. `shell`: as of `remote_shell`."""

    def __init__(
        self, away: Mapping[str, Sequence[int]], size: int, program: Sequence[str], environ: Mapping[str, str],
        folder: Path, shell: Sequence[str],
    ) -> None:  # fmt: skip
        self._keepers = [Keeper(host, ranks, size, program, environ, folder, shell) for host, ranks in away.items()]
        self._folder = folder
        self.last_words = ""
        """The line that ends the output where ranks may go on without this host."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._keepers)

    def processes(self) -> list[int]:
        """The processes of the connections, on this host."""
        return [one.process for one in self._keepers]

    def is_cut_off(self) -> bool:
        """Whether this host has lost some others, and on those that it still hears no rank runs."""
        silent = [one for one in self._keepers if self._is_silent(one)]
        return bool(silent) and all(one.is_done.is_set() for one in self._keepers if one not in silent)

    def leave(self) -> None:
        """Let the starter of this host end, and note where ranks may go on, for `last_words`."""
        (self._folder / OVER).touch()
        lost = "; ".join(
            f"ranks {', '.join(map(str, one.ranks))} may go on on host {one.host}, and print to "
            f"{self._folder}/printed-* there; to end them: ssh {one.host} kill -- -{one.starter}"
            for one in self._keepers
            if self._is_silent(one)
        )
        self.last_words = f"malt run: this host has lost others: {lost}\n"

    def collect(self) -> None:
        """Wait until all that ranks have printed there has come, where it may."""
        end = time.monotonic() + _DONE_S
        for one in self._keepers:
            if not self._is_silent(one):
                one.is_done.wait(max(0.0, end - time.monotonic()))

    def end(self) -> None:
        """End what is left of the job on the hosts that can be reached."""
        for one in self._keepers:
            if self._is_silent(one):
                one.drop()
            else:
                one.end()
        self._keepers = []

    @staticmethod
    def _is_silent(one: Keeper) -> bool:
        return time.monotonic() - one.heard_at > SILENT_S
