"""transformers.Trainer, Lightning and Accelerate, the real ones, on two ranks: one model, one log, one checkpoint.

Importing one of them takes longer than all that is done with it here: there is one job for each.
"""

import importlib.util
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from documents import EXAMPLES as DOCUMENTED
from programs import ROOT

import malt.watch.reports
from bench.pages import lines

pytestmark = pytest.mark.serial


def needs(*modules):
    """Skip where one of the packages is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


with_hf, with_lightning = needs("torch", "transformers", "accelerate"), needs("torch", "lightning")


@pytest.fixture
def job(job_environment, tmp_path):
    """job(program, ...): its standard output, on 2 ranks. `program`: a source text."""

    def run(program, **variables):
        (tmp_path / "program.py").write_text(program)
        done = subprocess.run(
            [sys.executable, "-m", "malt", "run", "-n", "2", "program.py"], cwd=tmp_path,
            env={**job_environment, "PYTHONPATH": str(ROOT), **variables}, capture_output=True, text=True, timeout=500,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


EXAMPLE = """
import os, runpy
import malt
runpy.run_path("{root}/examples/{name}_parallel.py", run_name="__main__")
if malt.lowest():
    print("more", flush=True)
malt.barrier()
"""


def with_example(name, program):
    """A program that runs an example, and then `program`."""
    return EXAMPLE.format(root=ROOT, name=name) + program


def logged_by_example(name, printed):
    """What an example has printed before its result, which is as good as the page says; and the rest."""
    example, more = printed.split("more\n")
    *logged, result = example.splitlines()
    loss = float(re.fullmatch(r"test loss ([\d.]+)", result)[1])
    assert loss == pytest.approx(lines.EXAMPLES[name].parallel, rel=0.02) and loss <= 1.01 * lines.EXAMPLES[name].serial
    return logged, more.splitlines()


TRAINER = """
import os, sys, hashlib
import torch
from torch import nn
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments
import malt

class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, labels):
        found = self.layer(self.drop(x))[:, 0]
        return {"loss": ((found - labels) ** 2).mean(), "logits": found}

def digest(model):
    words = b"".join(one.detach().numpy().tobytes() for one in model.state_dict().values())
    return hashlib.sha256(words).hexdigest()

def train(folder, epochs, options, callbacks=(), resume=None, **arguments):
    callback = malt.torch.hf.Callback(**options)
    with malt.torch.alone():
        args = TrainingArguments(
            folder, use_cpu=True, num_train_epochs=epochs, per_device_train_batch_size=5, learning_rate=0.05,
            report_to="none", disable_tqdm=True, logging_strategy="epoch", **arguments)
    torch.manual_seed(malt.rank())
    model = Line()
    trainer = Trainer(model, args, train_dataset=rows, eval_dataset=tested, callbacks=[callback, *callbacks])
    trainer.train(resume_from_checkpoint=resume)
    assert len(set(malt.allgather(digest(model)))) == 1, "all ranks have one model"
    assert type(trainer.optimizer.optimizer) is torch.optim.AdamW
    return trainer, callback

torch.manual_seed(1)
x = torch.randn(400, 3)
y = x @ torch.tensor([1.0, -2.0, 3.0])
data = [{"x": one, "labels": label} for one, label in zip(x, y)]
rows, tested = malt.shard(data[:300]), data[300:]
if not malt.lowest():
    torch.save = None  # others do not write
every = dict(eval_strategy="epoch", save_strategy="epoch")

trainer, callback = train("best", 3, {}, load_best_model_at_end=True, **every)
step = trainer.state.global_step
assert step == 90 and trainer.is_world_process_zero() == malt.lowest()
loss = trainer.evaluate()["eval_loss"]
losses = [one["eval_loss"] for one in trainer.state.log_history if "eval_loss" in one]
assert malt.allgather(losses[:3]) == 2 * [losses[:3]], "all ranks evaluate one model"
assert malt.allgather(loss) == [loss, loss] and loss == min(losses)

