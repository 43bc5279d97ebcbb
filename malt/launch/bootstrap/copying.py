"""The copy of an environment and a program to all hosts of a job, each to a folder that is named by its hash."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from malt.launch.bootstrap.contents import Contents
from malt.launch.hosts import findings
from malt.launch.hosts.shell import command_on
from malt.launch.hosts.source_text import START
from malt.launch.hosts.threads import on_each
from malt.launch.machine.mpi_library import LaunchError
from malt.launch.streams.display import say

_TEXT = Path(__file__).with_name("unpack.py")
_COPY_S, _HELLO_S = 900.0, 10.0
"""How long the copy to a host may take, and its first answer."""
_VERSION = ".".join(map(str, sys.version_info[:2]))
HERE = ""
"""This host."""


def folders(contents: Contents, environ: Mapping[str, str]) -> dict[str, str]:
    """Return where the copies of the environment and of the program lie, on all hosts. Local."""
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    found = {"environment": contents.environment, "program": contents.program}
    return {name: os.path.join(cache, "malt", f"{name}-{_digest(files)}") for name, files in found.items()}


def _digest(files: Mapping[str, Path]) -> str:
    digest = hashlib.sha256(f"{_VERSION} {platform.machine()}".encode())
    for path, file in sorted(files.items()):
        own = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"\0{path}\0{os.access(file, os.X_OK)}\0{own}".encode())
    return digest.hexdigest()[:16]


def copy(hosts: Sequence[str], shell: Sequence[str], contents: Contents, where: Mapping[str, str]) -> None:
    """Copy to all `hosts` at once what they lack, and to this one. `shell`: as of `remote_shell`.

    LaunchError: a host cannot take it.
    """
    wanted = {"folders": where, "python": _VERSION, "machine": platform.machine(), "working": os.getcwd()}

    def to(host: str) -> str:
        """Copy to one host; return what is wrong, or ""."""
        words = command_on(shell, host, f"exec python3 -I -c {shlex.quote(START)}")
        own = [os.path.realpath(sys.executable), "-I", "-c", START]
        with (
            subprocess.Popen(
                own if host == HERE else words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,
            ) as process,
            _limited(process, _COPY_S),
        ):  # fmt: skip
            try:
                return _copied(host, process, wanted, contents)
            finally:
                process.kill()

    for trouble in on_each([HERE, *hosts], to):
        if trouble:
            raise LaunchError(trouble)


@contextlib.contextmanager
def _limited(process: subprocess.Popen[bytes], seconds: float) -> Iterator[None]:
    """A block in which the process is killed after so many seconds."""
    limit = threading.Timer(seconds, process.kill)
    limit.daemon = True
    limit.start()
    try:
        yield
    finally:
        limit.cancel()


def _copied(host: str, process: subprocess.Popen[bytes], wanted: dict[str, Any], contents: Contents) -> str:
    """Copy to one host; return what is wrong, or ""."""
    assert process.stdin and process.stderr
    with _limited(process, _HELLO_S):
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(_TEXT.read_bytes() + b"\0" + json.dumps(wanted).encode() + b"\n")
            process.stdin.flush()
        answer = _answer(process)
    if answer.get("missing"):
        began, nbytes = time.monotonic(), 0
        with contextlib.suppress(BrokenPipeError):
            nbytes = _send(process.stdin, contents, answer["missing"])
        answer = _answer(process)
        if answer.get("missing") == []:
            seconds = time.monotonic() - began
            say(f"malt run: {nbytes / 1e6:,.0f} MB copied to {host or 'this host'} in {seconds:.1f} s\n")
    if answer.get("missing") == []:
        return ""
    if "trouble" in answer:
        name = f"host {host}" if host else "this host"
        return f"{name}: {answer['trouble']} (--bootstrap copies to XDG_CACHE_HOME, else ~/.cache)"
    errors = process.stderr.read().decode(errors="replace")
    status = process.wait()
    return findings.of_shell(host, status if status >= 0 else None, errors, "python3 in its PATH")


def _answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout
    for line in process.stdout:
        with contextlib.suppress(ValueError):  # what a shell prints at login
            answer = json.loads(line)
            if isinstance(answer, dict):
                return answer
    return {}


def _send(pipe: IO[bytes], contents: Contents, missing: Sequence[str]) -> int:
    """Write the archive of what is missing; return its bytes."""
    nbytes = 0
    with pipe, tarfile.open(fileobj=pipe, mode="w|", dereference=True) as archive:
        for name in missing:
            for path, file in getattr(contents, name).items():
                entry = archive.gettarinfo(file, f"{name}/{path}")
                nbytes += entry.size
                with open(file, "rb") as stream:
                    archive.addfile(entry, stream)
    return nbytes
