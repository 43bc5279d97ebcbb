"""Jobs that are killed at random moments, in saves, too, and resumed: they end with the bits of one that was not."""

import importlib.util
import os
import random
import re
import subprocess
import sys
import time

import pytest
from documents import EXAMPLES
from processes import wait_for
from programs import ROOT, kill_all

from malt.files import checkpoint

pytestmark = pytest.mark.serial

KILLS = int(os.environ.get("MALT_TEST_KILLS", "1"))
"""How often each job is killed."""
END = """
import hashlib
bits = b"".join(array.tobytes() for array in final)
if malt.lowest():
    print("bits", hashlib.sha256(bits).hexdigest())
"""
LOOP = """
import random, time
import numpy as np
import malt

STEPS = @steps
rng = malt.seed(0)
w = {"a": np.zeros(500), "b": np.zeros((30, 4), np.float32)}
replica = malt.Replica(w, 3, "delta", sync="bsp", outer=malt.optim.nesterov(0.7, 0.9), wire="int8", top=0.5)
checkpoint, mine = malt.Checkpoint("train.ckpt", 0), {"replica": replica, "rng": rng}
found = checkpoint.restore(w, mine=mine)
for step in range(int(found["step"]) if found else 0, STEPS):
    for array in w.values():
        noise = rng.normal(size=array.shape) + np.random.normal() + random.random()
        array += (0.01 * (noise - array)).astype(array.dtype)
    replica.step()
    if step % 3 == 2:
        checkpoint.save({**w, "step": step + 1}, mine=mine)
replica.finish()
final = list(w.values())
""".replace("@steps", str(100 * (1 + KILLS)))
NETWORK = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import malt

BATCH, EPOCHS, WORKERS = 4, @epochs, 2 * (malt.size() == 1)
torch.set_num_threads(1)
torch.manual_seed(0)
X, y = torch.randn(103, 1, 12, 12), torch.randint(4, (103,))
data = TensorDataset(X, y)
model = nn.Sequential(
    nn.Conv2d(1, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(64, 4)
)
malt.seed(0)
@example
final = [one.numpy() for one in model.state_dict().values()]
""".replace("@example", EXAMPLES["resume-torch"].replace("every_s=600", "every_s=0").replace("1, 0.5", "1, 0.9"))
PROGRAMS = {"loop": LOOP, "network": NETWORK.replace("@epochs", str(4 * (1 + KILLS)))}
APPS = {
    "apps.svm": ["--exchange-every", "700", "--average", "delta", "--epochs", str(15 * (1 + KILLS))],
    "apps.mlp": ["--exchange-every", "4", "--epochs", str(12 * (1 + KILLS))],
}
FILES = {"loop": "train.ckpt", "network": "net.ckpt"}


def progress(file):
    """Where the job is that writes `file`: what rises with each save. -1: there is no file."""
    if not file.exists():
        return -1
    arrays = checkpoint.read(str(file)).arrays
    [known] = [int(arrays[name]) for name in ("step", "epoch") if name in arrays] or [file.stat().st_mtime_ns]
    return known


def start(folder, environment, ranks, name, keeps=True):
    """The job of that name, which writes its checkpoint in `folder` and goes on from it. Programs of apps/ may not."""
    command = [sys.executable, "-m", "malt", "run", "-n", str(ranks)]
    if name in APPS:
        keeping = ["--checkpoint", "app.ckpt", "--checkpoint-every", "0", "--resume"] * keeps
        command += ["-m", name, "--sync", "bsp", *APPS[name], *keeping]
    else:
        (folder / "program.py").write_text(PROGRAMS[name] + END)
        command += ["program.py"]
    with open(folder / "output", "w") as output:
        environment = {**environment, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)


def bits(folder, environment, ranks, name, keeps=True):
    """What the job prints of its model that is run to its end."""
    job = start(folder, environment, ranks, name, keeps)
    assert job.wait(300) == 0, (folder / "output").read_text()
    [found] = re.findall(r"^(?:bits|final: .* model) (\w+)$", (folder / "output").read_text(), re.MULTILINE)
    return found


CASES = [(name, ranks) for name in (*PROGRAMS, *APPS) for ranks in (1, 2, 4)]
FEW_CASES = [("loop", 2)]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "ranks"), CASES if KILLS > 1 else FEW_CASES)
def test_a_job_that_is_killed_ends_with_the_bits_of_one_that_is_not(tmp_path, job_environment, name, ranks):
    if name == "network" and importlib.util.find_spec("torch") is None:
        pytest.skip("needs the extra torch")
    if name == "apps.mlp":
        pytest.importorskip("sklearn")
    draw = random.Random()
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    file = killed / FILES.get(name, "app.ckpt")
    kills = 0
    while kills < KILLS:
        before = progress(file)
        job = start(killed, job_environment, ranks, name)
        wait_for(lambda: job.poll() is not None or progress(file) > before, 120)  # noqa: B023
        time.sleep(draw.random() * 0.15)
        if job.poll() is not None:  # on a busy machine it has come to its end
            assert job.returncode == 0 and before >= 0, (killed / "output").read_text()
            break
        kill_all(job)
        kills += 1
    print(f"killed {kills} times")  # shown by -rP
    assert bits(killed, job_environment, ranks, name) == bits(whole, job_environment, ranks, name, keeps=False)
    assert "start from scratch" not in (killed / "output").read_text()


STOPPED = """
import os
import malt
program, end = {program!r}, {end!r}
[save] = [line for line in program.splitlines() if line.lstrip().startswith("checkpoint.save(")]
stopped = program.replace(save, save + "\\n        saves -= 1\\n        saves or 1 / 0")
for saves in (5, 11):  # in the first epoch, and in the second one, which goes on in the midst
    try:
        exec(stopped, {{"saves": saves}})
    except ZeroDivisionError:
        continue
    raise AssertionError("it has not stopped")
exec(program + end, {{}})
malt.barrier()
if malt.lowest():
    os.remove("net.ckpt")
malt.barrier()
exec(program + end, {{}})
"""


@pytest.mark.thorough
def test_a_network_that_is_stopped_twice_ends_with_the_bits_of_one_that_is_not(malt_run):
    """In one job: PyTorch is imported once."""
    pytest.importorskip("torch")
    done = malt_run(STOPPED.format(program=NETWORK.replace("@epochs", "2"), end=END))
    assert done.returncode == 0, done.stderr
    resumed, whole = done.stdout.splitlines()
    assert resumed == whole and resumed.startswith("bits")