trainer, _ = train("again", 2, dict(average="gradient"), resume="best/checkpoint-30", save_strategy="no")
print(f"resumed to {trainer.state.global_step} on rank {malt.rank()}", flush=True)
trainer, _ = train("early", 9, {}, [EarlyStoppingCallback(1, 1e9)], load_best_model_at_end=True, **every)
assert trainer.state.global_step == 60
trainer, _ = train("steps", 1, dict(every=3), save_strategy="steps", save_steps=10, save_only_model=True)
trainer, _ = train("most", 3, {}, eval_strategy="epoch", save_strategy="best", metric_for_best_model="loss")
"""


CURED = DOCUMENTED["accelerate"] + """
import sys
import torch
torch.manual_seed(malt.rank())
model = torch.nn.Linear(2, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
optimizer = malt.torch.Optimizer(optimizer, model, every=1)
accelerator.backward(model(torch.ones(4, 2)).sum())
optimizer.step()
optimizer.finish()
same = malt.allgather(model.weight.detach().numpy())[0] == model.weight.detach().numpy()
sys.stdout.write(f"{accelerator.num_processes} {same}\\n")  # in one piece: torchrun runs python -u
"""
ANEW = """
from accelerate.state import AcceleratorState
AcceleratorState._reset_state(reset_partial_state=True)
"""
GUARDED = ANEW + """
accelerator = Accelerator(cpu=True)
try:
    malt.torch.Optimizer(torch.optim.SGD(model.parameters(), 0.1), model)
except ValueError as error:
    print(error, flush=True)
"""
MASTER = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
"""With these Accelerate would start a process group."""


@pytest.mark.thorough
@with_hf
def test_accelerate_starts_no_process_group_where_torchrun_has_started_it(job_environment, tmp_path):
    """By its variables: torchrun itself imports PyTorch, too."""
    (tmp_path / "program.py").write_text(CURED)
    environment = {**job_environment, **MASTER, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
                   "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}  # fmt: skip
    processes = [
        subprocess.Popen([sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
                         env=environment | {"RANK": rank, "LOCAL_RANK": rank})
        for rank in "01"
    ]  # fmt: skip
    assert [process.communicate(timeout=300)[0] for process in processes] == 2 * ["1 [[ True  True]]\n"]


@pytest.mark.thorough
@with_hf
def test_a_trainer_of_transformers(job, tmp_path):
    """And Accelerate, which it imports, starts no process group where the guide says how."""
    program = with_example("trainer", TRAINER) + ANEW + CURED + GUARDED
    logged, printed = logged_by_example("trainer", job(program, **MASTER, LOCAL_RANK="0"))
    assert sum("torch.distributed has a process group of 2 processes" in line for line in printed) == 2
    assert sum("except within malt.torch.alone()" in line for line in printed) == 2
    assert printed.count("1 [[ True  True]]") == 2
    assert [line[:7] for line in logged] == 4 * ["{'loss'"] + ["{'train", "{'eval_"]
    assert len(list(tmp_path.glob("build/trainer/*"))) == 4
    logged = [line for line in printed if line.startswith("{'loss'")]
    assert len(logged) == 3 + 1 + 2 + 1 + 3, "the lowest rank alone logs"
    assert sorted(line for line in printed if line.startswith("resumed")) == [
        "resumed to 60 on rank 0", "resumed to 60 on rank 1"
    ]  # fmt: skip
    assert sorted(file.name for file in (tmp_path / "best").iterdir()) == [f"checkpoint-{n}" for n in (30, 60, 90)]
    assert sorted(file.name for file in (tmp_path / "steps").iterdir()) == [f"checkpoint-{n}" for n in (10, 20, 30)]
    assert {file.name for file in (tmp_path / "best/checkpoint-30").iterdir()} >= {"optimizer.pt", "rng_state.pth"}
    assert not (tmp_path / "steps/checkpoint-30/optimizer.pt").exists()


@with_hf
def test_of_what_a_trainer_logs_all_numbers_are_reported(monkeypatch):
    """compute_metrics may return anything: a truth value ended the training, and numbers of NumPy were not shown."""
    from malt.torch import hf

    shown = []
    monkeypatch.setattr(malt.watch.reports, "_sinks", [shown.append])
    logs = {"loss": 1.5, "hits": np.float32(0.5), "count": np.int64(3), "is_best": True, "found": np.bool_(1), "a": "b"}
    hf.Callback().on_log(None, SimpleNamespace(global_step=4, num_train_epochs=2), None, logs=logs)
    assert shown == [{"step": 4, "epochs": 2, "loss": 1.5, "hits": 0.5, "count": 3}]


LIGHTNING = """
import hashlib, os
from types import SimpleNamespace
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import malt

class Line(LightningModule):
    def __init__(self, optimizers=1):
        super().__init__()
        self.layer, self.count = nn.Linear(3, 1), optimizers

    def loss(self, batch):
        return ((self.layer(batch[0])[:, 0] - batch[1]) ** 2).mean()

    def training_step(self, batch, _):
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("valid", self.loss(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]

def digest(model):
    return hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in model.state_dict().values())).hexdigest()

torch.manual_seed(1)
x = torch.randn(400, 3)
y = x @ torch.tensor([1.0, -2.0, 3.0])
data, tested = TensorDataset(x[:300], y[:300]), TensorDataset(x[300:], y[300:])
quiet = dict(accelerator="cpu", devices=1, enable_model_summary=False, log_every_n_steps=1, enable_progress_bar=False)

