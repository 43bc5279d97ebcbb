"""`malt run --bootstrap`: a host without malt, this checkout and its environment, that has python3 and sshd."""

import sys
from pathlib import Path

import pytest
from host_network import ROOT

PROGRAM = """
import os, sys, malt, beside
malt.init()
where = [os.path.realpath(malt.__file__), os.path.realpath(beside.__file__), os.getcwd()]
same = len(set(map(tuple, malt.allgather(where)))) == 1
print(malt.rank(), malt.size(), os.uname().nodename, beside.NUMBER, same, sys.argv[1:], flush=True)
"""
CACHE = Path.home() / ".cache" / "malt"
"""Each host has its own."""


@pytest.fixture
def bare(hosts):
    """The hosts, of which b has neither this checkout nor malt."""
    version = hosts.shell("b", "python3 -c 'import sys; print(*sys.version_info[:2])'").split()
    if version != [str(number) for number in sys.version_info[:2]]:
        pytest.skip(f"python3 of the system is {'.'.join(version)}, and the environment is made for another")
    hosts.shell("b", f"mount -t tmpfs tmpfs {ROOT}")
    yield hosts
    hosts.shell("b", f"umount {ROOT}; rm -rf {CACHE}")
    hosts.shell("a", f"rm -rf {CACHE}")


@pytest.mark.thorough
def test_a_host_without_malt(bare):
    write = f"mkdir /tmp/own; cd /tmp/own; echo NUMBER = 7 > beside.py; cat > train.py <<'end'\n{PROGRAM}\nend"
    words = [sys.executable, "-m", "malt", "run", "-n", "2", "--bootstrap", "--hosts", "a:1,b:1", "train.py", "x"]
    bare.shell("a", write)
    for copies in (2, 0):  # the second time all is there
        done = bare.run("a", *words, folder="/tmp/own", limit_s=200)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == ["0 2 a 7 True ['x']", "1 2 b 7 True ['x']"]
        assert done.stderr.count(" MB copied to ") == copies, done.stderr
    modes = bare.shell("b", f"stat -c %a {CACHE} {CACHE}/*; ls {CACHE} | wc -l")
    assert modes.split() == ["700", "700", "700", "2"]
    bare.shell("b", f"chmod 777 {CACHE}")
    done = bare.run("a", *words, folder="/tmp/own", limit_s=200)
    assert done.returncode == 2 and done.stderr.startswith(f"malt run: host b: others may write to {CACHE}: ")
    assert done.stderr.count("\n") == 1
    bare.shell("a", "rm -r /tmp/own")
    bare.shell("b", "rm -r /tmp/own")
    bare.until_clean()
