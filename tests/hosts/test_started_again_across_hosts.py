"""Ranks on other hosts that fail are started again (`malt run --rejoin`), by programs that begin no session."""

from __future__ import annotations

import re
import time

import pytest

BEGINS = """
import os, signal, sys, time
rank, life = os.environ["MALT_RANK"], os.environ.get("MALT_INCARNATION", "0")
print("life", rank, life, os.uname().nodename, flush=True)
"""
FAILS = BEGINS + "if rank == '1' and life == '0':\n    os.kill(os.getpid(), signal.SIGKILL)\n"
FAILS += "time.sleep(0.5 if rank == '1' else 8)\nprint('ends', rank, life)"
LIVES = BEGINS + "if rank == '0':\n    sys.exit()\ntime.sleep(25 if life == '0' else 1)\nprint('ends', rank, life)"


def words(at, program):
    return ["-n", "3", "--survive=best-effort", "--rejoin", "--hosts", at, "-c", program]


@pytest.mark.thorough
def test_a_rank_on_another_host_is_started_again_there(hosts):
    done = hosts.malt("a", *words("a:1,b:2", FAILS))
    assert done.returncode == 0, done.stderr
    assert {"life 1 0 b", "life 1 1 b", "ends 0 0", "ends 1 1", "ends 2 0"} < {*done.stdout.splitlines()}
    assert "malt: rank 1 failed (killed by SIGKILL), started again (1st time)\n" in done.stderr
    hosts.until_clean()


@pytest.mark.thorough
def test_so_it_is_where_the_launcher_is_cut_off_and_all_ends_with_the_ranks(hosts):
    process = hosts.start_malt("a", *words("a:1,b:2", LIVES))
    for _ in range(3):
        assert process.stdout.readline().startswith("life")
    hosts.link("a", "down")
    _, errors = process.communicate(timeout=60)
    place = re.search(r"ranks 1, 2 may go on on host b, and print to (\S+) there", errors)
    assert process.returncode == 1 and place, errors
    hosts.shell("b", "pkill -KILL -o -f 'runner/[p]rogram.py'")
    end = time.monotonic() + 60
    while len(re.findall("^ends", printed := hosts.shell("b", f"cat {place[1]}"), re.M)) < 2:
        assert time.monotonic() < end, printed
        time.sleep(0.2)
    assert re.search("^ends . 1$", printed, re.M) and re.search("^ends . 0$", printed, re.M), printed
    hosts.shell("b", f"rm -r $(dirname {place[1].partition('*')[0]}x)")
    hosts.link("a", "up")
    hosts.until_clean(60)
