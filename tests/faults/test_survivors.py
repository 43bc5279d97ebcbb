"""What ranks of real jobs that go on see of one that has failed or departed."""

import gzip
import json
import re

import pytest
from documents import EXAMPLES, small
from failing_jobs import Job, under_one_mpi
from programs import ROOT

pytestmark = pytest.mark.serial


AGAIN = """
import os, signal, malt
malt.init(survive=True)
if malt.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
malt.barrier()
v = malt.vector(4, sync="bsp")
for _ in range(5):
    v.scatter()
    v.gather()
try:
    v.scatter(to=1)
except malt.PeerLost as error:
    print("lost", error.rank, flush=True)
malt.finalize()
malt.init(survive=True)
v = malt.vector(4, sync="bsp")
v.scatter()
v.gather()
print("again", malt.alive(), sorted(malt.init().failures.lost), flush=True)
"""


@under_one_mpi
def test_vectors_and_a_session_are_made_after_a_failure(start):
    job = start(AGAIN, ranks=3)
    assert job.end() == 0, job.output
    assert job.output.count("lost 1\n") == 2
    assert job.output.count("again (0, 2) [1]\n") == 2


PARTS = """
import os, signal, sys, malt
malt.init(survive=True)
checkpoint = malt.Checkpoint(sys.argv[1], every_s=0)
failures = 0
while True:
    state = checkpoint.load() or {"w": malt.sharded(100_003), "epoch": 0}
    try:
        w = state["w"]
        for epoch in range(int(state["epoch"]), 20):
            checkpoint.save({"w": w, "epoch": epoch})
            w += 1
            if (malt.size(), malt.rank(), epoch) == (3, 1, 7):
                os.kill(os.getpid(), signal.SIGKILL)
            malt.barrier()
        total = w.sum() / w.shape[0]
        break
    except malt.PeerLost as error:
        failures += 1
        print("lost", error.rank, flush=True)
checkpoint.save({"w": w, "epoch": 20}, force=True)
print("ends with", total, failures, w.owners, flush=True)
"""


@under_one_mpi
def test_a_failed_part_of_a_sharded_vector_is_dealt_from_the_last_checkpoint(start, tmp_path):
    job = start(PARTS, str(tmp_path / "train.ckpt"), ranks=3)
    assert job.end() == 0, job.output
    assert job.output.count("lost 1\n") == 2
    assert job.output.count("ends with 20.0 1 (0, 2)\n") == 2


@under_one_mpi
@pytest.mark.thorough
def test_a_failed_part_without_a_checkpoint_ends_the_job(start, tmp_path):
    job = start(PARTS.replace("checkpoint.save(", "(lambda *_, **__: 0)("), str(tmp_path / "train.ckpt"), ranks=3)
    assert job.end() != 0, job.output
    assert "PeerLost: rank 1 is lost: its parts have failed with it, and there is no checkpoint" in job.output


NOTICED = """
import os, signal, time, numpy as np, malt
malt.init(survive=True)
seen, v = [], malt.vector(10)
malt.on_death(seen.append)
for _ in range(20):
    v.scatter()
    v.gather()
numbers = malt.allgather(os.getpid())
def scatter():
    try:
        v.scatter(to=3)
    except malt.PeerLost as error:
        assert error.rank == 3
    else:
        raise SystemExit("not noticed")
def shard():
    everyone = malt.init().transport.allgather(malt.shard(np.arange(30, dtype=np.int64)).tobytes())
    assert sorted(np.frombuffer(b"".join(everyone), np.int64)) == list(range(30))
for doomed, call in enumerate((malt.alive, v.gather, scatter, shard), 1):
    malt.barrier()
    if malt.rank() == doomed:
        os.kill(os.getpid(), signal.SIGKILL)
    while os.path.exists(f"/proc/{numbers[doomed]}"):
        time.sleep(0.01)
    time.sleep(1)  # the next call looks again
    call()
    assert seen == [*range(1, doomed + 1)], (call, seen)
assert malt.alive() == (0, 5)
print("rank", malt.rank(), "has noticed", flush=True)
"""


@under_one_mpi
def test_a_failure_is_noticed_by_the_next_call(start):
    job = start(NOTICED, ranks=6)
    assert job.end() == 0, job.output
    assert job.output.count("has noticed") == 2


DEPARTS = """
import gzip, sys, threading, time, malt
folder = sys.argv[1]
malt.init(survive=True)
seen, v = [], malt.vector(10)
table, packed = open(f"{folder}/{malt.rank()}.csv", "w"), gzip.open(f"{folder}/{malt.rank()}.gz", "wt")
table.write("a,1\\n"), packed.write("a,1\\n")
threading.Thread(target=lambda: (threading.main_thread().join(), table.write("b,2\\n"))).start()
malt.on_death(seen.append)
malt.barrier()
if malt.rank() == 1:
    sys.exit(0)
while not seen:
    v.scatter()
    time.sleep(0.05)
assert seen == [1] and malt.alive() == (0, 2)
print("rank", malt.rank(), "has noticed", flush=True)
"""


