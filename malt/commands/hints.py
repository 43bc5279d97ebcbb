"""Suggests what a user may have meant by an invalid command line: another command, another option or another order."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Sequence

from malt.commands.options import Parser
from malt.launch.machine.mpi_library import LaunchError

_OF_THE_JOB = re.compile(
    r"-n\d+|(-n|-np|--np|--nproc[-_]per[-_]node)[= ]\d+|--(hosts|hostfile|compare)[= ].+|--rejoin|--survive(=.+)?|"
    r"--elastic[= ].+"
)
"""The options that say which job it is to be, with their values. The others are those of many a program, too."""


def meant(word: str, known: Iterable[str]) -> str:
    """`: did you mean X?` for the word of `known` that `word` resembles; "" without one. Pure."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.partition("=")[0].lower(), names, 1)
    return f": did you mean {names[near[0]]}?" if near else ""


def check_command(words: Sequence[str], parser: Parser) -> None:
    """End with a line, and status 2, where the first word is no command and it is known which was meant. Local."""
    first, own = words[0] if words else "", parser._option_string_actions
    if not first or first in parser.commands or first in own:
        return
    if first.partition("=")[0] in parser.commands["run"]._option_string_actions or os.path.isfile(first):
        parser.error(f"no command goes before {first}: did you mean malt run {first} ...?")
    if hint := meant(first, [*parser.commands, *own]):
        parser.error(f"no command {first}{hint}")


def check_options(command: str, unknown: Sequence[str], parser: Parser) -> None:
    """Raise LaunchError where `unknown` has words that the command does not take. Pure."""
    if unknown:
        known = parser.commands[command]._option_string_actions
        hint = next(filter(None, (meant(word, known) for word in unknown if word.startswith("-"))), "")
        raise LaunchError(f"unknown arguments: {' '.join(unknown)}{hint} (see malt {command} --help)")


def check_order(options: Sequence[str], program: Sequence[str]) -> None:
    """Raise LaunchError where an option of the job stands after PROGRAM, with the line that may be meant. Pure.

    For words that have no number of ranks before PROGRAM. Where they have, what follows PROGRAM is its own in any case.
    `options`: what stands before PROGRAM.
    """
    at = 2 if program[:1] in (("-m",), ("-c",)) else 1
    end = program.index("--") if "--" in program else len(program)
    moved, rest = list[str](), list(program[:at])
    while at < end:
        count = next((n for n in (1, 2) if _OF_THE_JOB.fullmatch(" ".join(program[at : min(at + n, end)]))), 0)
        (moved if count else rest).extend(program[at : at + max(1, count)])
        at += max(1, count)
    if moved:
        meant, own = _line(*options, *moved, *rest, *program[end:]), _line("-n", "N", *options, *program)
        raise LaunchError(f"options go before the program: {meant} (if {moved[0]} is the program's own: {own})")


def _line(*words: str) -> str:
    """A command line of `malt run`, on one line also where -c has a text of many."""
    return shlex.join(["malt", "run", *("CODE" if "\n" in word else word for word in words)])
