"""malt.torch.state: a training with torch that goes on from a checkpoint, on simulated ranks."""

import numpy as np
import pytest
from covering import pairs

pytest.importorskip("torch")

import torch
from torch import nn
from torch.optim import lr_scheduler

import malt

STEPS = 11
CASES = {
    "models": ({"every": 3, "sync": "bsp"}, "SGD", {"momentum": 0.9}),
    "changes": ({"every": 2, "sync": "bsp", "average": "delta", "outer": malt.optim.nesterov(0.7, 0.9, warmup=1)},
                "AdamW", {}),
    "gradients": ({"average": "gradient"}, "Adam", {"amsgrad": True}),
    "fragments": ({"every": 4, "sync": "bsp", "fragments": 2}, "SGD", {"nesterov": True, "momentum": 0.5}),
    "rounded": ({"every": 2, "sync": "bsp", "average": "delta", "wire": "int8", "top": 0.5}, "Adagrad", {}),
    "bfloat16": ({"every": 2, "sync": "bsp"}, "Adam", {}),
}  # fmt: skip


def network(dtype):
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    model[0].bias.requires_grad_(False)
    model.register_buffer("seen", torch.zeros(2))
    return model.to(dtype)


def training(path, case, first_stop=None, ranks=2, steps=STEPS, **more):
    """What each rank has at the end; or None, where it has saved all at the step `first_stop`."""
    options, kind, words = CASES[case]
    options = {**options, **more}

    def run(rank):
        model = network(torch.bfloat16 if case == "bfloat16" else torch.float32)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.05, **words)
        optimizer = malt.torch.Optimizer(optimizer, model, **options)
        scheduler = lr_scheduler.SequentialLR(
            optimizer, [lr_scheduler.LinearLR(optimizer), lr_scheduler.MultiStepLR(optimizer, [3, 3, 6])], [2]
        )
        one, ours = malt.Checkpoint(path), malt.torch.state(model, optimizer, scheduler=scheduler)
        made = list(map(id, optimizer.vectors))
        found = one.restore(**ours)
        assert list(map(id, optimizer.vectors)) == made, "a rank that rejoins makes these, as its program does"
        for step in range(int(found["step"]) if found else 0, steps):
            if step == first_stop:
                one.save(**malt.torch.state(model, optimizer, scheduler=scheduler, step=step), force=True)
                return optimizer.close()
            generator = torch.Generator().manual_seed(1000 * rank + step)
            x = torch.randn(8, 4, generator=generator).to(model[0].weight.dtype)
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            model.seen = model.seen + x.detach().sum()
            optimizer.step()
            scheduler.step()
        own = [one.detach().float().numpy().tobytes() for one in model.state_dict().values()]
        rate = optimizer.param_groups[0]["lr"]
        optimizer.finish()
        return own, [one.detach().float().numpy().tobytes() for one in model.state_dict().values()], rate

    return malt.simulate(run, ranks)


@pytest.mark.parametrize(("case", "ranks", "stop"), pairs(CASES, [1, 3], [1, 4]))
def test_the_bits_are_those_of_a_job_that_was_not_stopped(tmp_path, case, ranks, stop):
    whole, path = training(tmp_path / "absent", case, ranks=ranks), tmp_path / "train.ckpt"
    training(path, case, stop, ranks)
    training(path, case, stop + 3, ranks)
    assert training(path, case, ranks=ranks) == whole


@pytest.mark.parametrize(
    ("case", "more"),
    [("models", {"sync": "asp"}), ("changes", {"sync": "asp"}), ("models", {"sync": "notify-ack"})],
    ids=str,
)
def test_ranks_take_the_mean_where_messages_may_be_under_way(tmp_path, case, more):
    path = tmp_path / "train.ckpt"
    training(path, case, 5, **more)
    over = training(path, case, steps=5, **more)
    assert over[0][:2] == over[1][:2] and over[0][0] == over[0][1]
    done = training(path, case, **more)
    assert done[0][1] == done[1][1] != over[0][1]


@pytest.mark.parametrize("case", CASES)
def test_on_other_ranks_all_begin_with_one_model(tmp_path, case):
    path = tmp_path / "train.ckpt"
    training(path, case, 5)
    begun = training(path, case, ranks=3, steps=5)
    assert begun[0][0] == begun[1][0] == begun[2][0]
    done = training(path, case, ranks=3)
    assert done[0][1] == done[1][1] == done[2][1] != begun[0][0]


def test_on_other_ranks_the_optimizer_is_dealt(tmp_path, capfd):
    path = tmp_path / "train.ckpt"
    training(path, "changes", 5)
    fewer = training(path, "changes", ranks=3, steps=5)
    assert fewer[0][:2] == fewer[1][:2] == fewer[2][:2]
    told = f"malt: {path}: written on 2 ranks, and resumed on 3: optimizer, scheduler are dealt again; exchange, "
    assert capfd.readouterr().err.count(told) == 1
    assert malt.Checkpoint(path).load()["model"].keys() >= {"0.weight", "1.running_mean"}
    done = training(path, "changes", ranks=3)
    assert done[0][1] == done[2][1] and np.isfinite(np.frombuffer(done[0][1][0], np.float32)).all()


def test_what_does_not_fit_is_refused_on_all_ranks(tmp_path):
    path = tmp_path / "train.ckpt"
    training(path, "models", 5)
    with pytest.raises(ValueError, match="the state of the exchange does not match: it is of another model or"):
        training(path, "models", average="gradient", every=None)
    model = torch.nn.Linear(1, 1)
    with pytest.raises(TypeError, match=r"optimizer must be a malt.torch.Optimizer, got SGD"):
        malt.torch.state(model, torch.optim.SGD(model.parameters()))
