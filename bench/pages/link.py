"""Two hosts on this machine, joined by a link of so many bits a second: network namespaces, for one command each."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

FIRST, SECOND = "10.77.0.1", "10.77.0.2"
"""The addresses of the hosts, each at its eth0."""
_HOSTS = """
set -e
unshare --net --uts sh -c 'hostname there; echo $$ > there.part; mv there.part there; exec sleep 9999' >&2 &
trap "kill $!" EXIT
hostname here
for i in 1 2 3 4 5 6 7 8 9 10; do test -s there || sleep 0.1; done
there="nsenter --target $(cat there) --net --uts"
ip link add eth0 type veth peer name eth0 netns $(cat there)
ip address add {first}/24 dev eth0
$there ip address add {second}/24 dev eth0
for host in "" "$there"; do
    $host ip link set eth0 up
    $host ip link set lo up
    $host tc qdisc add dev eth0 root tbf rate {mbit}mbit burst 64kb latency 100ms
done
printf '#!/bin/sh\\nshift\\nexec %s sh -c "$*"\\n' "$there" > agent
chmod +x agent
"$@"
"""
"""Runs its arguments on a host called here, from which `./agent there COMMAND` runs a command on the other."""


def missing(mbit: int) -> str | None:
    """Why there can be no such link on this machine; None: there can."""
    try:
        run(mbit, "true")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no link of {mbit} Mbit/s: it needs unshare, nsenter, ip and tc, and the right to use them ({error})"
    return None


def run(mbit: int, *words: str, **environment: str) -> None:
    """Run a command on the first host, whose folder has `./agent`. CalledProcessError: it failed."""
    with tempfile.TemporaryDirectory() as folder:
        script = _HOSTS.format(first=FIRST, second=SECOND, mbit=mbit)
        hosts = ["unshare", "--map-root-user", "--net", "--uts", "sh", "-c", script, "link"]
        paths = {"PYTHONPATH": str(Path(__file__).parents[2])}
        subprocess.run([*hosts, *words], cwd=folder, env={**os.environ, **paths, **environment}, check=True)


def run_malt(mbit: int, *words: str) -> None:
    """Run `malt run` with a rank on each host. Open MPI alone is used so. CalledProcessError: it failed."""
    hosts = f"here:1,{SECOND}:1"
    run(
        mbit, sys.executable, "-m", "malt", "run", "-n", "2", "--hosts", hosts, *words, PRTE_MCA_plm_ssh_agent="./agent"
    )


def run_pair(mbit: int, words: list[str], common: Mapping[str, str], own: list[dict[str, str]]) -> None:
    """Run a Python command on each host, in the environment `common` and its `own`. CalledProcessError: one failed."""
    first, second = (
        shlex.join(["env", *(f"{name}={value}" for name, value in one.items()), sys.executable, *words]) for one in own
    )
    both = f"./agent there {shlex.quote(second)} & {first} && wait $!"
    run(mbit, "sh", "-c", both, **common)
