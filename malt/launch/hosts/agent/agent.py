"""The program that runs on each other host while a job does. The launcher sends its text over ssh, with that of the
modules of malt that it imports. It first looks at what the job needs there, and at the end leaves nothing of the job.

It reads lines of JSON, [command, value], from standard input, and answers each by [command, value]:

check   what the job needs of this host; answers what is there
reach   endpoints of hosts, by name; answers the names of those to which no connection can be made
reached all hosts have tried: from now on nothing listens here
watch   the folder of the job, and the identity of the launcher's host; makes it, and sends each report that a rank
        writes there (malt/runner/reporting.py); answers whose it is, or why it cannot be made
signal  a number: ranks here get that signal
pause   the launcher is stopped (Ctrl-Z), and will say nothing until the next line: stops the ranks until then; answers
clean   kills what is left of the job, removes its files, and answers how many processes it has killed
end     does the same without an answer, and ends

Every 2 s it sends a line. Where the launcher says nothing for SILENCE_S, or closes the connection, it ends the job on
this host by itself: the link to the launcher is down, or the launcher was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from dstorm.stopwatch import Stopwatch
from malt.launch.hosts.agent.watch import Watch

PULSE_S, SILENCE_S = 2.0, 30.0
_POLL_S, _CONNECT_S, _MPI_S = 0.1, 2.5, 60.0
_MAY_BE_UNSET = "PYTHON", "LD_", "OMPI_", "PRTE_", "PMIX_", "MPI4PY_"


def sources(package: str) -> str:
    """A digest of the Python files of malt, whose folder is `package`, and of what it is made of; "" without them."""
    digest, above = hashlib.sha256(), os.path.dirname(package)
    for name in ("dstorm", "vol", os.path.basename(package)):
        for folder, folders, files in sorted(os.walk(os.path.join(above, name))):
            folders.sort()
            for file in sorted(one for one in files if one.endswith(".py")):
                path = os.path.join(folder, file)
                with open(path, "rb") as stream:
                    digest.update(os.path.relpath(path, above).encode() + b"\0" + stream.read())
    return digest.hexdigest() if os.path.isdir(package) else ""


def addresses() -> list[str]:
    """The IPv4 addresses of this host, without those of the loopback."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # this interface has none
                request = struct.pack("256s", name.encode()[:15])
                found.append(socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), 0x8915, request)[20:24]))  # SIOCGIFADDR
    return [address for address in found if not address.startswith("127.")]


def listener() -> tuple[socket.socket, list[Any]]:
    """A socket that takes connections and closes them, and its endpoint: addresses and port."""
    server = socket.create_server(("", 0), backlog=128)

    def take() -> None:
        """Take connections and close them, until the socket is closed."""
        with contextlib.suppress(OSError):
            while True:
                server.accept()[0].close()

    threading.Thread(target=take, daemon=True).start()
    return server, [addresses(), server.getsockname()[1]]


def close(server: socket.socket) -> None:
    """Close a socket of `listener`: it takes no more connections. Without a shutdown its thread keeps it open."""
    with contextlib.suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)
    server.close()


def unreached(endpoints: Mapping[str, Any]) -> list[str]:
    """The names in `endpoints` to which no connection can be made, in order."""
    return sorted(set(endpoints) - reached(endpoints).keys())


def reached(endpoints: Mapping[str, Any]) -> dict[str, list[str]]:
    """The addresses in `endpoints` to which a connection can be made, by name."""
    found: dict[str, list[str]] = {}
    finding = threading.Lock()

    def connect(name: str, address: str, port: int) -> None:
        """Note the address where a connection can be made to it."""
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), _CONNECT_S).close()
            with finding:
                found.setdefault(name, []).append(address)

    tries = [
        threading.Thread(target=connect, args=(name, address, port), daemon=True)
        for name, (several, port) in endpoints.items()
        for address in several
    ]
    for one in tries:
        one.start()
    for one in tries:
        one.join()
    return found


