"""The other hosts of a job: they are examined before it starts, watched while it runs, and left clean at its end."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from malt import __version__
from malt.launch.hosts import agent, findings
from malt.launch.hosts.connection import Connection, Silent, remote_shell
from malt.launch.hosts.findings import Need
from malt.launch.hosts.variables import travelling
from malt.launch.mpi_library import PROBE, PROBE_TIMEOUT_S, LaunchError, Library
from malt.launch.streams.display import say
from malt.runner import reporting

_PORT_RANGES = (
    "PRTE_MCA_oob_tcp_dynamic_ipv4_ports", "OMPI_MCA_btl_tcp_port_min_v4", "MPIEXEC_PORT_RANGE", "UCX_TCP_PORT_RANGE",
    "MPICH_PORT_RANGE", "I_MPI_PORT_RANGE",
)  # fmt: skip
_PACKAGE = str(Path(__file__).parents[2])
"""The folder of malt."""
HELLO_S, _REACH_S, _CLEAN_S, _PAUSES_S = 9.0, 5.0, 8.0, 0.1


class Unreachable(LaunchError):
    """No agent can be started on a host."""


class RemoteHosts:
    """The hosts of a job but this one. `names`: theirs; without any all calls do nothing.

    `environ`: that of the launcher. LaunchError: there is no ssh.
    """

    def __init__(
        self, names: Sequence[str] = (), environ: Mapping[str, str] = os.environ, python: str = sys.executable
    ) -> None:  # fmt: skip
        self._connections: list[Connection] = []
        self._folder = Path()
        self._cut_off: str | None = None
        self._is_watching = False
        self._python = python
        shell = remote_shell(environ)
        try:
            for name in names:
                self._connections.append(Connection(name, shell, python))
        except OSError as error:
            self.close()
            raise LaunchError(f"cannot start {shell[0]}: {error.strerror}: install an ssh client") from None

    def check(self, need: Need, environ: Mapping[str, str]) -> None:
        """Look whether the job can start there. `environ`: that of the launcher. LaunchError: it cannot."""
        end = time.monotonic() + HELLO_S
        hellos = self._answers("hello", end)
        wanted = {"folder": need.folder, "files": need.files, "package": _PACKAGE, "probe": PROBE,
                  "environment": {name: environ[name] for name in travelling(environ)}}  # fmt: skip
        self._ask("check", wanted)
        found = self._answers("check", time.monotonic() + PROBE_TIMEOUT_S)
        _raise_first(findings.of_host(host, need, found[host]) for host in found)
        if any(name in environ for name in _PORT_RANGES):  # a firewall may pass these ports alone
            return
        server, endpoint = agent.listener()
        endpoints = {os.uname().nodename: endpoint, **{host: hello["endpoint"] for host, hello in hellos.items()}}
        for one in self._connections:
            one.ask("reach", {host: where for host, where in endpoints.items() if host != one.host})
        others = {host: where for host, where in endpoints.items() if where != endpoint}
        unreached: dict[str, Any] = {os.uname().nodename: agent.unreached(others)}
        unreached |= self._answers("reach", time.monotonic() + _REACH_S)
        server.close()
        _raise_first([findings.of_network(unreached)])

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._connections)

    @contextlib.contextmanager
    def watching(self, folder: Path | None) -> Iterator[None]:
        """A block in which ranks there report to `folder`, that of the job. At its end nothing is left of them there.

        Without a folder they are left to themselves.

        LaunchError: a host does not answer.
        """
        if folder is None:
            yield
            return
        self._folder, self._cut_off, self._is_watching = folder, None, True
        self._ask("watch", str(folder))
        self._answers("watch", time.monotonic() + _REACH_S)
        try:
            yield
        finally:
            self.clean()

    def share_key(self, folder: Path) -> None:
        """Have the file KEY of `folder`, that of the job, written there, too. It is removed with the connection.

        LaunchError: a host does not answer.
        """
        self._ask("key", [str(folder), reporting.KEY, (folder / reporting.KEY).read_text(encoding="utf-8")])
        self._answers("key", time.monotonic() + _REACH_S)

    def clean(self) -> None:
        """End what is left of the job there, and take the last reports. Says which hosts do not answer."""
        if not self._is_watching:
            return
        self._is_watching = False
        for host in self._clean():
            say(f"malt run: host {host} does not answer: within {agent.SILENCE_S:.0f} s it ends by itself what is "
                "left of the job there\n")  # fmt: skip

    def processes(self) -> list[int]:
        """The processes of the connections, on this host."""
        return [one.process for one in self._connections]

    def cut_off(self) -> str | None:
        """Return a host that has not been heard of for too long, or None. Writes down what ranks have reported."""
        self._take_reports()
        silent = (one.host for one in self._connections if time.monotonic() - one.heard_at > agent.SILENCE_S)
        self._cut_off = self._cut_off or next(silent, None)
        return self._cut_off

    def pausing(self, suspend: Callable[[int], None]) -> Callable[[int], None]:
        """Return suspend(number), before which the agents are asked to wait while this process is stopped."""

        def pause_and_suspend(number: int) -> None:
            if self._connections and number == signal.SIGSTOP:
                self._ask("pause")
                time.sleep(_PAUSES_S)
            suspend(number)
            if number == signal.SIGCONT:
                for one in self._connections:
                    one.heard_at = time.monotonic()
                    one.ask("alive")

        return pause_and_suspend

    def close(self) -> None:
        """End the connections."""
        self._ask("end")
        for one in self._connections:
            one.close()

    def _clean(self) -> list[str]:
        """End what is left of the job there. Returns the hosts that do not answer: they end it by themselves."""
        self._ask("clean")
        end, silent = time.monotonic() + _CLEAN_S, []
        for one in self._connections:
            try:
                one.answer("clean", end)
            except Silent:
                silent.append(one.host)
        self._take_reports()
        return silent

    def _ask(self, command: str, value: object = None) -> None:
        for one in self._connections:
            one.ask(command, value)

    def _answers(self, command: str, end: float) -> dict[str, dict[str, object]]:
        """The answers by host. LaunchError: one has none."""
        found = {}
        for one in self._connections:
            try:
                found[one.host] = one.answer(command, end)
            except Silent:
                raise Unreachable(findings.of_shell(one.host, *one.ended(), self._python)) from None
        return found

    def _take_reports(self) -> None:
        for one in self._connections:
            with contextlib.suppress(queue.Empty, OSError):
                while True:
                    name, text = one.reports.get_nowait()
                    if agent.REPORT.fullmatch(name):
                        reporting.write(self._folder / name, text)


def _raise_first(complaints: Iterable[str]) -> None:
    """Raise LaunchError with the first that is not empty, if there is one."""
    for complaint in complaints:
        if complaint:
            raise LaunchError(complaint)


def need(library: Library, files: Sequence[str]) -> Need:
    """Return what a job of this Python needs of each host. Local."""
    return Need(
        os.getcwd(), tuple(files), sys.executable, ".".join(map(str, sys.version_info[:2])), __version__,
        agent.sources(_PACKAGE), library,
    )  # fmt: skip
