"""The program of a rank as code: a file of Python, its compiled form, or a folder or archive with a __main__ in it.

malt/runner/program.py loads this module by its path, so it imports nothing of malt.
"""

from __future__ import annotations

import io
import os
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import MAGIC_NUMBER, module_from_spec
from pkgutil import get_importer, read_code  # as runpy does
from types import CodeType, ModuleType
from typing import Any

_COMPILED = ".pyc"


def refusal(path: str) -> str:
    """Return why `path` cannot be run, in a line; "" where it can. Nothing of it is run. Local."""
    if not os.path.exists(path):
        return f"no such file: {path} (a module is run with -m)"
    if _is_searched(path):
        return "" if _spec(path) is not None else f"no __main__.py in {path}"
    if not os.path.isfile(path) or path.startswith(("/dev/", "/proc/")):
        return f"{path} is not a file that each rank can read: write the program to one"
    if path.endswith(_COMPILED) and _start(path) != MAGIC_NUMBER:
        return f"{path} is compiled for another Python than this one: run its source"
    return ""


def folder(path: str) -> str:
    """Return where modules of the program `path` lie: what Python puts first into sys.path. Local."""
    return os.path.join(os.getcwd(), path) if _is_searched(path) else os.path.dirname(os.path.realpath(path))


def load(path: str) -> tuple[CodeType, ModuleType]:
    """The code of `path`, and the module in which it is to be run, as plain Python has them. Local.

    OSError, SyntaxError. ImportError: a folder or archive has no __main__.
    """
    if _is_searched(path):
        spec = _spec(folder(path))
        if spec is None:
            raise ImportError(f"can't find '__main__' module in {path!r}")
        loader: Any = spec.loader  # of a folder or of an archive: both have get_code
        return loader.get_code(spec.name), module_from_spec(spec)
    module = ModuleType("__main__")
    module.__file__ = os.path.abspath(path)
    with io.open_code(module.__file__) as file:
        code = read_code(file)
        if code is None:
            file.seek(0)
            code = compile(file.read(), module.__file__, "exec", dont_inherit=True)
    return code, module


def _is_searched(path: str) -> bool:
    """Return whether Python finds modules in `path`, a folder or an archive: it then runs the one named __main__."""
    return get_importer(path) is not None


def _spec(path: str) -> ModuleSpec | None:
    """The module __main__ in a folder or archive, or None."""
    return PathFinder.find_spec("__main__", [path])


def _start(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(len(MAGIC_NUMBER))
