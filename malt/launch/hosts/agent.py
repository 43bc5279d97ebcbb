"""The program that runs on each other host while a job does. The launcher sends its text over ssh, so it imports
nothing of malt. It first looks at what the job needs there, and at the end leaves nothing of the job there.

It reads lines of JSON, [command, value], from standard input, and answers each by [command, value]:

check   what the job needs of this host; answers what is there
reach   endpoints of hosts, by name; answers the names of those to which no connection can be made
watch   the folder of the job; makes it, and sends each report that a rank writes there (malt/runner/reporting.py)
key     the folder of the job, a name and a text; makes that file there, which none but its user may read
pause   the launcher is stopped (Ctrl-Z), and will say nothing until the next line
clean   kills what is left of the job, removes its files, and answers how many processes it has killed
end     ends

Every 2 s it sends a line. Where the launcher says nothing for SILENCE_S, or closes the connection, it ends the job on
this host by itself: the link to the launcher is down, or the launcher was killed.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import glob
import hashlib
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

PULSE_S, SILENCE_S = 2.0, 30.0
_POLL_S, _CONNECT_S, _MPI_S, _KILLED_S, _CLOSES_S, _NOTE_S = 0.1, 2.5, 60.0, 5.0, 1.0, 0.5
REPORT = re.compile(r"(finished|status)-\d+|rank-\d+\.txt")
_DAEMONS = "prted", "orted", "hydra_pmi_proxy", "hydra_bstrap_proxy"
_SHM, _SHM_OF_MPI = "/dev/shm/", ("sm_segment.", "osc_sm.", "vader_segment.", "mpich_shm_")
_HWLOC_OF_HYDRA = "/tmp/hydra_hwloc_xmlfile_"
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
        with contextlib.suppress(OSError):
            while True:
                server.accept()[0].close()

    threading.Thread(target=take, daemon=True).start()
    return server, [addresses(), server.getsockname()[1]]


def unreached(endpoints: Mapping[str, Any]) -> list[str]:
    """The names in `endpoints` to which no connection can be made, in order."""
    reached: set[str] = set()

    def connect(name: str, address: str, port: int) -> None:
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), _CONNECT_S).close()
            reached.add(name)

    tries = [
        threading.Thread(target=connect, args=(name, address, port), daemon=True)
        for name, (several, port) in endpoints.items()
        for address in several
    ]
    for one in tries:
        one.start()
    for one in tries:
        one.join()
    return sorted(set(endpoints) - reached)


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


class Traces:
    """The files that MPI makes for ranks of this host, and leaves where it is killed: in /dev/shm, and of hydra."""

    def __init__(self, folder: str) -> None:
        self._folder, self._noted_at = folder, 0.0
        self._paths: set[str] = set()
        self._before = _files_of_mpich()

    def note(self) -> None:
        """Look which files there are, every half second. The ranks have reported their processes in the folder."""
        if time.monotonic() - self._noted_at < _NOTE_S:
            return
        self._noted_at = time.monotonic()
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):
                if re.fullmatch(r"started-\d+", name):
                    with open(os.path.join(self._folder, name)) as file:
                        self.note_process(int(file.read().split()[0]))

    def note_process(self, process: int) -> None:
        """Look which files a process has, and the daemon that started it."""
        self._paths |= _mapped(process)
        with contextlib.suppress(OSError):
            self._paths |= {path for path in _opened(int(_stat(str(process))[1])) if path.startswith(_HWLOC_OF_HYDRA)}

    def remove(self) -> None:
        """Remove what is left of them. No rank runs any more.

        A file that has come during the job, and that no process uses, is of a rank or daemon that ended before it was
        looked at: a live job uses its own.
        """
        end = time.monotonic() + _CLOSES_S
        while fresh := _files_of_mpich() - self._before - self._paths:
            processes = [int(word) for word in os.listdir("/proc") if word.isdecimal()]
            self._paths |= fresh.difference(*map(_mapped, processes), *map(_opened, processes))
            if time.monotonic() > end:
                break
            time.sleep(_POLL_S)
        for path in self._paths:
            with contextlib.suppress(OSError):
                os.unlink(path)


class Watch:
    """The folder of a job on this host. Where it is there already, the launcher is on this host or shares /tmp."""

    def __init__(self, folder: str, send: Callable[[list[Any]], None]) -> None:
        self._folder, self._send, self._traces = folder, send, Traces(folder)
        self._seen: set[str] = set()
        self.is_ours = False
        if not os.path.isdir(folder):
            os.makedirs(folder, mode=0o700)
            self.is_ours = True

    def pass_on(self) -> None:
        """Send the reports that have come since the last call."""
        if not self.is_ours:
            return
        self._traces.note()
        with contextlib.suppress(OSError):
            for name in sorted(set(os.listdir(self._folder)) - self._seen):
                if REPORT.fullmatch(name):
                    with open(os.path.join(self._folder, name), encoding="utf-8", errors="replace") as file:
                        self._send(["report", [name, file.read()]])
                self._seen.add(name)

    def end(self) -> int:
        """Kill the ranks of this host, the daemons of mpiexec that started them, and remove their files."""
        if not self.is_ours:
            return 0
        killed: set[int] = set()
        end = time.monotonic() + _KILLED_S
        while (found := self._processes()) and time.monotonic() < end:
            for process in found:
                self._traces.note_process(process)
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            killed |= found
            time.sleep(_POLL_S)
        self.pass_on()
        self._traces.remove()
        shutil.rmtree(self._folder, ignore_errors=True)
        return len(killed)

    def _processes(self) -> set[int]:
        """The processes of the job that run: those with its folder in their environment or command line."""
        mark, found = os.fsencode(self._folder), set[int]()
        for word in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                if not word.isdecimal() or int(word) == os.getpid() or _has_ended(word):
                    continue
                with open(f"/proc/{word}/environ", "rb") as file:
                    environ = file.read()
                with open(f"/proc/{word}/cmdline", "rb") as file:
                    line = file.read()
                if mark in environ or (mark in line and _name(word) in _DAEMONS):
                    found.add(int(word))
                    parent = _stat(word)[1]
                    if _name(parent) in _DAEMONS:
                        found.add(int(parent))
        return found


def _stat(process: str) -> list[str]:
    with open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


def _has_ended(process: str) -> bool:
    return _stat(process)[0] in "ZX"


def _name(process: str) -> str:
    with open(f"/proc/{process}/cmdline", "rb") as file:
        return os.path.basename(file.read().split(b"\0")[0].decode(errors="replace"))


def _files_of_mpich() -> set[str]:
    """The files by which ranks of MPICH on one host share memory, and those in which its daemons keep the topology."""
    return {*glob.glob(f"{_SHM}mpich_shm_*"), *glob.glob(f"{_HWLOC_OF_HYDRA}*")}


def _opened(process: int) -> set[str]:
    found, folder = set(), f"/proc/{process}/fd"
    with contextlib.suppress(OSError):
        for number in os.listdir(folder):
            with contextlib.suppress(OSError):
                found.add(os.readlink(os.path.join(folder, number)))
    return found


def _mapped(process: int) -> set[str]:
    """The files of MPI in shared memory that a process has mapped: others are the user's."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/maps") as file:
        paths = {line.split(None, 5)[5].rstrip("\n") for line in file if _SHM in line}
        return {path for path in paths if os.path.basename(path).startswith(_SHM_OF_MPI) and os.path.exists(path)}
    return set()


