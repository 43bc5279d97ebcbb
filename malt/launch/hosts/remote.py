"""The other hosts of a job: they are examined before it starts, watched while it runs, and left clean at its end."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dstorm.waits.stopwatch import Stopwatch
from malt import __version__
from malt.launch.environment import travelling
from malt.launch.hosts import findings
from malt.launch.hosts.agent import checks
from malt.launch.hosts.agent.agent import SILENCE_S
from malt.launch.hosts.agent.watch import OWN, SHARED, identity
from malt.launch.hosts.connection import Connection, Silent, suspend
from malt.launch.hosts.findings import Need
from malt.launch.hosts.reachability import Probe
from malt.launch.hosts.shell import remote_shell
from malt.launch.machine.mpi_library import PROBE, PROBE_TIMEOUT_S, LaunchError, Library
from malt.launch.streams.display import say
from malt.runner.events import SENT, Event, Stream, event, parsed

_PORT_RANGES = (
    "PRTE_MCA_oob_tcp_dynamic_ipv4_ports", "OMPI_MCA_btl_tcp_port_min_v4", "MPIEXEC_PORT_RANGE", "UCX_TCP_PORT_RANGE",
    "MPICH_PORT_RANGE", "I_MPI_PORT_RANGE",
)  # fmt: skip
_PACKAGE = str(Path(__file__).parents[2])
"""The folder of malt."""
HELLO_S, _REACH_S, _CLEAN_S = 9.0, 5.0, 10.0
"""How long the answers may take. _CLEAN_S counts from the last line of an agent on."""
_ASK_S, CUT_OFF_S = 3.0, 6.0
"""When a host that says nothing is asked whether its network answers; and after which time it is cut off if not."""
_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
"""Where the folder of a job is made if the hosts share TMPDIR, or some have no such folder."""


class Unreachable(LaunchError):
    """No agent can be started on a host."""


class RemoteHosts:
    """The hosts of a job but this one. `names`: theirs; without any all calls do nothing.

    `environ`: that of the launcher. `family`: of the MPI library; None: the ranks use none.

    LaunchError: there is no ssh.
    """

    def __init__(
        self, names: Sequence[str] = (), environ: Mapping[str, str] = os.environ, python: str = sys.executable,
        family: str | None = "openmpi",
    ) -> None:  # fmt: skip
        self._connections: list[Connection] = []
        self._folder = Path()
        self.add: Callable[[Event], object] = bool
        """Called, by a thread, with each event that is reported of ranks there. By default it is that of another stream
        of the job's folder."""
        self._own: set[str] = set()
        """The hosts whose agents have made the folder of the job there."""
        self._cut_off: str | None = None
        self._is_watching = False
        self._unheard: list[str] = []
        """The hosts that have not answered at the end of the job before: their agents end by themselves."""
        self._python = python
        self._shell = shell = remote_shell(environ, family)
        try:
            for name in names:
                self._connections.append(Connection(name, shell, python))
        except BaseException as error:
            self.close()
            if not isinstance(error, OSError):
                raise
            raise LaunchError(f"cannot start {shell[0]}: {error.strerror}: install an ssh client") from None

    def check(self, need: Need, environ: Mapping[str, str]) -> None:
        """Look whether the job can start there. `environ`: that of the launcher. LaunchError: it cannot."""
        self._answers("hello", HELLO_S)
        probe = PROBE if need.library is not None else ""
        wanted = {"folder": need.folder, "files": need.files, "package": _PACKAGE, "probe": probe,
                  "environment": {name: environ[name] for name in travelling(environ)}}  # fmt: skip
        self._ask("check", wanted)
        found = self._answers("check", PROBE_TIMEOUT_S + _REACH_S)
        if why := next(filter(None, (findings.of_host(host, need, found[host]) for host in found)), ""):
            raise LaunchError(why)
        if not any(name in environ for name in _PORT_RANGES):  # else a firewall may pass these ports alone
            self._reach({host: answer["endpoint"] for host, answer in found.items()})
        self._ask("reached")

    def _reach(self, endpoints: Mapping[str, Any]) -> None:
        """Try all connections between hosts. `endpoints`: those of the others. LaunchError: one cannot be made."""
        server, endpoint = checks.listener()
        try:
            endpoints = {os.uname().nodename: endpoint, **endpoints}
            for one in self._connections:
                one.ask("reach", {host: where for host, where in endpoints.items() if host != one.host})
            others = {host: where for host, where in endpoints.items() if where != endpoint}
            reached = checks.reached(others)
            unreached: dict[str, Any] = {os.uname().nodename: sorted(others.keys() - reached.keys())}
            for one in self._connections:
                one.probe = Probe(reached.get(one.host, ()), endpoints[one.host][1])
            unreached |= self._answers("reach", _REACH_S)
        finally:
            checks.close(server)
        if why := findings.of_network(unreached):
            raise LaunchError(why)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._connections)

    @contextlib.contextmanager
    def folder(self, is_watched: bool = True) -> Iterator[Path]:
        """A block with the folder of a job, which each host has for itself. At its end nothing is left of the ranks.

        Where not `is_watched`, those on other hosts are left to who has started them
        (malt/launch/hosts/plain/remote_ranks.py).
        LaunchError: a host does not answer, or there is no place for such a folder.
        """
        why = ""
        others = [above for above in _FOLDERS if os.access(above, os.W_OK | os.X_OK)] if self else []
        for above in dict.fromkeys([tempfile.gettempdir(), *others]):
            with tempfile.TemporaryDirectory(prefix="malt-", dir=above) as name:
                self._connect_anew()
                trouble = self._watch(Path(name)) if self else ""
                try:
                    if not trouble:
                        self._is_watching = is_watched and bool(self)
                        yield Path(name)
                        return
                finally:
                    self.clean()
            why = why or trouble
        raise LaunchError(why)

    def _watch(self, folder: Path) -> str:
        """Have `folder` made and watched on each host; return why it cannot be, or "". LaunchError: no answer."""
        self._folder, self._cut_off, self._is_watching, self.add = folder, None, True, Stream(folder).add
        for one in self._connections:
            one.take = self._take
        self._ask("watch", [str(folder), identity()])
        answers = self._answers("watch", _REACH_S)
        self._own = {host for host, answer in answers.items() if answer.get("owner") == OWN}
        for host, answer in answers.items():
            if answer["trouble"] or answer["owner"] == SHARED:
                return findings.of_folder(host, str(folder.parent), answer["trouble"])
        return ""

    def _connect_anew(self) -> None:
        """Start agents on the hosts that have not answered at the end of the job before. LaunchError: no answer."""
        for host in self._unheard:
            self._answer(self.connected_anew(host)[0], "hello", Stopwatch(), HELLO_S)
        self._unheard = []

    def connected_anew(self, host: str) -> tuple[Connection, bool]:
        """Another connection to `host` in place of the one that there was; whether the agent of that has made the
        folder of the job there."""
        before = self.connection(host)
        before.close()
        made = self._connections[self._connections.index(before)] = Connection(host, self._shell, self._python)
        made.probe = before.probe
        return made, host in self._own

    def connection(self, host: str) -> Connection:
        """The connection to `host`."""
        return next(one for one in self._connections if one.host == host)

    def give_up(self, host: str) -> None:
        """End the connection to `host`. The next job has another one."""
        self.connection(host).close()
        self._unheard.append(host)

    def clean(self) -> None:
        """End what is left of the job there, once its last reports have come. Says which hosts do not answer."""
        if not self._is_watching:
            return
        self._is_watching = False
        self._unheard = self._clean()
        for host in self._unheard:
            say(f"malt run: host {host} does not answer: what is left of the job there ends by itself within "
                f"{SILENCE_S:.0f} s\n")  # fmt: skip

    def cut_off(self) -> str | None:
        """Return a host that has not been heard of for too long, or None.

        It is CUT_OFF_S where its network does not answer either, and else SILENCE_S: its processes may be busy.
        """
        silent = [one.host for one in self._connections if not one.is_open or _is_cut_off(one)]
        self._cut_off = self._cut_off or next(iter(silent), None)
        return self._cut_off

    def why_cut_off(self) -> str:
        """Return how the host that is cut off was lost. Local."""
        one = self.connection(self._cut_off or "")
        if not one.is_open:
            return f"the connection to host {one.host} has ended"
        return f"nothing was heard of host {one.host} for {one.silence.seconds():.0f} s, by a link that is down, say"

    def suspend(self, number: int) -> None:
        """Do as `malt.launch.hosts.connection.suspend` with these hosts."""
        suspend(self._connections, number)

    def send_signal(self, number: int) -> bool:
        """Have the ranks on these hosts get a signal. Returns True."""
        self._ask("signal", number)
        return True

    def close(self) -> None:
        """End the connections."""
        self._ask("end")
        for one in self._connections:
            one.close()

    def _clean(self) -> list[str]:
        """End what is left of the job there. Returns the hosts that do not answer: they end it by themselves."""
        orphaned = [one.host for one in self._connections if not one.is_open and one.host in self._own]
        for host in orphaned:  # its agent was killed, say
            self.connected_anew(host)
        limits_s = {
            one: 0.0 if one.host == self._cut_off not in orphaned else max(0.0, _CLEAN_S - one.silence.seconds())
            for one in self._connections
        }
        self._ask("clean", str(self._folder))
        waited, silent = Stopwatch(), []
        for one in self._connections:
            try:
                one.answer("clean", waited, limits_s[one])
            except Silent:
                silent.append(one.host)
        return silent

    def _ask(self, command: str, value: object = None) -> None:
        for one in self._connections:
            one.ask(command, value)

    def _answers(self, command: str, limit_s: float) -> dict[str, dict[str, Any]]:
        """The answers by host, within `limit_s`. LaunchError: one has none."""
        waited = Stopwatch()
        return {one.host: self._answer(one, command, waited, limit_s) for one in self._connections}

    def _answer(self, one: Connection, command: str, waited: Stopwatch, limit_s: float) -> dict[str, Any]:
        try:
            found: dict[str, Any] = one.answer(command, waited, limit_s)
            return found
        except Silent:
            raise Unreachable(findings.of_shell(one.host, *one.ended(), self._python)) from None

    def _take(self, command: str, value: Any) -> bool:
        """Take a report of a rank, which has come over a connection. Returns whether it is one."""
        if command != "report":
            return False
        came = parsed(value)
        if came is not None and came.kind in SENT:
            self.add(event(came.kind, came.rank, came.text))
        return True


def _is_cut_off(one: Connection) -> bool:
    silent_s = one.silence.seconds()
    if silent_s < _ASK_S:
        one.probe.forget()
        return False
    return (one.probe.ask() and silent_s > CUT_OFF_S) or silent_s > SILENCE_S


def need(library: Library | None, files: Sequence[str]) -> Need:
    """Return what a job of this Python needs of each host. `library`: the MPI of its ranks, if they use one. Local."""
    return Need(
        os.getcwd(), tuple(files), sys.executable, ".".join(map(str, sys.version_info[:2])), __version__,
        checks.sources(_PACKAGE), library,
    )  # fmt: skip
