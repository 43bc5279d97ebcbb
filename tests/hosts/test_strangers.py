"""A job across hosts to which others connect: who does not know its key is sent away, and the key shows nowhere."""

from failing_jobs import under_one_mpi

PROGRAM = """
import glob, os, pathlib, socket, malt

with open("/proc/self/environ") as file:  # as it was at the start
    environ = dict(line.partition("=")[::2] for line in file.read().split("\\0"))
_, port, *addresses = environ["MALT_RECEPTION"].split()
key = pathlib.Path(environ["MALT_FAILURE_DIR"], "key")
assert key.stat().st_mode & 0o077 == key.parent.stat().st_mode & 0o077 == 0
secret = key.read_text().split()[0].encode()
strangers = [socket.create_connection((addresses[0], int(port)), 5) for _ in range(40)]
for stranger in strangers[::2]:
    stranger.sendall(b"GET / HTTP/1.1\\r\\n" + bytes(200))
malt.init()
v = malt.vector(8, sync="bsp")
for _ in range(5):
    v.scatter(), v.gather()
for path in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ"):
    try:
        assert secret not in pathlib.Path(path).read_bytes(), path
    except (FileNotFoundError, ProcessLookupError):
        pass
try:
    socket.create_connection(("127.0.0.1", int(port)), 5)
    assert False, "the control server listens everywhere"
except ConnectionRefusedError:
    pass
print(malt.rank(), len(secret), malt.alive(), addresses, flush=True)
"""


@under_one_mpi
def test_strangers_are_sent_away_and_the_key_shows_nowhere(hosts):
    done = hosts.malt("a", "-n", "3", "--survive=best-effort", "--hosts", "a:1,b:2", "-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    address = hosts.shell("a", "hostname -I || ip -4 -o addr show eth0").split()[0]
    assert sorted(done.stdout.splitlines()) == [f"{rank} 64 (0, 1, 2) ['{address}']" for rank in range(3)], done.stderr
    hosts.until_clean()