def fit(name, epochs, options, *callbacks, path=None, **arguments):
    callback = malt.torch.lightning.Callback(**options)
    logger = CSVLogger("logs", name) if name else False
    options = dict(logger=logger, max_epochs=epochs, **quiet, **arguments)
    trainer = Trainer(callbacks=[*callbacks, callback], **options)
    torch.manual_seed(malt.rank())
    model, sampler = Line(), malt.torch.Sampler(data)
    trainer.fit(model, DataLoader(data, 5, sampler=sampler), DataLoader(tested, 50), ckpt_path=path)
    assert len(set(malt.allgather(digest(model)))) == 1, "all ranks have one model"
    assert type(trainer.optimizers[0]) is torch.optim.SGD and sampler.epoch == trainer.current_epoch - 1
    assert trainer.is_global_zero == malt.lowest() and trainer.global_rank == malt.rank()
    assert trainer.strategy.broadcast({"rank": malt.rank()}) == {"rank": 0}
    decide = trainer.strategy.reduce_boolean_decision
    assert [decide(malt.lowest()), decide(True), decide(malt.lowest(), all=False)] == [False, True, True]
    try:
        callback.optimizer.step()
    except malt.ClosedError:
        pass
    else:
        raise AssertionError("it has not finished")
    return trainer, callback

best = ModelCheckpoint(monitor="valid", save_top_k=1)
trainer, callback = fit("best", 3, {}, best)
assert trainer.global_step == 90
places = malt.allgather([best.best_model_path, float(best.best_model_score)])
assert places[0] == places[1] and os.path.exists(best.best_model_path), places
found = trainer.validate(Line(), DataLoader(tested, 50), ckpt_path="best", verbose=False)
assert abs(found[0]["valid"] - float(best.best_model_score)) < 1e-6
trainer, _ = fit("again", 5, dict(average="gradient"), path=best.best_model_path)
assert trainer.current_epoch == 5
stop = EarlyStopping("valid", min_delta=1e9, patience=1)
trainer, _ = fit(None, 9, dict(every=3), stop, enable_checkpointing=False)
assert trainer.current_epoch == 2, trainer.current_epoch

try:
    malt.torch.lightning.Callback().setup(SimpleNamespace(strategy=DDPStrategy()), None, "fit")
except ValueError as error:
    print(error, flush=True)
"""


@pytest.mark.thorough
@with_lightning
def test_a_trainer_of_lightning(job, tmp_path):
    _, printed = logged_by_example("lightning", job(with_example("lightning", LIGHTNING)))
    assert [file.name for file in tmp_path.glob("build/lightning/*")] == ["version_0"]
    assert len(list(tmp_path.glob("build/lightning/version_0/checkpoints/*.ckpt"))) == 1
    said = [line for line in printed if "starts processes of its own" in line]
    assert said == 2 * ["DDPStrategy starts processes of its own beside malt's ranks: Trainer(devices=1), "
                        'strategy="auto"']  # fmt: skip
    logs = {name: [file.name for file in (tmp_path / "logs" / name).iterdir()] for name in ("best", "again")}
    assert logs == {"best": ["version_0"], "again": ["version_0"]}, "the lowest rank alone logs"
    assert len(list(tmp_path.glob("logs/best/version_0/checkpoints/*.ckpt"))) == 1
    rows = (tmp_path / "logs/best/version_0/metrics.csv").read_text().splitlines()
    assert len(rows) == 1 + 90 + 3 + 1, "and the validation after it"


@pytest.mark.thorough
@needs("mlflow")
def test_ranks_are_runs_of_mlflow(job, tmp_path, monkeypatch):
    """In files: there is no server here."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place = (tmp_path / "runs").as_uri()
    job((ROOT / "examples/mlflow_reports.py").read_text(), MLFLOW_TRACKING_URI=place, MLFLOW_ALLOW_FILE_STORE="true")
    from mlflow import MlflowClient

    client = MlflowClient(place)
    runs = client.search_runs([client.get_experiment_by_name("malt").experiment_id])
    named = {run.info.run_name: run for run in runs}
    parent = named.pop("logistic regression")
    assert named.keys() == {"rank 0", "rank 1"} and parent.data.tags["ranks"] == "2"
    for run in named.values():
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id and run.info.status == "FINISHED"
        assert [one.step for one in client.get_metric_history(run.info.run_id, "loss")] == [1, 2, 3, 4]
        assert run.data.metrics["loss"] < 0.2 and run.data.metrics["examples"] == 16000
