"""The program of a job, as it is named to the launcher: what is meant, whether it is there, and which file it is."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec

from malt.launch.machine.mpi_library import LaunchError
from malt.runner import main_file

_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
"""What an interpreter is called."""
_BY_VARIABLES = "malt run accepts only -u, -m and -c of Python's options: for others set variables, as PYTHONOPTIMIZE=1"


def named(program: Sequence[str], is_module: bool) -> tuple[str, ...]:
    """Return PROGRAM ARGS..., -m MODULE ARGS... or -c CODE ARGS..., without this Python where it stands before. Local.

    LaunchError: another Python stands there, or an option of Python that ranks do not get; the current folder is gone,
    from which ranks start.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise LaunchError(f"the current folder is gone ({error.strerror}): cd to one that is there") from None
    if is_module:
        return ("-m", *program) if program else ()
    if not program or not _is_this_python(program[0]):
        return tuple(program)
    words = list(program[1:])
    while words[:1] == ["-u"]:  # ranks print whole lines at once anyway
        del words[0]
    if words and words[0][:2] in ("-m", "-c") and len(words[0]) > 2:
        words[:1] = [words[0][:2], words[0][2:]]
    if words and words[0].startswith("-") and words[0] not in ("-m", "-c"):
        raise LaunchError(f"{program[0]} {words[0]}: {_BY_VARIABLES}")
    return tuple(words)


def _is_this_python(word: str) -> bool:
    """Return whether `word` names the Python that ranks run. LaunchError: it names another one, with other packages."""
    if not _PYTHON.fullmatch(os.path.basename(word)) and word != sys.executable:
        return False
    if os.sep in word:
        if not (os.path.isfile(word) and os.access(word, os.X_OK)):
            return False
        is_this = _environment(word) == _environment(sys.executable)
    else:
        if not main_file.refusal(word):
            return False  # a program of that name is here
        major, minor = sys.version_info[:2]
        is_this = word in ("python", f"python{major}", f"python{major}.{minor}")
    if not is_this:
        raise LaunchError(f"{word} is not the Python of this malt, {sys.executable}: leave it out, or start the job by "
                          f"{word} -m malt run")  # fmt: skip
    return True


def _environment(python: str) -> tuple[str, str]:
    """The folder of the virtual environment of an interpreter, "" without one; and the file that it is."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    is_virtual = os.path.exists(os.path.join(folder, "pyvenv.cfg"))
    return os.path.realpath(folder) if is_virtual else "", os.path.realpath(python)


def check_program(program: Sequence[str]) -> None:
    """Raise LaunchError if `program` names no file or module: otherwise every rank would. Imports nothing."""
    if program[0] == "-c":
        if len(program) < 2:
            raise LaunchError("-c needs the text of a program")
    elif program[0] != "-m":
        if why := main_file.refusal(program[0]):
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
    main = _main_of(program[1])
    return (os.path.abspath(main.origin),) if main is not None and main.origin else ()


def _is_module(name: str) -> bool:
    """Return whether `python -m name` finds the module, judged by files: an import could start MPI in the launcher."""
    try:
        return _main_of(name) is not None
    except (ImportError, KeyError, ValueError):
        return True  # a namespace inside another needs the import: the ranks report the error, if there is one


def _main_of(name: str) -> ModuleSpec | None:
    """The module that `python -m name` runs: that, or __main__ of the package; None: there is none."""
    path, words = [os.getcwd(), *sys.path], name.split(".")
    for end in range(1, len(words) + 1):
        spec = _find(".".join(words[:end]), path)
        if spec is None or spec.submodule_search_locations is None:
            return spec if end == len(words) else None
        path = list(spec.submodule_search_locations)
    return _find(f"{name}.__main__", path)


def _find(name: str, path: list[str]) -> ModuleSpec | None:
    found = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)
