"""Finds what a program needs of this environment: its own files, and the distributions that it imports."""

from __future__ import annotations

import ast
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path

OWN = "malt"
_PACKAGES = "dstorm", "vol", OWN

DATA_NBYTES = 64 << 20
"""The most bytes of data in a package of the program that are copied with it."""
_EXTRAS = {"kernels": "apps", "models": "apps"}
"""The extra of malt that its package needs, where it has not the same name."""


@dataclass
class Contents:
    """The files to copy: a path in the copy, and the file here."""

    program: dict[str, Path] = field(default_factory=dict)
    """Those of the program, with paths below its folder."""
    environment: dict[str, Path] = field(default_factory=dict)
    """Those of the environment, with paths below its prefix."""


def of(starts: Iterable[Path], text: str, folder: Path, mpi: str) -> Contents:
    """Return what the program that begins with the files or folders `starts`, or a text, needs. Local.

    `folder`: where its modules lie.

    Modules of the program are found by what its files import, anywhere in them; names that are made up at run time are
    not. `mpi`: the distribution of the MPI library. Files that are neither are taken to be on all hosts.
    """
    found, names = Contents(), {OWN}
    waiting: list[Path | None] = [*starts, None]
    while waiting:
        file = waiting.pop()
        if file is not None and file.is_dir():
            waiting += _below(file)
            continue
        if file is not None:
            path = file.relative_to(folder).as_posix()
            if path in found.program:
                continue
            found.program[path] = file
            text = _text(file)
        for name in imported(text):
            own = _own(folder, name.split(".")[0])
            waiting += own
            if not own:
                names |= _distributions(name)
    for name in closure({*names, mpi}):
        found.environment |= _files(name)
    return found


def imported(text: str) -> set[str]:
    """The modules that a program names in its import statements, with dots. Pure. A text that is no Python: none."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return found


def closure(names: Iterable[str]) -> set[str]:
    """The distributions of these names that are installed, and what they require. An extra is `name[extra]`. Local."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name, _, extra = waiting.pop().rstrip("]").partition("[")
        for required in _required(name, extra):
            if required not in found:
                waiting.append(required)
        found.add(_normal(name))
    return {name for name in found if _installed(name)}


def _required(name: str, extra: str) -> Iterator[str]:
    for line in (_installed(name) and metadata.requires(name)) or ():
        needed, _, marker = line.partition(";")
        wanted = re.search(r"extra\s*==\s*['\"]([^'\"]*)", marker)
        match = re.match(r"[A-Za-z0-9._-]+", needed)
        if match and (wanted is None or wanted[1] == extra) and _installed(match[0]):
            yield _normal(match[0])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return False
    return True


def _distributions(module: str) -> set[str]:
    """The distributions that have a module; for malt.torch and malt.sklearn what they need beside malt."""
    words = module.split(".")
    if words[0] == OWN:
        return {f"{OWN}[{_EXTRAS.get(words[1], words[1])}]"} if len(words) > 1 else set()
    if words[0] in sys.stdlib_module_names:
        return set()
    return set(_by_module().get(words[0], ()))


@cache
def _by_module() -> Mapping[str, Sequence[str]]:
    return metadata.packages_distributions()


def _text(file: Path) -> str:
    """The text of a file of Python, or of those in an archive; "" of others."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            texts = [archive.read(name) for name in archive.namelist() if name.endswith(".py")]
    else:
        texts = [file.read_bytes()] if file.suffix == ".py" else []
    return "\n".join(text.decode(errors="replace") for text in texts)


def _own(folder: Path, name: str) -> list[Path]:
    """The files of a module of the program, or of its package; [] where the name is of none.

    A package brings data that lies in it, where that is little.
    """
    if (folder / f"{name}.py").is_file():
        return [folder / f"{name}.py"]
    package = folder / name
    return [] if name in (*_PACKAGES, "") or not (package / "__init__.py").is_file() else _below(package)


def _below(package: Path) -> list[Path]:
    """The files of a folder; of data in it only what is little."""
    files = [
        file for file in package.rglob("*")
        if not any(part[0] == "." or part == "__pycache__" for part in file.relative_to(package).parts)
        and file.is_file()
    ]  # fmt: skip
    brings_data = sum(file.stat().st_size for file in files if file.suffix != ".py") <= DATA_NBYTES
    return sorted(file for file in files if brings_data or file.suffix == ".py")


def _files(name: str) -> dict[str, Path]:
    """The files of a distribution, by their paths below the prefix. Scripts of the other Python stay here."""
    prefix = Path(os.path.realpath(sys.prefix))
    found = {}
    for file in metadata.distribution(name).files or ():
        path = Path(os.path.abspath(str(file.locate())))
        inside = os.path.relpath(os.path.realpath(path.parent), prefix)
        if not inside.startswith("..") and "__pycache__" not in path.parts and path.is_file() and not _is_script(path):
            found[f"{inside}/{path.name}"] = path
    if name == OWN:
        above = Path(__file__).parents[3]
        for package in _PACKAGES:
            found |= {f"{site()}/{path.relative_to(above)}": path for path in (above / package).rglob("*")
                      if path.is_file() and path.suffix in (".py", ".typed", ".json")}  # fmt: skip
        found = {path: file for path, file in found.items() if not path.endswith((".pth", "direct_url.json"))
                 and "__editable__" not in path}  # fmt: skip
    return found


def site() -> str:
    """The folder of this environment in which packages lie, below its prefix. Local."""
    folder = os.path.realpath(str(metadata.distribution("numpy").locate_file("")))
    return os.path.relpath(folder, os.path.realpath(sys.prefix))


def _is_script(path: Path) -> bool:
    if path.parent.name != "bin":
        return False
    with open(path, "rb") as file:
        return file.read(2) == b"#!"