def keep(folder: str, name: str, text: str) -> None:
    """Make a file in the folder of the job, until the end of this agent. Where the folder is there, it is shared."""
    if not os.path.isdir(folder):
        os.makedirs(folder, mode=0o700)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        with open(os.open(os.path.join(folder, name), os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(text)


class Agent:
    """The conversation with the launcher."""

    def __init__(self) -> None:
        self._server, self._endpoint = listener()
        self._watch: Watch | None = None
        self._buffer = b""
        self._is_paused = False

    def send(self, line: list[Any]) -> None:
        with contextlib.suppress(OSError):
            sys.stdout.buffer.write(json.dumps(line).encode() + b"\n")
            sys.stdout.buffer.flush()

    def run(self) -> None:
        """Answer until the end of the job."""
        self.send(["hello", {"endpoint": self._endpoint, "host": os.uname().nodename}])
        heard = said = time.monotonic()
        while self._is_paused or time.monotonic() - heard < SILENCE_S:
            ready = select.select([0], [], [], _POLL_S)[0]
            if ready:
                data = os.read(0, 1 << 16)
                if not data:
                    break
                heard = time.monotonic()
                if self._take(data):
                    return
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
            self._is_paused = command == "pause"
            if command == "check":
                self.send([command, checked(value)])
            elif command == "reach":
                self.send([command, unreached(value)])
            elif command == "watch":
                self._server.close()  # all hosts have tried
                self._watch = Watch(value, self.send)
                self.send([command, self._watch.is_ours])
            elif command == "key":
                keep(*value)
                self.send([command, None])
            elif command == "clean":
                killed = self._watch.end() if self._watch is not None else 0
                self.send([command, killed])
                self._watch = None
            elif command == "end":
                return True
        return False


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    Agent().run()
