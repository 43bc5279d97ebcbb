"""Ranks on all hosts have the user's environment, and no command line shows what is in it."""

SECRET = "a secret; with 'quotes'\nand lines"
PROGRAM = """
import glob, os, malt
malt.init()
lines = b" ".join(open(name, "rb").read() for name in glob.glob("/proc/[0-9]*/cmdline"))
shown = ("a s" + "ecret").encode() in lines
print(malt.rank(), repr(os.environ.get("OWN")), os.environ.get("DISPLAY"), os.environ.get("TMPDIR"), shown, flush=True)
malt.barrier()
"""


def test_the_environment_is_the_same_on_all_hosts(hosts):
    own = {"OWN": SECRET, "DISPLAY": ":7", "TMPDIR": "/tmp"}
    done = hosts.malt("a", "-n", "3", "--hosts", "b:1,a:1,c:1", "-c", PROGRAM, environment=own)
    assert done.returncode == 0, done.stderr
    kept = repr(SECRET)
    assert sorted(done.stdout.splitlines()) == [
        f"0 {kept} None None False", f"1 {kept} :7 /tmp False", f"2 {kept} None None False",
    ]  # fmt: skip
    hosts.until_clean()
