"""The start of a job from the copies: `malt run` runs again, from the environment that all hosts have."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from malt.launch.bootstrap import contents, copying
from malt.launch.command import is_here
from malt.launch.hosts.allocation import Host
from malt.launch.hosts.shell import remote_shell
from malt.launch.machine.mpi_library import PACKAGES, Library
from malt.launch.program import files_of

_MAIN = "import sys; sys.path.pop(0); from malt.commands.command_line import main; sys.exit(main())"
_MODULE = "import runpy, sys; sys.path.pop(0); runpy.run_module({!r}, run_name='__main__', alter_sys=True)"


def run(
    options: Sequence[str], program: Sequence[str], hosts: Sequence[Host], library: Library, environ: Mapping[str, str]
) -> NoReturn:
    """Copy the environment and `program` to `hosts`, and run `malt run OPTIONS` from the copy in this process.

    LaunchError: a host cannot take it.
    """
    text = program[1] if program[0] == "-c" else ""
    starts = [Path(os.path.realpath(file)) for file in files_of(program)]
    folder = Path(os.getcwd()) if program[0].startswith("-") else starts[0].parent
    starts = [file for file in starts if file.is_relative_to(folder)]
    if program[0] == "-m":
        text = f"import {program[1]}"
    found = contents.of(starts, text, folder, PACKAGES[library.family])
    where = copying.folders(found, environ)
    names = list(dict.fromkeys(host.name for host in hosts if not is_here(host.name)))
    copying.copy(names, remote_shell(environ, library.family), found, where)
    words = [*options, "--hosts", ",".join(map(str, hosts)), *_from_copy(program, where["program"])]
    python = os.path.join(where["environment"], "bin", "python3")
    site = os.path.join(where["environment"], contents.site())
    path = [where["program"], site, *(environ["PYTHONPATH"].split(os.pathsep) if environ.get("PYTHONPATH") else [])]
    os.execve(python, [python, "-c", _MAIN, *words], {**environ, "PYTHONPATH": os.pathsep.join(path)})


def _from_copy(program: Sequence[str], folder: str) -> list[str]:
    """The words of the program that begin with its copy."""
    if program[0] == "-c":
        return list(program)
    if program[0] == "-m":
        return ["-c", _MODULE.format(program[1]), *program[2:]]
    return [os.path.join(folder, os.path.basename(os.path.realpath(program[0]))), *program[1:]]
