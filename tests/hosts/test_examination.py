"""What keeps a job from starting on a host: one line, within ten seconds, before MPI starts."""

import re
import sys
import sysconfig
from pathlib import Path

import pytest
from failing_jobs import under_one_mpi
from programs import ROOT

LONGEST_S = 10.0
SSH_CONFIG = """
Host refused
    HostName b
    Port 9
Host unknown
    HostName b
    HostKeyAlias another
Host closed
    HostName b
    IdentityFile /no/such/key
    IdentitiesOnly yes
"""
SITE = sysconfig.get_paths()["purelib"]
CACHE = Path.home() / ".cache"
"""Each host has its own."""
OTHER_MALT = f"sed 's/^__version__ = .*/__version__ = \"9.9\"/' {ROOT}/malt/__init__.py > {CACHE}/other.py"


def refusal(hosts, *words):
    """The line in which a job is refused."""
    done = hosts.malt("a", "-n", "2", *words)
    assert done.returncode == 2 and done.stdout == "", done
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.seconds < LONGEST_S
    hosts.until_clean()
    return done.stderr


@under_one_mpi
@pytest.mark.thorough(but="unknown")
@pytest.mark.parametrize(("name", "what"), [
    ("nowhere", "its name is not known here: "),
    ("refused", "ssh is refused: start sshd there"),
    ("unknown", "its host key is not known here: ssh unknown once"),
    ("closed", "ssh asks for a password, or refuses this user: ssh-copy-id closed"),
], ids=["nowhere", "refused", "unknown", "closed"])  # fmt: skip
def test_hosts_that_ssh_does_not_come_to(name, what, hosts):
    hosts.shell("a", f"cat > ~/.ssh/config <<'end'\n{SSH_CONFIG}\nend")
    assert refusal(hosts, "--hosts", f"a:1,{name}:1", "-c", "").startswith(f"malt run: host {name}: {what}")


@pytest.mark.thorough
@pytest.mark.parametrize(("prepare", "restore", "what"), [
    (f"mount -t tmpfs tmpfs {Path(sys.executable).parent}", f"umount {Path(sys.executable).parent}",
     f"there is no Python {sys.executable}: install "),
    (f"mount -t tmpfs tmpfs {ROOT}/malt", f"umount {ROOT}/malt", "there is no malt where it is here: "),
    (f"{OTHER_MALT}; mount --bind {CACHE}/other.py {ROOT}/malt/__init__.py", f"umount {ROOT}/malt/__init__.py",
     "malt is 9.9 there, and .* here: install the same version"),
    (f"mount -t tmpfs tmpfs {SITE}/mpi4py", f"umount {SITE}/mpi4py", "no MPI in .*; pip install "),
    ("ip route add unreachable 10.99.7.3", "ip route del unreachable 10.99.7.3", ""),
], ids=["Python", "malt", "version", "MPI", "network"])  # fmt: skip
def test_hosts_that_are_not_alike(prepare, restore, what, hosts):
    hosts.shell("b", prepare)
    try:
        line = refusal(hosts, "--hosts", "b:1,c:1", "-c", "")
    finally:
        hosts.shell("b", restore)
    assert re.match(f"malt run: host b: {what}" if what else "malt run: host [bc] cannot connect to [bc]: ", line), line


@under_one_mpi
@pytest.mark.thorough
def test_files_that_a_host_lacks(hosts):
    hosts.shell("a", f"touch {CACHE}/program.py {CACHE}/data")
    line = refusal(hosts, "--hosts", "a:1,b:1", f"{CACHE}/program.py")
    assert line.startswith(f"malt run: host b: there is no file {CACHE}/program.py: ")
    line = refusal(hosts, "--hosts", "a:1,b:1", "--need", f"{CACHE}/data", "-c", "")
    assert line.startswith(f"malt run: host b: there is no file {CACHE}/data: ")
    hosts.shell("a", f"rm {CACHE}/program.py {CACHE}/data")
