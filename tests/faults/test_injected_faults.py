"""Jobs whose ranks the launcher kills or slows, as `malt run --inject` asks for."""

import pytest
from failing_jobs import under_one_mpi

from malt.launch.injection.faults import parsed
from malt.launch.injection.schedule import Schedule

pytestmark = pytest.mark.serial

TRAINS = """
import time, numpy as np, malt
w = np.zeros(10)
replica = malt.Replica(w, every=1)
while len(malt.alive()) == malt.size():
    w += 1
    replica.step()
    time.sleep(0.001)
replica.finish()
print("ends", malt.rank(), flush=True)
"""


@under_one_mpi
def test_the_others_outlive_a_kill_and_a_line_names_the_rank(start):
    value = "kill:0.3s,seed:2"
    schedule = Schedule(parsed([value], 2, seed=0), 2)
    schedule.turn(0.0, {0: "its process", 1: "its process"})
    [victim] = schedule.turn(100.0, {0: "its process", 1: "its process"}).killed
    job = start(TRAINS, ranks=2, options=("--survive", "--inject", value))
    assert job.end() == 0, job.output
    lines = job.output.splitlines()
    assert f"malt run: --inject {value} strikes ranks, once they have a session" in lines
    assert f"ends {1 - victim}" in lines and f"ends {victim}" not in lines
    assert lines[-1].startswith(f"malt run: struck: rank {victim} killed after ") and lines[-1].count("killed") == 1
    assert lines[-1].endswith(f"; the job survived it (--inject {value})")


PAUSED = """
import time, malt
malt.init()
pauses, last = 0, time.monotonic()
while malt.rank() == 1 and pauses < 20:  # of 30 ms each
    last, before = time.monotonic(), last
    pauses += 0.025 < last - before < 0.5
malt.barrier()
print("ends", malt.rank(), flush=True)
"""


def test_a_rank_is_slowed_in_a_job_that_no_rank_may_leave(start):
    job = start(PAUSED, ranks=2, options=("--inject", "slow:1x4,seed:2"))
    assert job.end() == 0, job.output
    assert {"ends 0", "ends 1"} <= set(job.output.splitlines())
    says = "malt run: struck: rank 1 slowed 4 times; the job survived it (--inject slow:1x4,seed:2)"
    assert job.output.splitlines()[-1] == says
