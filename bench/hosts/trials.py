"""A job on hosts made of namespaces, what happens to it there, and what is left of it on each host."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from dstorm.transports.progress import OPENMPI_YIELD

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests"))  # host_network
LAUNCHER = "a"
"""The host of `malt run`."""
YIELD = {OPENMPI_YIELD: "1"}
"""What `malt run` sets where ranks share the cores of a host. Here hosts share them, which it cannot see."""
LONGEST_S = 120.0
"""A job that takes longer hangs."""
_REACHED = "until ssh -oBatchMode=yes -oConnectTimeout=2 {} true; do sleep 0.2; done"
_POLL_S, _LOOK_S, _READ_S = 0.02, 0.25, 5.0
_REPORT, _LIMIT_S = "/tmp/report.json", 300
"""The file of a program's JSON on its host, and how long the program may take."""
_AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")

Left = Mapping[str, Sequence[str]]
"""By host: command lines of processes, files in /dev/shm and /tmp, and ports that somebody listens at."""
KILL_ALL = """
for p in $(ps -e -o pid=); do
    [ $p = 1 ] || [ $p = $$ ] || [ $p = $(cat /run/sshd.pid) ] || kill -KILL $p 2>/dev/null || :
done
"""
"""Kills all processes of a host but the first, and the ssh daemon that listens."""


@contextlib.contextmanager
def sharing_cores() -> Iterator[None]:
    """Let Linux share the cores of this machine among all threads, not among sessions first, until the end. Local.

    The ranks of each host are a session. Where the threads of one yield, those of others may not run for a second
    (measured with Linux 6.18), which hosts with cores of their own do not know.
    """
    before = _AUTOGROUP.read_text() if _AUTOGROUP.exists() else ""
    try:
        if before:
            _AUTOGROUP.write_text("0")
        yield
    finally:
        if before:
            _AUTOGROUP.write_text(before)


def missing_hosts() -> str:
    """Why there can be no such hosts on this machine, or ""."""
    from host_network import missing  # of tests/, with pytest, as tests use it

    return str(missing())


@contextlib.contextmanager
def hosts(names: str) -> Iterator[Any]:
    """Hosts of these names, joined by a network, until the end. Local."""
    from host_network import HostNetwork

    network = HostNetwork(names)
    try:
        yield network
    finally:
        network.close()


@contextlib.contextmanager
def linked_hosts(names: str, mbit: int = 0, delay_ms: int = 0, loss_percent: int = 0) -> Iterator[Any]:
    """Hosts that each have a core of its own, as far as there are enough, until the end. Local.

    `mbit`: of the link of each host. `delay_ms`, `loss_percent`: of the way to the last host, and back. 0: as it is.
    """
    with hosts(names) as network:
        for name in names if mbit else "":
            network.rate(name, mbit)
        if delay_ms:
            network.late(names[-1], delay_ms, loss_percent)
        own_cores(network)
        yield network


def own_cores(network: Any) -> None:
    """Let each host of `network` have a core of its own, as far as there are enough. Local."""
    cores = sorted(os.sched_getaffinity(0))
    for place, name in enumerate(network.names):
        network.on_core(name, cores[place % len(cores)])


def report(network: Any, python: str, ranks: int, module: str, *words: object, hosts: str = "") -> Any:
    """The JSON that the program `module` writes on so many ranks of host a, or on each of `hosts`.

    RuntimeError: it failed.
    """
    where = ("--hosts", ",".join(f"{name}:{ranks}" for name in hosts)) if hosts else ()
    job = ["-m", "malt", "run", "-n", ranks * len(hosts or LAUNCHER), *where, "-m", module, *words, "--json", _REPORT]
    done = network.run(LAUNCHER, python, *map(str, job), folder=ROOT, limit_s=_LIMIT_S)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(network.shell(LAUNCHER, f"cat {_REPORT}; rm {_REPORT}"))


