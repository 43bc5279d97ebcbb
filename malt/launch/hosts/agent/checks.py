"""Checks that the agent makes on its host before a job starts there. The agent is sent with this module: it imports
of malt only what it is sent with.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from dstorm.transports.links.addresses import own_addresses

_CONNECT_S, _MPI_S = 2.5, 60.0
_MAY_BE_UNSET = "PYTHON", "LD_", "OMPI_", "PRTE_", "PMIX_", "MPI4PY_"
"""The beginnings of variables that ranks get from the launcher alone."""


def kept() -> dict[str, str]:
    """The variables of this host that programs of the job have, beside those of the launcher."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_MAY_BE_UNSET)}


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


def listener() -> tuple[socket.socket, list[Any]]:
    """A socket that takes connections and closes them, and its endpoint: addresses and port."""
    server = socket.create_server(("", 0), backlog=128)

    def take() -> None:
        """Take connections and close them, until the socket is closed."""
        with contextlib.suppress(OSError):
            while True:
                server.accept()[0].close()

    threading.Thread(target=take, daemon=True).start()
    return server, [list(own_addresses()), server.getsockname()[1]]


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
    """Return which of the job's needs are met here. `wanted`: folder, files, package, probe and environment."""
    there = os.path.isdir(wanted["folder"])
    if there:
        os.chdir(wanted["folder"])
    found: dict[str, Any] = {
        "folder": there, "missing": [path for path in wanted["files"] if not os.access(path, os.R_OK)],
        "version": _version(wanted["package"]), "python": ".".join(map(str, sys.version_info[:2])),
        "sources": sources(wanted["package"]), "mpi": "", "trouble": "",
    }  # fmt: skip
    if wanted["probe"]:
        environ = {**kept(), **wanted["environment"], "PYTHONIOENCODING": "utf-8"}
        try:
            done = subprocess.run(
                [sys.executable, "-c", wanted["probe"]], env=environ, stdin=subprocess.DEVNULL, capture_output=True,
                encoding="utf-8", errors="replace", timeout=_MPI_S,
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
