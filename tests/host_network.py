"""Hosts on this machine, made of namespaces (tests/hosts/hosts.sh), on which tests start jobs."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SCRIPT = ROOT / "tests" / "hosts" / "hosts.sh"
_NEEDED = ("unshare", "nsenter", "ip", "sshd", "ssh", "ssh-keygen", "pgrep")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_READY_S, LIMIT_S = 60, 60


_PROCESSES = r"ps -e -o args= | grep -v -E 'sshd|^ps |hosts\.sh|^sleep |grep|^sh ' || :"
_FILES = "find /dev/shm /tmp -mindepth 1 -maxdepth 1 ! -name 'pytest*' ! -name hsperf*"
_KILL = """
for p in $(ps -e -o pid=); do
    [ $p = 1 ] || [ $p = $$ ] || [ $p = $(cat /run/sshd.pid) ] || kill -KILL $p 2>/dev/null
done
find /dev/shm /tmp -mindepth 1 -maxdepth 1 -exec rm -rf {} +
"""


def missing():
    """Why no such hosts can be made here, or ""."""
    if os.geteuid() != 0:
        return "hosts made of namespaces, each with an ssh daemon, need root"
    if ROOT.is_relative_to("/tmp"):
        return "hosts made of namespaces have a /tmp of their own each, and this checkout lies below /tmp"
    absent = [tool for tool in _NEEDED if shutil.which(tool, path=_PATH) is None]
    return f"hosts made of namespaces need {', '.join(absent)} (iproute2, openssh-server)" if absent else ""


class HostNetwork:
    """Hosts of these names, joined by a network."""

    def __init__(self, names):
        command = ["unshare", "--pid", "--mount", "--net", "--fork", "--kill-child", "--mount-proc", str(SCRIPT)]
        environment = {**os.environ, "PATH": _PATH}
        self.names = tuple(names)
        self._relays, self._cores, self._down = [], {}, set()
        self._is_clean = False
        """Whether nothing has been started since nothing was left on any host."""
        self._serve = subprocess.Popen(
            [*command, "serve", *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment, text=True,
        )  # fmt: skip
        if self._serve.stdout.readline() != "ready\n":
            self._serve.kill()
            pytest.skip(f"no hosts can be made of namespaces here: {self._serve.communicate()[1].strip()}")
        done = subprocess.run(["pgrep", "-P", str(self._serve.pid)], capture_output=True, text=True, check=True)
        self._first = done.stdout.split()[0]

    def words(self, *words):
        """The command line of hosts.sh inside the namespaces."""
        return ["nsenter", "-t", self._first, "-m", "-p", "-n", str(SCRIPT), *map(str, words)]

    def start(self, host, *words, folder="/", environment=None, **options):
        """Start a command on a host; its process here."""
        self._is_clean = False
        own = {"PATH": _PATH, "HOME": os.path.expanduser("~"), "LANG": "C.UTF-8", **(environment or {})}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        words = (*self._cores.get(host, ()), *words)
        return subprocess.Popen(self.words("in", host, folder, *words), env=own, **{**pipes, **options})

    def run(self, host, *words, limit_s=LIMIT_S, **options):
        """Run a command on a host to its end; a CompletedProcess, with the seconds that it took."""
        began = time.monotonic()
        with self.start(host, *words, **options) as process:
            try:
                output, errors = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"{words} ran for {limit_s} s: {process.communicate()}") from None
        done = subprocess.CompletedProcess(words, process.returncode, output, errors)
        done.seconds = time.monotonic() - began
        return done

    def shell(self, host, text):
        """What the text of a shell prints on a host, which must end well."""
        done = self.run(host, "sh", "-c", text)
        assert done.returncode == 0, (text, done.stderr)
        return done.stdout

    def malt(self, host, *words, **options):
        """Run `malt run WORDS` on a host to its end."""
        return self.run(host, sys.executable, "-m", "malt", "run", *words, **{"folder": ROOT, **options})

    def start_malt(self, host, *words, **options):
        """Start `malt run WORDS` on a host; its process here."""
        return self.start(host, sys.executable, "-m", "malt", "run", *words, **{"folder": ROOT, **options})

    def on_core(self, host, core):
        """Let all that is started on a host from now on run on this core of the machine alone."""
        self.shell(host, f"taskset -p -c {core} $(cat /run/sshd.pid)")
        self._cores[host] = ("taskset", "-c", str(core))

    def link(self, host, state):
        """Plug in the cable of a host (up), or pull it (down)."""
        (self._down.add if state == "down" else self._down.discard)(host)
        subprocess.run(self.words("link", host, state), check=True)

    def rate(self, host, mbit, burst_kb=64):
        """Hold the link of a host to so many Mbit/s, each way, but for so many KB after a rest."""
        subprocess.run(self.words("rate", host, mbit, burst_kb), check=True)

    def late(self, host, delay_ms, loss_percent):
        """Let all that a host sends and gets come so much later, with such losses, from now on."""
        relay = subprocess.Popen(self.words("late", host, delay_ms, loss_percent), stdout=subprocess.PIPE, text=True)
        self._relays.append(relay)
        assert relay.stdout.readline() == "ready\n", f"{host}: the relay has ended, with {relay.wait(_READY_S)}"

    def left(self, host):
        """What processes and files of jobs there are on a host: command lines, and paths."""
        return self.shell(host, f"{_PROCESSES}; {_FILES}").splitlines()

    def until_clean(self, limit_s=10.0, names=None):
        """Wait until nothing is left of jobs on these hosts, all by default. AssertionError: something stays."""
        end, pause_s = time.monotonic() + limit_s, 0.2
        while left := {host: found for host in names or self.names if (found := self.left(host))}:
            assert time.monotonic() < end, left
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, 1.0)
        self._is_clean = names is None

    def end_jobs(self):
        """Kill what still runs of jobs on all hosts, and remove their files: a test before has failed. Links are up."""
        for host in [*self._down]:
            self.link(host, "up")
        for host in () if self._is_clean else self.names:
            if self.left(host):
                self.shell(host, _KILL)

    def close(self):
        """End all, with what runs there."""
        self._serve.stdin.close()
        try:
            self._serve.wait(_READY_S)
        finally:
            self._serve.kill()
        for relay in self._relays:
            relay.wait(_READY_S)
            relay.stdout.close()
        for pipe in (self._serve.stdout, self._serve.stderr):
            pipe.close()