def processes(network: Any, python: str, words: Sequence[str]) -> Any:
    """The JSON of a Python process on each host, which meet as those of torch.distributed. RuntimeError: one failed."""
    common = {"MASTER_ADDR": LAUNCHER, "MASTER_PORT": "29500", "WORLD_SIZE": str(len(network.names)),
              "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}  # fmt: skip
    started = [
        network.start(name, python, *words, "--json", _REPORT, folder=ROOT, environment={**common, "RANK": str(rank)})
        for rank, name in enumerate(network.names)
    ]
    errors = [one.communicate(timeout=_LIMIT_S)[1] for one in started]
    if any(one.returncode for one in started):
        raise RuntimeError("".join(errors))
    return json.loads(network.shell(LAUNCHER, f"cat {_REPORT}; rm {_REPORT}"))


class Job:
    """A job of bench.hosts.lockstep, whose `malt run` is on host a. `at`: its hosts and their ranks, as of --hosts."""

    def __init__(self, network: Any, python: str, at: str, steps: int, *options: str) -> None:
        self.ranks = sum(int(one.partition(":")[2]) for one in at.split(","))
        line = ["-m", "malt", "run", "-n", self.ranks, *options, "--hosts", at, "-m", "bench.hosts.lockstep", steps]
        self._lines: list[dict[str, Any]] = []
        self._errors: list[str] = []
        self._process = network.start(LAUNCHER, python, *map(str, line), folder=ROOT, environment=YIELD)
        self._readers = [
            threading.Thread(target=self._read, args=[self._process.stdout, self._note], daemon=True),
            threading.Thread(target=self._read, args=[self._process.stderr, self._errors.append], daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def errors(self) -> str:
        """What it has printed on stderr so far."""
        return "".join(self._errors)

    def said(self, what: str) -> list[dict[str, Any]]:
        """The lines of ranks that say it."""
        return [one for one in self._lines if what in one]

    def await_said(self, what: str, ranks: int) -> None:
        """Wait until so many ranks have said it. RuntimeError: they do not."""
        end = time.monotonic() + LONGEST_S
        while len(self.said(what)) < ranks:
            if time.monotonic() > end or not self._readers[0].is_alive():
                raise RuntimeError(f"{len(self.said(what))} of {ranks} ranks have {what}: {self.errors}")
            time.sleep(_POLL_S)

    def end(self) -> tuple[int | None, float]:
        """The status of `malt run`, and when it ended. None: it hangs, and is left to the network to end."""
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(LONGEST_S)
        ended = time.monotonic()
        if status is None:
            self._process.kill()
        for reader in self._readers:
            reader.join(_READ_S)
        return status, ended

    def _read(self, pipe: IO[str], note: Callable[[str], object]) -> None:
        with pipe:
            for line in pipe:
                note(line)

    def _note(self, line: str) -> None:
        self._lines += spoken(line)


def spoken(text: str) -> list[dict[str, Any]]:
    """The lines of JSON in what ranks have printed. Pure."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


def pause_s(ends: Iterable[Mapping[str, Any]], since: float) -> float:
    """How long after the time `since` ranks went on that it has held up: the end of the longest pause. Pure.

    `ends`: the last lines of these ranks.
    """
    pauses = [pause for one in ends for pause in one["pauses"] if pause[1] > since]
    return max(pauses, key=lambda pause: pause[1] - pause[0])[1] - since if pauses else 0.0


def left(network: Any, hosts: Iterable[str], kept: str = "") -> dict[str, list[str]]:
    """What is left of jobs on hosts now; those with nothing are left out. `kept`: a file that may stay."""
    each = {host: [*network.left(host), *_ports(network, host)] for host in hosts}
    return {host: rest for host, found in each.items() if (rest := [one for one in found if one != kept])}


def _ports(network: Any, host: str) -> list[str]:
    """The ports at which somebody but the ssh daemon listens."""
    places = [line.split()[3] for line in network.shell(host, "ss -Hltn").splitlines()]
    return [f"port {place}" for place in places if not place.endswith(":22")]


def until_clean(network: Any, hosts: Iterable[str], limit_s: float, kept: str = "") -> tuple[Left, float | None]:
    """What is left on hosts now, and the seconds until nothing is; None: it stays for `limit_s`."""
    began = time.monotonic()
    first = found = left(network, hosts, kept)
    while found:
        if time.monotonic() - began > limit_s:
            return found, None
        time.sleep(_LOOK_S)
        found = left(network, hosts, kept)
    return first, time.monotonic() - began if first else 0.0


Trial = Callable[[Any], dict[str, Any]]
"""A function that is given a network of hosts, and returns what was found."""


def side_by_side(trials: Sequence[Trial], names: str, networks: int) -> list[dict[str, Any]]:
    """What `trials` find, in their order, on so many networks of hosts of these names at once."""
    free: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def tried(trial: Trial) -> dict[str, Any]:
        network = free.get()
        try:
            network.end_jobs()
            for host in names:  # a link that was plugged in again takes a moment
                network.shell(LAUNCHER, _REACHED.format(host))
            return trial(network)
        finally:
            free.put(network)

    with contextlib.ExitStack() as opened, ThreadPoolExecutor(networks) as pool:
        for _ in range(min(networks, len(trials))):
            free.put(opened.enter_context(hosts(names)))
        return list(pool.map(tried, trials))
