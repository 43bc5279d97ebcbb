"""Ranks of two hosts, of which some are killed or stopped. The hosts are two network namespaces."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from failing_jobs import under_one_mpi
from two_hosts import APART, NAMESPACES, TOGETHER, need_namespaces

pytestmark = [pytest.mark.serial, under_one_mpi]
ROOT = Path(__file__).parents[2]
LIMIT_S = 200

PROGRAM = """
import os, signal, sys, time
import numpy as np
import malt

def stick(*_):
    while True: pass

signal.signal(signal.SIGUSR1, stick)
sync, seconds, suspect_after_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]) or None
world = malt.init(survive=True, suspect_after_s=suspect_after_s, deadline_s=float(sys.argv[4]))
v = malt.vector(20_000, sync=sync)
with open(f"draft-{malt.rank()}", "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, f"process-{malt.rank()}")
malt.barrier()
left, since, step, over = int(sys.argv[5]), None, 0, np.zeros(1)
while not over[0] > seconds:
    step += 1
    v.array[:] = step
    v.scatter()
    v.gather()
    assert (v.array == v.array[0]).all()
    time.sleep(0.01)
    if step % 10 == 0:
        if since is None and len(malt.alive()) <= left:
            since = time.time()
        over[:] = time.time() - since if since else 0.0
        world.transport.allreduce(over)
later = malt.vector(8, sync="bsp")
later.array[:] = 1 + malt.rank()
later.scatter()
merged = later.gather(malt.SUM).count
malt.barrier()
print(f"rank {malt.rank()} ends, alive {malt.alive()}, merged {merged}", flush=True)
"""
"""They go on for some seconds once so many are left."""

BLOCKS = """
import os, sys, time
import numpy as np
import malt

malt.init(survive=True, suspect_after_s=None, deadline_s=float(sys.argv[4]))
rounds, b = 100, malt.blocks(np.zeros((8, 500), np.float32), [1] * 8)
with open(f"draft-{malt.rank()}", "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, f"process-{malt.rank()}")
malt.barrier()
for number in range(rounds):
    while number == 90 and not os.path.exists("struck"):
        time.sleep(0.002)
    for visit in b.round():
        b.array[visit.rows] += 1
        time.sleep(0.002)
visits, alive = b.common(), malt.alive()
assert (visits == visits[:, :1]).all()
assert len(alive) * rounds <= visits.min() and visits.max() <= 4 * rounds, visits[:, 0]
print(f"rank {malt.rank()} ends, alive {alive}, merged {len(alive) - 1}", flush=True)
"""
"""Each visit of a rank that does not fail is in the rows."""

DIVIDED = """
import os, subprocess, sys, time
import malt
from malt import files

malt.init(survive=True, suspect_after_s=float(sys.argv[3]))
v = malt.vector(8, sync="asp")
with open(f"draft-{malt.rank()}", "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, f"process-{malt.rank()}")
malt.barrier()
start, is_cut = time.time(), False
while time.time() < start + float(sys.argv[2]):
    v.scatter()
    v.gather()
    alive = malt.alive()
    if alive[0] == malt.rank():
        files.write("checkpoint", lambda file: file.write(b"the job's"))
        with open(f"writes-{malt.rank()}", "a") as file:
            print(time.time() - start, *alive, file=file)
    if malt.rank() == 0 and not is_cut and time.time() > start + 1:
        is_cut = not subprocess.call(["ip", "link", "set", "veth0", "down"])
    time.sleep(0.1)
"""
"""The lowest rank that it knows of writes a file all the time. After a second nothing passes between the hosts."""


@pytest.fixture
def job(tmp_path, job_environment):
    """job(SYNC, SECONDS, SUSPECT_AFTER, DEADLINE, PROGRAM, HERE, THERE, LEFT): a running job; its processes by rank.

    The first HERE ranks are here, the THERE others there. By default they are two and two.
    """
    need_namespaces(tmp_path)
    # As under ssh, the other host gets only the variables that are passed on.
    kept = f"env -i PATH='{os.environ['PATH']}' HOME=/tmp PYTHONPATH='{ROOT}'"
    (tmp_path / "remote").write_text(f'#!/bin/sh\nexec {kept} ./agent "$@"\n')
    (tmp_path / "remote").chmod(0o755)
    started = []

    def run(sync, seconds, suspect_after_s, deadline_s=300, program=PROGRAM, here=2, there=2, left=4):
        (tmp_path / "program.py").write_text(program)
        arguments = sync, seconds, suspect_after_s, deadline_s, left
        hosts = f"here:{here},10.77.0.2:{there}"
        words = ["-m", "malt", "run", "-n", f"{here + there}", "--survive=best-effort", "--hosts", hosts, "program.py"]
        environment = job_environment | TOGETHER | APART
        environment |= {"PYTHONPATH": str(ROOT), "PRTE_MCA_plm_ssh_agent": "./remote"}
        environment |= {"HYDRA_LAUNCHER_EXEC": "./remote"}
        process = subprocess.Popen(
            [*NAMESPACES, sys.executable, *words, *map(str, arguments)],
            cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        started.append(process)
        files = [tmp_path / f"process-{rank}" for rank in range(here + there)]
        end = time.monotonic() + LIMIT_S
        while not all(file.exists() for file in files):
            assert process.poll() is None and time.monotonic() < end, process.communicate()[0]
            time.sleep(0.02)
        return process, [int(file.read_text()) for file in files]

    yield run
    for process in started:
        process.terminate()
        process.communicate()


def check(process, lost):
    """Check that the other ranks have ended well and report those in `lost`."""
    reports, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, reports
    rest = tuple(rank for rank in range(4) if rank not in lost)
    ends = re.findall(r"rank (\d) ends, alive (\(.*\)), merged (\d)", reports)
    assert sorted(ends) == [(str(rank), str(rest), str(len(rest) - 1)) for rank in rest], reports
    assert set(re.findall(r"rank (\d) is lost", reports)) == {str(rank) for rank in lost}, reports
    return reports


@pytest.mark.thorough(but="[3]-asp")
@pytest.mark.parametrize(("lost", "sync"), [([3], "asp"), ([0, 1], "bsp")], ids=str)
def test_the_others_go_on(lost, sync, job):
    process, numbers = job(sync, 0.5, 0, left=4 - len(lost))
    time.sleep(0.5)  # they are at work
    for rank in lost:
        os.kill(numbers[rank], signal.SIGKILL)
    check(process, lost)


@pytest.mark.thorough
def test_the_others_go_on_with_the_blocks(job, tmp_path):
    process, numbers = job("", 0, 0, program=BLOCKS)
    time.sleep(0.5)  # they are at work, or wait before the last rounds
    for rank in (0, 1):
        os.kill(numbers[rank], signal.SIGKILL)
    (tmp_path / "struck").touch()
    check(process, [0, 1])


@pytest.mark.thorough
def test_a_job_whose_ranks_have_all_failed_has_failed(job):
    process, numbers = job("bsp", 0, 0, left=0)
    for number in numbers:
        os.kill(number, signal.SIGKILL)
    process.communicate(timeout=LIMIT_S)
    # The first may be one of the other host, whose launcher is another: of it nobody here knows how it ended.
    assert process.returncode in (1, 128 + signal.SIGKILL)


@pytest.mark.thorough
def test_a_stopped_rank_is_ended_by_a_rank_of_its_host(job):
    process, numbers = job("bsp", 0.5, 0, left=3)
    time.sleep(0.5)
    os.kill(numbers[2], signal.SIGSTOP)
    check(process, [2])


@pytest.mark.thorough
def test_a_stalled_rank_is_ended_also_where_none_of_its_host_can(job):
    process, numbers = job("bsp", 0.5, 0, 4, left=2)  # on a busy machine a second is short for one at work, too
    for rank in (2, 3):
        os.kill(numbers[rank], signal.SIGUSR1)
    reports = check(process, [2, 3])
    assert re.search(r"rank 3 is lost: it made no malt call for \d+ s while others waited for it", reports), reports


@pytest.mark.thorough
@pytest.mark.parametrize("wakes_up", [True, False])
def test_a_stopped_host_is_given_up(wakes_up, job):
    process, numbers = job("bsp", 5, 2, left=2)
    time.sleep(0.5)
    for rank in (2, 3):
        os.kill(numbers[rank], signal.SIGSTOP)
    if wakes_up:
        time.sleep(4)
        for rank in (2, 3):
            os.kill(numbers[rank], signal.SIGCONT)
    reports = check(process, [2, 3])
    leaving = sorted(re.findall(r"malt: rank (\d) leaves: ", reports))
    assert set(leaving) <= ({"2", "3"} if wakes_up else set()), reports
    assert leaving or not wakes_up  # its mate may have ended one of them


@pytest.mark.thorough
@pytest.mark.parametrize(("here", "there", "goes_on"), [(1, 1, {0}), (1, 2, {1, 2})])
def test_where_the_network_divides_a_job_one_side_writes(here, there, goes_on, job, tmp_path):
    process, _ = job("", 14, 2, 300, DIVIDED, here, there)
    reports, _ = process.communicate(timeout=60)  # the launcher hears the end of the ranks there, by ssh, and no report
    writes = {
        rank: [line.split() for line in file.read_text().splitlines()]
        for rank in range(here + there) if (file := tmp_path / f"writes-{rank}").exists()
    }  # fmt: skip
    last = {rank: float(lines[-1][0]) for rank, lines in writes.items()}
    assert [rank for rank, at in last.items() if at > 8] == [min(goes_on)], (last, reports)
    assert set(map(int, writes[min(goes_on)][-1][1:])) == goes_on, reports
    begun = min(float(line[0]) for line in writes[min(goes_on)] if len(line) == 1 + len(goes_on))
    assert all(at < begun for rank, at in last.items() if rank not in goes_on), (begun, last)
    assert (process.returncode == 0) == (0 in goes_on), reports
    assert 0 in goes_on or "ended on host 10.77.0.2, and how is not known" in reports
