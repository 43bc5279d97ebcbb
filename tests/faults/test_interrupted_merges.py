"""Ctrl-C at random moments of a training: each model that is saved then is whole, and the training goes on."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from failing_jobs import LONG, runs
from interrupted_jobs import PROGRAM, check, words
from programs import ROOT

pytestmark = pytest.mark.serial

SYNCS = ("asp", "ssp:1", "bsp", "notify-ack")
CASES = [(kind, sync) for kind in ("vector", "rows", "models", "changes") for sync in SYNCS]
CASES += [("compiled", sync) for sync in ("asp", "ssp:1", "bsp")]
SIGNALS, MERGES = (200, 50) if LONG else (12, 1)


@pytest.mark.parametrize(("kind", "sync"), CASES if LONG else [("models", "bsp")])
def test_each_model_that_is_saved_is_whole(kind, sync, start, tmp_path):
    job = start(PROGRAM, *words(tmp_path / "model.npz", kind, sync, SIGNALS, MERGES), options=(), ranks=2)
    assert job.end() == 0, job.output
    print(kind, sync, check(job.output, SIGNALS, MERGES))


SAVING = """
import sys, numpy as np, malt
w = np.ones(2_000_000, np.float32)
checkpoint = malt.Checkpoint(sys.argv[1], every_s=1e9)
replica = malt.Replica(w, every=1, sync=sys.argv[2])
replica.trust()
print("it trains", flush=True)
try:
    while True:
        w += 0.0
        replica.step()
except KeyboardInterrupt:
    checkpoint.save({"w": w}, force=True)
    raise
"""


@pytest.mark.skipif(not LONG, reason="make faults")
@pytest.mark.parametrize("sync", SYNCS)
def test_ctrl_c_ends_the_job_with_a_whole_model(sync, job_environment, tmp_path):
    (tmp_path / "program.py").write_text(SAVING)
    path = tmp_path / "model.npz"
    command = [sys.executable, "-m", "malt", "run", "-n", "2", str(tmp_path / "program.py"), str(path), sync]
    for turn in runs(1, 10):
        with subprocess.Popen(command, cwd=ROOT, env=job_environment, stdout=subprocess.PIPE, text=True) as job:
            assert job.stdout.readline() == "it trains\n"
            time.sleep(0.3 + 0.01 * turn)  # at any moment of an exchange
            job.send_signal(signal.SIGINT)
        assert job.returncode == 130
        with np.load(path) as file:
            [saved] = [file[name] for name in file.files if file[name].size == 2_000_000]
        assert (saved == 1).all()
        path.unlink()