def checked(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What there is of what the job needs. `wanted`: folder, files, package, probe and environment."""
    there = os.path.isdir(wanted["folder"])
    if there:
        os.chdir(wanted["folder"])
    found: dict[str, Any] = {
        "folder": there, "missing": [path for path in wanted["files"] if not os.access(path, os.R_OK)],
        "version": _version(wanted["package"]), "python": ".".join(map(str, sys.version_info[:2])),
        "sources": sources(wanted["package"]), "mpi": "", "trouble": "",
    }  # fmt: skip
    if wanted["probe"]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_MAY_BE_UNSET)}
        environ = {**kept, **wanted["environment"]}
        try:
            done = subprocess.run(
                [sys.executable, "-c", wanted["probe"]], env=environ, stdin=subprocess.DEVNULL, capture_output=True,
                text=True, timeout=_MPI_S,
            )  # fmt: skip
            found["mpi"] = done.stdout.partition("\n")[2] if done.returncode == 0 else ""
            found["trouble"] = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it failed"])[-1]
        except (OSError, subprocess.TimeoutExpired) as error:
            found["trouble"] = str(error)
    return found


def _version(package: str) -> str:
    with contextlib.suppress(OSError), open(os.path.join(package, "__init__.py")) as file:
        match = re.search(r'^__version__ = "(.*)"', file.read(), re.M)
        return match[1] if match else "unknown"
    return ""


class Agent:
    """The conversation with the launcher."""

    def __init__(self) -> None:
        self._server, self._endpoint = listener()
        self._watch: Watch | None = None
        self._buffer = b""
        self._is_paused = False

    def send(self, line: list[Any]) -> None:
        """Send a line to the launcher, unless the connection has ended."""
        with contextlib.suppress(OSError):
            sys.stdout.buffer.write(json.dumps(line).encode() + b"\n")
            sys.stdout.buffer.flush()

    def run(self) -> None:
        """Answer until the end of the job."""
        self.send(["hello", {"endpoint": self._endpoint, "host": os.uname().nodename}])
        said, silence = time.monotonic(), Stopwatch()
        while self._is_paused or silence.seconds() < SILENCE_S:
            ready = select.select([0], [], [], _POLL_S)[0]
            if ready:
                data = os.read(0, 1 << 16)
                if not data:
                    break
                has_ended = self._take(data)
                silence.restart()  # after a command that has taken long, too
                if has_ended:
                    break
            if self._watch is not None:
                self._watch.pass_on()
            if time.monotonic() - said > PULSE_S:
                self.send(["alive", None])
                said = time.monotonic()
        if self._watch is not None:
            self._watch.end()

    def _take(self, data: bytes) -> bool:
        """Answer the commands in what was read. Returns whether the job has ended."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            command, value = json.loads(line)
            self._pause(command == "pause")
            if command == "check":
                self.send([command, checked(value)])
            elif command == "reach":
                self.send([command, unreached(value)])
            elif command == "reached":
                close(self._server)
            elif command == "watch":
                self.send([command, self._begin_watch(*value)])
            elif command == "pause":
                self.send([command, None])
            elif command == "signal" and self._watch is not None:
                self._watch.send_ranks(value)
            elif command == "clean":
                killed = self._watch.end() if self._watch is not None else 0
                self.send([command, killed])
                self._watch = None
            elif command == "end":
                return True
        return False

    def _pause(self, is_paused: bool) -> None:
        if self._watch is not None and is_paused != self._is_paused:
            self._watch.send_ranks(signal.SIGSTOP if is_paused else signal.SIGCONT)
        self._is_paused = is_paused

    def _begin_watch(self, folder: str, launcher: list[Any]) -> dict[str, str]:
        try:
            self._watch = Watch(folder, launcher, self.send)
        except OSError as error:
            return {"trouble": error.strerror or str(error)}
        return {"owner": self._watch.owner, "trouble": ""}


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    Agent().run()
