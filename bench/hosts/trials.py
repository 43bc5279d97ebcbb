"""A job on hosts made of namespaces, what happens to it there, and what is left of it on each host."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from dstorm.transports.progress import OPENMPI_YIELD

ROOT = Path(__file__).parents[2]
LAUNCHER = "a"
"""The host of `malt run`."""
YIELD = {OPENMPI_YIELD: "1"}
"""What `malt run` sets where ranks share the cores of a host. Here hosts share them, which it cannot see."""
LONGEST_S = 120.0
"""A job that takes longer hangs."""
_REACHED = "until ssh -oBatchMode=yes -oConnectTimeout=2 {} true; do sleep 0.2; done"
_POLL_S, _LOOK_S, _READ_S = 0.02, 0.25, 5.0
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


def own_cores(network: Any) -> None:
    """Let each host of `network` have a core of its own, as far as there are enough. Local."""
    cores = sorted(os.sched_getaffinity(0))
    for place, name in enumerate(network.names):
        network.on_core(name, cores[place % len(cores)])


class Job:
    """A job of bench.hosts.lockstep, whose `malt run` is on host a. `at`: its hosts and their ranks, as of --hosts."""

    def __init__(self, network: Any, python: str, at: str, words: Iterable[object], *options: str) -> None:
        ranks = sum(int(one.partition(":")[2]) for one in at.split(","))
        line = ["-m", "malt", "run", "-n", ranks, *options, "--hosts", at, "-m", "bench.hosts.lockstep", *words]
        self._lines: list[dict[str, Any]] = []
        self._errors: list[str] = []
        self.began = time.monotonic()
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
    from host_network import HostNetwork  # of tests/, with pytest, as tests use it

    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(trials)):
        waiting.put(number)
    found: dict[int, dict[str, Any]] = {}
    raised: list[BaseException] = []

    def work() -> None:
        network = None
        try:
            network = HostNetwork(names)
            while not raised:
                number = waiting.get_nowait()
                network.end_jobs()
                for host in names:  # a link that was plugged in again takes a moment
                    network.shell(LAUNCHER, _REACHED.format(host))
                found[number] = trials[number](network)
        except queue.Empty:
            pass
        except BaseException as error:
            raised.append(error)
        finally:
            if network is not None:
                network.close()

    workers = [threading.Thread(target=work) for _ in range(min(networks, len(trials)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if raised:
        raise raised[0]
    return [found[number] for number in range(len(trials))]


def middle_and_worst(seconds: Sequence[float]) -> tuple[float, float]:
    """The median and the maximum. Pure."""
    return statistics.median(seconds), max(seconds)
