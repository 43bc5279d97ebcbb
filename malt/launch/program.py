"""The program of a job, as it is named to the launcher: whether it is there, and which file it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec

from malt.launch.mpi_library import LaunchError
from malt.runner import mainfile


def check_program(program: Sequence[str]) -> None:
    """Raise LaunchError if `program` names no file or module: otherwise every rank would. Imports nothing."""
    if program[0] == "-c":
        if len(program) < 2:
            raise LaunchError("-c needs the text of a program")
    elif program[0] != "-m":
        if why := mainfile.refusal(program[0]):
            raise LaunchError(why)
    elif len(program) < 2:
        raise LaunchError("-m needs the name of a module")
    elif not all(program[1].split(".")) or not _is_module(program[1]):
        raise LaunchError(f"no module named {program[1]} that can be run, for {sys.executable} in {os.getcwd()}")


def files_of(program: Sequence[str]) -> tuple[str, ...]:
    """Return the absolute path of the file or folder that `program` names, if it is known without an import. Local."""
    if program[0] == "-c":
        return ()
    if program[0] != "-m":
        return (os.path.abspath(program[0]),)
    path: list[str] = [os.getcwd(), *sys.path]
    parts = program[1].split(".")
    for end in range(1, len(parts) + 1):
        spec = _find(".".join(parts[:end]), path)
        if spec is None:
            return ()
        path = list(spec.submodule_search_locations or ())
    main = _find(f"{program[1]}.__main__", path) if path else spec
    return (os.path.abspath(main.origin),) if main is not None and main.origin else ()


def _is_module(name: str) -> bool:
    """Whether `python -m name` finds the module, judged by the files: an import could start MPI in the launcher."""
    path = [os.getcwd(), *sys.path]
    try:
        for end in range(1, name.count(".") + 2):
            spec = _find(".".join(name.split(".")[:end]), path)
            if spec is None:
                return False
            if spec.submodule_search_locations is None:
                return end == name.count(".") + 1
            path = list(spec.submodule_search_locations)
        return _find(f"{name}.__main__", path) is not None
    except (ImportError, KeyError, ValueError):
        return True  # a namespace inside another needs the import: the ranks report the error, if there is one


def _find(name: str, path: list[str]) -> ModuleSpec | None:
    found = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)