@pytest.mark.thorough
@under_one_mpi
def test_a_rank_that_departs_while_the_others_train_is_in_lost_ranks(start, tmp_path):
    """The interpreter of each rank ends as in plain Python: threads end, and files that the program left are closed."""
    job = start(DEPARTS, tmp_path, ranks=3)
    assert job.end() == 0, job.output
    for rank in range(3):
        assert (tmp_path / f"{rank}.csv").read_text() == "a,1\nb,2\n"
        assert gzip.decompress((tmp_path / f"{rank}.gz").read_bytes()) == b"a,1\n"
    assert job.output.count("has noticed") == 2
    assert "rank 1 is lost: it has ended before the others; 2 of 3 ranks continue" in job.output


LEAVES = """
import sys, malt
try:
    if malt.rank() == 1:
        sys.exit(0)
    malt.barrier()
finally:
    malt.finalize()
"""


@under_one_mpi
def test_an_exit_with_status_0_is_no_failure(start):
    """That holds also while the others wait in a collective call, and if the exit passes a finalize."""
    job = start(LEAVES, ranks=3)
    assert job.end() == 0, job.output
    assert job.output == "malt: rank 1 is lost: it has ended before the others; 2 of 3 ranks continue\n"


FAILS_LATER = """
import os, time, malt
v = malt.vector(4, sync="asp")
malt.barrier()
if malt.rank() == 0:
    while 1 in malt.alive():
        v.scatter()
        v.gather()
        time.sleep(0.01)
    os._exit(5)
"""


@under_one_mpi
def test_a_rank_that_ends_before_the_others_has_not_ended_the_job_well(start):
    """The job has failed if all of these do."""
    assert start(FAILS_LATER, ranks=2).end() == 5


@pytest.mark.thorough
@under_one_mpi
def test_the_loop_of_the_readme_goes_on(start):
    """One rank is killed in the midst of its rows. From the next epoch on the others train on them, too."""
    source = small(EXAMPLES["parallel"])
    first, epochs, loop = "w = np.zeros(30)\n", "for epoch in range(3):\n", "        w += 0.02 *"
    assert source.count(loop) == source.count(first) == source.count(epochs) == 1
    waits = "    while epoch == 1 and 2 in malt.alive() and malt.rank() != 2:\n        malt.heartbeat()\n"
    dies = "        malt.rank() == 2 and i == 5000 and __import__('os').kill(__import__('os').getpid(), 9)\n"
    source = source.replace(loop, f"{dies}        rows += 1\n{loop}").replace(first, f"{first}rows = 0\n")
    source = source.replace(epochs, epochs + waits)
    job = start(source + "print('trained', rows, malt.alive())\n", ranks=4)
    assert job.end() == 0, job.output
    rows = re.findall(r"trained (\d+) \(0, 1, 3\)", job.output)
    assert sum(map(int, rows)) == 22_000, job.output  # in the first epoch 6,000, then 8,000
    losses = re.findall(r"loss ([\d.]+)", job.output)
    assert len(losses) == 3 and len(set(losses)) == 1 and float(losses[0]) < 0.5


FAILING_AT_THE_END = """
import os, signal, malt
from apps.harness import job
report = job.on_lowest_rank
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def on_lowest_rank(work, *late):
    if malt.rank() == 2:
        die()
    report(die if malt.rank() == 0 else work, *late)
job.on_lowest_rank = on_lowest_rank
job.main("apps.svm")
"""


@under_one_mpi
def test_a_rank_that_fails_while_the_report_is_made_is_in_it(job_environment, tmp_path):
    """That holds also for the rank that was to make it."""
    program, report = tmp_path / "program.py", tmp_path / "report.json"
    program.write_text(FAILING_AT_THE_END)
    environment = {**job_environment, "PYTHONPATH": str(ROOT)}
    job = Job([str(program), "--epochs", "2", "--json", str(report)], environment, tmp_path, ranks=3)
    assert job.end() == 0, job.output
    reports = json.loads(report.read_text())
    rows = {one["rank"]: one["rows"] / reports["epochs"][0]["examples"] for one in reports["lost_ranks"]}
    assert rows == {0: pytest.approx(1 / 3, abs=0.01), 2: pytest.approx(1 / 3, abs=0.01)}, job.output
    assert "\nfinal: " in job.output
