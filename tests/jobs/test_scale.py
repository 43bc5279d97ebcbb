"""A thousand simulated ranks in one process: the memory and the time that they take."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.serial

RANKS = 1024
MOST_S, MOST_MIB = 30, 2048

PROGRAM = f"""
import json, resource
import numpy as np
import malt

def live(rank):
    v = malt.vector(np.full(100, float(rank), np.float32), graph="exponential", sync="asp")
    for _ in range(6):
        v.scatter()
        v.gather()
    v.close()
    return float(v.array.mean())

means = malt.simulate(live, {RANKS})
used = resource.getrusage(resource.RUSAGE_SELF)
# The maximum of getrusage begins with the memory of the process that has started this one.
[most] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps([min(means), max(means), used.ru_utime + used.ru_stime, int(most) / 1024]))
"""


@pytest.mark.thorough
def test_a_thousand_ranks():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    lowest, highest, processor_s, mib = json.loads(done.stdout)
    assert 0 < lowest <= highest < RANKS - 1
    assert highest - lowest < RANKS / 2
    assert processor_s < MOST_S and mib < MOST_MIB
