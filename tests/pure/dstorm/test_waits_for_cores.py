"""For how long a thread has waited for a core."""

import os
import subprocess
import sys
import time

import pytest

from dstorm.waits import core_waits

SHARING = """
import os, subprocess, sys, time
from dstorm.waits.core_waits import waited_for_core_s
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
start = waited_for_core_s()
while time.process_time() < 0.3: pass
for one in others: one.kill()
print(waited_for_core_s() - start)
"""


@pytest.mark.skipif(not os.path.exists(core_waits._SCHEDSTAT), reason="this system does not say it")
def test_a_thread_that_shares_its_core_waits_for_it():
    """With three others, for three times as long as it has the core."""
    assert float(subprocess.run([sys.executable, "-c", SHARING], capture_output=True, check=True).stdout) > 0.5


def test_sleep_is_no_wait_for_a_core():
    start = core_waits.waited_for_core_s()
    time.sleep(0.2)
    assert core_waits.waited_for_core_s() - start < 0.1


def test_a_system_that_does_not_say_it(monkeypatch):
    monkeypatch.setattr(core_waits, "_SCHEDSTAT", "/nowhere")
    assert core_waits.waited_for_core_s() == 0
