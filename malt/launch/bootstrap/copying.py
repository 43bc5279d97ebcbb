"""The copy of an environment and a program to all hosts of a job, each to a folder that is named by its hash."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from malt.launch.bootstrap.contents import Contents
from malt.launch.hosts import findings
from malt.launch.hosts.shell import command_on
from malt.launch.hosts.source_text import START
from malt.launch.hosts.threads import Note, on_each
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

    LaunchError: a host cannot take it. Ctrl-C ends all copies.
    """
    wanted = {"folders": where, "python": _VERSION, "machine": platform.machine(), "working": os.getcwd()}

    def to(host: str, note: Note) -> str:
        """Copy to one host; return what is wrong, or ""."""
        words = command_on(shell, host, f"exec python3 -I -c {shlex.quote(START)}")
        own = [os.path.realpath(sys.executable), "-I", "-c", START]
        with _started(own if host == HERE else words, note) as process:
            return _copied(host, process, wanted, contents)

    for trouble in on_each([HERE, *hosts], to):
        if trouble:
            raise LaunchError(trouble)


@contextlib.contextmanager
def _started(words: Sequence[str], note: Note) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        note(partial(_kill, process))
        limit = threading.Timer(_COPY_S, process.kill)
        limit.daemon = True
        limit.start()
        try:
            yield process
        finally:
            limit.cancel()
            process.kill()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill it and what it has started: they would keep its pipes open."""
    if process.returncode is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def _copied(host: str, process: subprocess.Popen[bytes], wanted: dict[str, Any], contents: Contents) -> str:
    """Copy to one host; return what is wrong, or ""."""
    assert process.stdin and process.stdout and process.stderr
    hello = threading.Timer(_HELLO_S, process.kill)
    hello.daemon = True
    hello.start()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(_TEXT.read_bytes() + b"\0" + json.dumps(wanted).encode() + b"\n")
        process.stdin.flush()
    answer = _answer(process)
    hello.cancel()
    began = time.monotonic()
    if answer.get("missing"):
        with contextlib.suppress(BrokenPipeError):
            nbytes = _send(process, contents, answer["missing"])
        answer = _answer(process)
        if answer.get("missing") == []:
            seconds = time.monotonic() - began
            say(f"malt run: {nbytes / 1e6:,.0f} MB copied to {host or 'this host'} in {seconds:.1f} s\n")
    if answer.get("missing") == []:
        return ""
    name = f"host {host}" if host else "this host"
    if "trouble" in answer:
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


def _send(process: subprocess.Popen[bytes], contents: Contents, missing: Sequence[str]) -> int:
    """Write the archive of what is missing; return its bytes."""
    assert process.stdin
    nbytes = 0
    with tarfile.open(fileobj=process.stdin, mode="w|") as archive:
        for name in missing:
            for path, file in getattr(contents, name).items():
                entry = tarfile.TarInfo(f"{name}/{path}")
                entry.size, entry.mode = file.stat().st_size, file.stat().st_mode & 0o777
                nbytes += entry.size
                with open(file, "rb") as stream:
                    archive.addfile(entry, stream)
    process.stdin.close()
    return nbytes
