"""Shows and keeps the output of ranks, by the options of `malt run`; and the launcher's own lines.

Each line of the launcher goes through `say`. While a job runs, that passes it on to the owner of the terminal
(malt/launch/streams/output.py), so that it is neither cut nor drawn over.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from malt.files import folders


@dataclass(frozen=True)
class Display:
    """The options of what the launcher shows and keeps."""

    label: bool = False
    """Whether each line of output begins with the rank that printed it."""
    folder: str | None = None
    """The folder that keeps a file for each rank of what it prints. None: there is none."""
    ranks: frozenset[int] | None = None
    """The ranks whose output is shown. None: all."""
    view: bool = False
    """Whether a table of the ranks is drawn below it."""


PLAIN = Display()
"""What the ranks print, and no more."""


def _print(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal was closed, and the job shall end in order
        print(text, end="", file=sys.stderr, flush=True)


_speaker: Callable[[str], None] = _print
"""What prints the launcher's lines now. A process has one standard error."""


def say(text: str) -> None:
    """Print lines of the launcher on stderr, below what ranks have printed so far. Local.

    `text` ends with a newline, or is empty.
    """
    _speaker(text)


def speak_through(speaker: Callable[[str], None] | None, is_within_line: bool = False) -> None:
    """Have the launcher's lines printed by speaker(text) from now on. None: straight to stderr. Local.

    `is_within_line`: what was printed there last does not end with a newline, which the next line begins with then.
    """
    global _speaker
    _speaker = speaker or (_print_below if is_within_line else _print)


def _print_below(text: str) -> None:
    if text:
        speak_through(None)
        _print("\n" + text)


def is_screen(number: int) -> bool:
    """Return whether the file descriptor `number` is a terminal that can move its cursor. Local."""
    return os.isatty(number) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def is_in_background(number: int) -> bool:
    """Return whether the file descriptor `number` is a terminal that is that of other processes now (Ctrl-Z, bg)."""
    with contextlib.suppress(OSError):  # no terminal, or one without processes of its own
        return os.tcgetpgrp(number) != os.getpgrp()
    return False


def ranks_of(text: str, ranks: int) -> frozenset[int]:
    """The ranks that `0,2-3` names, of so many. ValueError: the text has another form, or there is no such rank."""
    found: set[int] = set()
    for word in text.split(","):
        first, dash, last = word.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise ValueError(f"ranks are numbers and ranges, as in 0,2-3, not {text!r}")
        if not int(first) <= int(last or first) < ranks:
            raise ValueError(f"no rank {word}: there are ranks 0 to {ranks - 1}")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def make_files(folder: str, ranks: int) -> None:
    """Make an empty file in `folder` for each rank, and remove those of an earlier job. Local.

    OSError: another job writes there, say.
    """
    os.makedirs(folder, exist_ok=True)
    folders.hold(folder)
    for path in Path(folder).glob("rank-*.txt"):
        if path.stem.removeprefix("rank-").isdecimal():
            path.unlink()
    for rank in range(ranks):
        _file(folder, rank).touch()


def keepers(folder: str, ranks: int) -> list[Callable[[bytes], None]]:
    """A function for each rank that adds output to its file in `folder`. Local.

    Where one cannot write, as on a full disk, it says so in one line, and none of them writes any more.
    """
    has_failed = False

    def write(path: Path, data: bytes) -> None:
        """Add `data` to the file, as long as all could be written."""
        nonlocal has_failed
        if not has_failed:
            try:
                with path.open("ab") as file:
                    file.write(data)
            except OSError as error:  # the training goes on
                has_failed = True
                say(f"malt run: --output {folder} no longer saves the output of the ranks: {error.strerror}\n")

    return [partial(write, _file(folder, rank)) for rank in range(ranks)]


def _file(folder: str, rank: int) -> Path:
    return Path(folder) / f"rank-{rank}.txt"
