"""malt.torch: an optimizer of torch whose model simulated ranks exchange."""

import copy
import subprocess
import sys

import numpy as np
import pytest
from ranks import error_of_all

pytest.importorskip("torch")

import torch

import malt
from malt.files.checksum import checksum
from malt.session.replica.interval import Interval


def network(seed, dtype=None):
    """A network with shared, frozen and half-precision parameters, and buffers of numbers and of integers."""
    nn = torch.nn
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False),
                          nn.Linear(6, 2))  # fmt: skip
    model[3].weight = model[2].weight
    model[0].bias.requires_grad_(False)
    if dtype is not None:
        model.to(dtype)
    return model


def loss(model, rank, step):
    """The loss of a batch of this rank's."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(8, 4, generator=generator).to(model[0].weight.dtype)
    return (model(x) ** 2).mean()


def tensors(model):
    """All values of a model, as bytes by name."""
    return {name: one.detach().to_dense().clone().contiguous().view(-1).float().numpy().tobytes()
            for name, one in model.state_dict().items()}  # fmt: skip


def train_on(model, optimizer, rank, steps):
    """Make these steps."""
    for step in steps:
        optimizer.zero_grad()
        loss(model, rank, step).backward()
        optimizer.step()


def trained(rank, steps=6, dtype=None, kind="SGD", rate=0.1, **options):
    model = network(rank, dtype)
    optimizer = malt.torch.Optimizer(getattr(torch.optim, kind)(model.parameters(), lr=rate), model, **options)
    train_on(model, optimizer, rank, range(steps))
    return model, optimizer


def finished(rank, **options):
    """The tensors of a model that was trained to the end."""
    model, optimizer = trained(rank, **options)
    optimizer.finish()
    return tensors(model)


@pytest.mark.parametrize(("every", "exchanges"), [((7, 20), 1 + (101 - 7) // 20), (7, 101 // 7)])
def test_buffers_are_exchanged_with_the_parameters(monkeypatch, every, exchanges):
    """In real time, where the interval of the parameters follows costs: here it is said to be 20."""
    monkeypatch.setattr(Interval, "note", lambda *costs: 20)
    _, optimizer = trained(0, 101, every=every)
    assert [vector.step for vector in optimizer.vectors] == [exchanges, exchanges]
    assert optimizer.statistics().every == (7 if every == 7 else 20)
    optimizer.finish()


def test_tensors_that_each_rank_has_shuffled_have_other_checksums():
    rows, order = torch.randn(500, 7), torch.randperm(500)
    for found in (rows, rows.bfloat16(), rows > 0, rows.clone().requires_grad_(), rows.T.contiguous().T):
        assert checksum(found) == checksum(found.clone()) != checksum(found[order])
    assert checksum(list(rows)) == checksum([row.clone() for row in rows]) != checksum(list(rows[order]))


def test_rows_that_differ_between_ranks_are_told_where_averaged_gradients_end():
    def live(rank):
        _, optimizer = trained(rank, steps=1, average="gradient")
        malt.shard(torch.randperm(9, generator=torch.Generator().manual_seed(rank)))
        optimizer.finish()

    assert "rank 0 gave 9 rows of torch.int64, checksum" in error_of_all(live)


def test_a_change_of_a_half_precision_tensor_counts_once_however_often_it_is_read():
    from malt.torch.tensors import Tensors

    tensor = torch.ones(2, dtype=torch.bfloat16)
    seen = Tensors(lambda: {"w": tensor})
    seen.arrays()["w"][:] = 1.0035  # bfloat16 has 1.0
    seen.write()
    tensor -= 0.5  # where bfloat16 has numbers twice as close
    for _ in range(3):
        assert seen.arrays()["w"] == pytest.approx(0.5035)
    for value in (float("nan"), 0.25):  # a model that diverged is set back to one that has not
        tensor.fill_(value)
        np.testing.assert_equal(seen.arrays()["w"], np.float32([value] * 2))


@pytest.mark.parametrize("options", [
    dict(), dict(average="gradient"), dict(every=2, average="delta", outer=True), dict(average="delta", wire="int8"),
    dict(average="delta", top=0.5, every=3), dict(sync="bsp", every=2, fragments=2),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("dtype", [None, "bfloat16", "float64"])
def test_all_ranks_end_with_one_model(options, dtype):
    kind = None if dtype is None else getattr(torch, dtype)

    def train(rank):
        outer = {"outer": malt.optim.nesterov(0.7, 0.9, warmup=1)} if "outer" in options else {}
        model, optimizer = trained(rank, dtype=kind, **{**options, **outer})
        memory = [one.data_ptr() for one in model.parameters()]
        with pytest.raises(TypeError, match="cannot be copied or pickled: save its state_dict"):
            copy.deepcopy(optimizer)
        optimizer.finish()
        assert memory == [one.data_ptr() for one in model.parameters()]
        assert model[3].weight is model[2].weight
        with pytest.raises(malt.ClosedError, match="finish or close was called before: call restart"):
            optimizer.step()
        return tensors(model), tensors(network(0, kind))

    everyone = malt.simulate(train, 3, seed=1)
    for ends, start in everyone:
        assert ends == everyone[0][0]
        assert ends["0.bias"] == start["0.bias"], "frozen: that of rank 0"
        assert ends["0.weight"] != start["0.weight"]
        assert np.frombuffer(ends["1.num_batches_tracked"], np.float32) == 6


def test_averaged_gradients_are_those_of_all_batches():
    """Two backward passes before a step, of which one rank makes one alone; and a parameter without a gradient."""

    def train(rank):
        model = network(rank).eval()
        plain = torch.optim.AdamW([{"params": model[0].weight}, {"params": model[2:].parameters(), "lr": 0.02}], lr=0.1)
        optimizer = malt.torch.Optimizer(plain, model, average="gradient")
        assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.02]
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        model[4].bias.requires_grad_(True)
        for step in range(4):
            optimizer.zero_grad()
            for half in range(2 - (step == 3 and rank)):
                (loss(model, rank, 2 * step + half) / 2).backward()
            model[4].bias.grad = None
            optimizer.step()
            schedule.step()
        assert optimizer.param_groups[0]["lr"] == 0.025
        assert model[4].bias not in optimizer.state, "no rank has a gradient of it"
        return tensors(model)

    def twin():
        model = network(0).eval()
        plain = torch.optim.AdamW([{"params": model[0].weight}, {"params": model[2:].parameters(), "lr": 0.02}], lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(plain, 2, gamma=0.5)
        for step in range(4):
            plain.zero_grad()
            for rank in range(2):
                for half in range(2 - (step == 3 and rank)):
                    (loss(model, rank, 2 * step + half) / 4).backward()
            model[4].bias.grad = None
            plain.step()
            schedule.step()
        return tensors(model)

    first, second = malt.simulate(train, 2)
    assert first == second
    for name, values in twin().items():
        np.testing.assert_allclose(np.frombuffer(first[name], "f4"), np.frombuffer(values, "f4"), atol=1e-5)


class Gpu:
    """Parameters pass for tensors of a GPU: copies that do not block are done when they are waited for."""

    def __init__(self, monkeypatch):
        from malt.torch import staging, tensors

        self.begun, self._copy = {}, torch.Tensor.copy_
        for module in (staging, tensors):
            monkeypatch.setattr(module, "is_far", lambda tensor: isinstance(tensor, torch.nn.Parameter))
        monkeypatch.setattr(staging, "host_zeros", lambda shape, dtype: torch.zeros(shape, dtype=dtype))
        monkeypatch.setattr(staging, "finish", lambda tensors: self.wait())
        monkeypatch.setattr(torch.Tensor, "copy_", lambda *words, **options: self.copy(*words, **options))

    def copy(self, to, source, non_blocking=False):
        if not non_blocking:
            return self._copy(to, source)
        self.begun.setdefault(malt.rank(), []).append((to, source))
        return to

    def wait(self):
        for to, source in self.begun.pop(malt.rank(), []):
            self._copy(to, source)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize("options", [
    dict(average="gradient"), dict(every=2, sync="bsp", fragments=2), dict(every=2, average="delta", wire="int8"),
], ids=str)  # fmt: skip
def test_tensors_on_a_gpu_go_by_way_of_the_host(options, dtype, monkeypatch):
    options = {**options, "dtype": None if dtype is None else getattr(torch, dtype)}
    near = malt.simulate(lambda rank: finished(rank, **options), 2)
    gpu = Gpu(monkeypatch)
    assert malt.simulate(lambda rank: finished(rank, **options), 2) == near
    assert not any(gpu.begun.values()), "all that was begun was waited for"


@pytest.mark.parametrize("options", [dict(average="gradient"), dict(every=2, sync="bsp")], ids=str)
def test_a_compiled_step_is_exchanged_like_any_other(options):
    def train(rank):
        model, optimizer = trained(rank, 0, **options)
        take = torch.compile(lambda: optimizer.step(), backend="eager")
        for step in range(6):
            optimizer.zero_grad()
            loss(model, rank, step).backward()
            take()
        optimizer.finish()
        return tensors(model)

    assert malt.simulate(train, 2) == malt.simulate(lambda rank: finished(rank, **options), 2)


def test_half_precision_keeps_small_changes():
    """A change of a 512th of a bfloat16 is rounded off at each exchange, and counts in the end."""

    def train(rank):
        model = torch.nn.Linear(3, 1, bias=False).to(torch.bfloat16)
        torch.nn.init.ones_(model.weight)
        optimizer = malt.torch.Optimizer(
            torch.optim.SGD(model.parameters(), lr=1.0), model, average="delta", sync="bsp"
        )
        for _ in range(8):
            model.weight.grad = torch.full_like(model.weight, -(2.0**-7) if rank == 0 else 0)
            optimizer.step()
        return model.weight.tolist()

    assert malt.simulate(train, 4) == [[[1 + 8 * 2.0**-9] * 3]] * 4


def test_a_state_dict_goes_on_where_it_was_taken(tmp_path):
    def train(rank):
        options = dict(average="delta", every=2, sync="bsp", kind="Adam")
        model, optimizer = trained(rank, 4, outer=malt.optim.nesterov(0.7, 0.9, warmup=2), **options)
        torch.save([model.state_dict(), optimizer.state_dict()], tmp_path / str(rank))
        again, resumed = trained(rank, 0, outer=malt.optim.nesterov(0.7, 0.9, warmup=2), **options)
        saved = torch.load(tmp_path / str(rank), weights_only=True)
        again.load_state_dict(saved[0])
        torch.optim.Adam(network(0).parameters()).load_state_dict(saved[1])
        resumed.load_state_dict(saved[1])
        for one, its in ((model, optimizer), (again, resumed)):
            train_on(one, its, rank, range(4, 6))
            its.finish()
        return tensors(model) == tensors(again)

    assert malt.simulate(train, 2) == [True, True]


def test_parameters_that_are_set_free():
    def train(rank):
        model, optimizer = trained(rank, 2, sync="bsp", every=2)
        model[0].bias.requires_grad_(True)
        with pytest.raises(ValueError, match="0.bias was frozen at the start and is trained now: call restart"):
            optimizer.step()
        optimizer.restart()
        for step in range(2):
            loss(model, rank, step).backward()
            optimizer.step()
        added = torch.nn.Linear(2, 2)
        model.append(added)
        optimizer.add_param_group({"params": added.parameters()})
        loss(model, rank, 2).backward()
        optimizer.step()
        with optimizer:
            pass
        return tensors(model)

    first, second = malt.simulate(train, 2)
    assert first == second


def test_only_ranks_count_in_the_mean_that_have_made_a_step_since_the_restart():
    def train(rank):
        model, optimizer = trained(rank, 2 * rank, average="gradient")
        optimizer.finish()
        optimizer.restart()
        train_on(model, optimizer, rank, range(0 if rank else 3))
        own = tensors(model)
        optimizer.finish()
        return own, tensors(model)

    (own, first), (_, second) = malt.simulate(train, 2)
    assert own == first == second


class Counting(torch.nn.Linear):
    """A module that assigns buffers anew: numbers of three kinds, of which one is a view of what it is shown."""

    def __init__(self):
        super().__init__(4, 1)
        self.register_buffer("mean", torch.zeros(4, dtype=torch.bfloat16))
        self.register_buffer("same", self.mean)
        self.register_buffer("last", torch.zeros(4))
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("phase", torch.ones(1, dtype=torch.complex64))
        self.register_buffer("cache", torch.zeros(1), persistent=False)

    def forward(self, x):
        self.mean = self.same = (0.5 * self.mean + 0.5 * x.mean(0)).bfloat16()
        self.last, self.seen, self.phase = x[0], self.seen + 1 + malt.rank(), self.phase * (1 + malt.rank()) * 1j
        self.cache = torch.zeros(len(self.cache) + 1)
        return super().forward(x)


@pytest.mark.parametrize("options", [dict(every=2, sync="bsp"), dict(average="gradient")], ids=str)
def test_buffers_that_are_assigned_anew(options):
    def train(rank):
        model, rows = Counting(), torch.arange(24.0).reshape(6, 4) * (1 + 2 * rank)
        before = rows.clone()
        optimizer = malt.torch.Optimizer(torch.optim.SGD(model.parameters(), lr=1e-4), model, **options)
        for step in range(3):
            optimizer.zero_grad()
            model(rows[2 * step : 2 * step + 2]).sum().backward()
            optimizer.step()
        optimizer.finish()
        assert torch.equal(rows, before), "what ranks exchange is written into no view of the rows"
        assert model.same is model.mean and model.mean.dtype == torch.bfloat16 and len(model.cache) == 4
        assert model.last.tolist() == [2 * value for value in range(16, 20)], "the mean of x and 3 x"
        assert model.seen.item() == 3 and model.phase.item() == -1j, "those of the lowest rank"
        return model.mean.tolist(), model.weight.tolist()

    first, second = malt.simulate(train, 2)
    assert first == second


def prune(model, plain):
    from torch.nn.utils import prune

    prune.l1_unstructured(model[4], "weight", amount=0.5)


def assign(model, plain):
    model.load_state_dict({name: one.clone() for name, one in model.state_dict().items()}, assign=True)


def add_behind(model, plain):
    plain.add_param_group({"params": torch.nn.Linear(2, 2).parameters()})


def untie(model, plain):
    model[3].weight = torch.nn.Parameter(model[2].weight.detach().clone())


@pytest.mark.parametrize("average", ["model", "gradient"])
@pytest.mark.parametrize(("change", "message"), [
    (prune, r"4.weight was torch.float32\[2, 6\] on cpu at the start and is not there now: call restart\(\) on all"),
    (lambda model, plain: model.register_buffer("late", torch.ones(1)), "late was not there at the start and is"),
    (lambda model, plain: setattr(model[1], "num_batches_tracked", torch.zeros(2)), r"tracked was torch.int64\[\] on"),
    (lambda model, plain: model.register_buffer("odd", torch.eye(3).to_sparse()), "odd was torch.sparse_coo of .* and"),
    (lambda model, plain: torch.nn.utils.parametrizations.orthogonal(model[2]), "2.weight was .* and is not there now"),
    (assign, "0.weight has been replaced by another parameter, as by load_state_dict.assign=True., and"),
    (untie, "3.weight and 2.weight were one tensor at the start and are two now: call restart"),
    (lambda model, plain: model.double(), r"was torch.float32\[6, 4\] on cpu at the start and is torch.float64"),
    (add_behind, r"other parameters \(9\) than at the start \(7\): call add_param_group of malt.torch.Optimizer"),
])  # fmt: skip
def test_a_module_that_changes_otherwise_is_an_error_before_anything_is_sent(average, change, message):
    def train(rank):
        model = network(0)
        model.register_buffer("odd", torch.eye(2).to_sparse())
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        with malt.torch.Optimizer(plain, model, average=average, sync="bsp") as optimizer:
            loss(model, rank, 0).backward()
            optimizer.step()
            change(model, plain)
            loss(model, rank, 1).backward()
            sent = [one.statistics().sent for one in optimizer.vectors]
            with pytest.raises(ValueError, match=message):
                optimizer.step()
            assert [one.statistics().sent for one in optimizer.vectors] == sent
            if change is prune:
                optimizer.restart()
                for step in range(2, 4):
                    loss(model, rank, step).backward()
                    optimizer.step()
            elif change in (assign, add_behind):
                optimizer.close()
            else:
                with pytest.raises(ValueError, match=message):
                    optimizer.finish()
                optimizer.close()
        return tensors(model)

    first, second = malt.simulate(train, 2)
    assert first == second or change is not prune


@pytest.mark.parametrize("options", [
    dict(every=2), dict(average="delta", every=3), dict(average="gradient"), dict(dtype="bfloat16"),
])  # fmt: skip
def test_all_ranks_agree_and_go_on(options):
    """A rank that finishes meanwhile is left out, and waits."""

    def live(rank):
        given = {**options, "dtype": getattr(torch, options["dtype"])} if "dtype" in options else options
        model, optimizer = trained(rank, steps=3, **given)
        optimizer.agree()
        first = tensors(model)
        with torch.no_grad():
            model[0].bias += rank  # frozen
            model[1].running_mean[:] = rank
            model[1].num_batches_tracked += rank
        before = model[1].running_mean.clone()
        if rank:
            optimizer.agree()
        second, agreed = tensors(model), model[1].running_mean.clone()
        train_on(model, optimizer, rank, range(2 * (rank > 0)))
        optimizer.finish()
        with pytest.raises(malt.ClosedError, match="agree: finish or close was called before: call restart"):
            optimizer.agree()
        return first, second, tensors(model), before[0].item(), agreed[0].item()

    everyone = malt.simulate(live, 3)
    first, second, last = ([one[place] for one in everyone] for place in range(3))
    assert first[0] == first[1] == first[2]
    assert second[1] == second[2] and second[1]["0.bias"] != second[0]["0.bias"]
    assert [agreed for *_, agreed in everyone] == [0.0, 1.5, 1.5]
    assert last[0] == last[1] == last[2]


def test_frozen_parameters_that_the_loop_changes_are_averaged_in_the_end():
    """As a teacher that follows what is trained."""

    def train(rank):
        model = torch.nn.ModuleDict({"pupil": torch.nn.Linear(2, 1), "teacher": torch.nn.Linear(2, 1)})
        model["teacher"].requires_grad_(False)
        optimizer = malt.torch.Optimizer(torch.optim.SGD(model["pupil"].parameters(), lr=0.1), model)
        bias = model["teacher"].bias.item()
        model["pupil"](torch.ones(1, 2)).sum().backward()
        optimizer.step()
        model["teacher"].weight.fill_(1.0 + 2 * rank)
        optimizer.finish()
        assert model["teacher"].weight.tolist() == [[2.0, 2.0]] and model["teacher"].bias.item() == bias

    malt.simulate(train, 2)


class Sharp(torch.optim.SGD):
    """An optimizer whose steps have two parts, of which the second one ends with the step of its base."""

    @torch.no_grad()
    def first_step(self, zero_grad=False):
        for one in self.param_groups[0]["params"]:
            self.state[one]["old"] = one.clone()
            one.data.add_(0.05 * one.grad)
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad=False):
        for one in self.param_groups[0]["params"]:
            one.data = self.state[one]["old"]
        super().step()
        return "stepped"

    def look(self):
        return len(self.state)


def test_a_method_that_changes_parameters_is_an_error_that_names_the_way():
    def train(rank):
        model = torch.nn.Linear(3, 1)
        plain = Sharp(model.parameters(), 0.05)
        optimizer = malt.torch.Optimizer(plain, model)
        assert [optimizer.look() for _ in range(5)] == [0] * 5
        model(torch.ones(1, 3)).sum().backward()
        with pytest.raises(RuntimeError, match='Sharp.first_step changed parameters, .* step="second_step" for SAM'):
            optimizer.first_step(zero_grad=True)
        with pytest.raises(RuntimeError, match="step of Sharp was called directly, so nothing"):
            plain.step()
        optimizer.finish()
        plain.step()
        with pytest.raises(malt.ClosedError, match="finish or close was called before: call restart"):
            optimizer.step()

    malt.simulate(train, 2)


@pytest.mark.parametrize("average", ["model", "gradient"])
def test_a_step_of_two_parts_ends_with_an_exchange(average):
    """Gradients of the second part are averaged; each rank makes the first part by its own."""
    x = torch.tensor([[1.0, 2.0], [2.0, -1.0]])

    def train(rank, ranks=2):
        model = torch.nn.Linear(2, 1, bias=False)
        torch.nn.init.ones_(model.weight)
        optimizer = Sharp(model.parameters(), 0.05)
        optimizer = malt.torch.Optimizer(optimizer, model, average=average, sync="bsp", step="second_step")
        for _ in range(3):
            optimizer.zero_grad()
            model(x[rank]).pow(2).sum().backward()
            optimizer.first_step(zero_grad=True)
            model(x[rank]).pow(2).sum().backward()
            assert optimizer.second_step() == "stepped"
        assert optimizer.vectors[0].statistics().sent == 3
        return model.weight.tolist()

    w = np.ones(2)
    for _ in range(3):  # both averages are the same here: the step is linear in the gradients
        grads = []
        for one in x.double().numpy():
            at = w + 0.05 * 2 * (one @ w) * one
            grads.append(2 * (one @ at) * one)
        w = w - 0.05 * np.mean(grads, axis=0)
    first, second = malt.simulate(train, 2)
    assert first == second
    np.testing.assert_allclose(first[0], w, rtol=1e-5)


@pytest.mark.parametrize("average", ["model", "gradient"])
def test_what_is_not_finite_stays_on_its_rank(average, capsys):
    def train(rank):
        model = torch.nn.Linear(2, 1, bias=False)
        torch.nn.init.ones_(model.weight)
        plain = torch.optim.SGD(model.parameters(), lr=1.0)
        optimizer = malt.torch.Optimizer(plain, model, average=average, sync="bsp", check_finite=True)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.full((1, 2), float("nan") if step and rank else 0.25)).sum().backward()
            optimizer.step()
        before = model.weight.tolist()
        optimizer.finish()
        return before, model.weight.tolist()

    (first, common), (second, theirs) = malt.simulate(train, 2)
    assert common == theirs
    if average == "gradient":
        assert first == second == common == [[1 - 0.25 - 2 * 0.125] * 2], "a rank without gradients counts as zeros"
        assert capsys.readouterr().err.endswith(": the gradients of rank 1 are not finite, and count as none\n")
    else:
        assert first == common == [[0.25] * 2] and np.isnan(second).all()
        assert "the model of rank 1 is not finite, and is left out" in capsys.readouterr().err


@pytest.mark.parametrize("average", ["model", "gradient"])
def test_a_scaler_of_gradients_scales_them_back_for_a_fused_optimizer(average):
    def train(rank, scale=2.0**10):
        model = network(rank)
        plain = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
        optimizer = malt.torch.Optimizer(plain, model, average=average, sync="bsp")
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale > 1)
        for step in range(2):
            optimizer.zero_grad()
            scaler.scale(loss(model, rank, step)).backward()
            scaler.step(optimizer)
            scaler.update()
        optimizer.finish()
        return tensors(model)

    assert malt.simulate(train, 2) == malt.simulate(lambda rank: train(rank, 1.0), 2)


def with_buffer(model, odd):
    model.register_buffer("odd", odd)
    return torch.optim.SGD(model.parameters()), model


def with_complex_numbers(model):
    model[0].weight = torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    return torch.optim.SGD(model.parameters()), model


@pytest.mark.parametrize(("make", "message"), [
    (lambda model: (torch.optim.SGD(network(1).parameters()), model), "has 7 parameters that are not"),
    (lambda model: (None, model), "optimizer must be one of torch.optim, got NoneType"),
    (lambda model: (torch.optim.SGD(model.parameters()), None), "model must be a torch.nn.Module, got NoneType"),
    (lambda model: (torch.optim.SGD(model.requires_grad_(False).parameters()), model), "no parameter that is"),
    (lambda model: (torch.optim.SGD(model.to("meta").parameters()), model), "0.weight is on the device meta: "),
    (with_complex_numbers, "0.weight is of torch.complex64, and malt.torch averages real numbers: make the parameter"),
    (lambda model: with_buffer(model, torch.ones(2).to_mkldnn()), "odd is of torch.float32, torch._mkl"),
    (lambda model: with_buffer(model, torch.ones(1).expand(3)), "odd has elements that share memory"),
])  # fmt: skip
def test_wrong_models_are_refused_on_all_ranks(make, message):
    def train(rank):
        model = network(0)
        right = torch.optim.SGD(model.parameters()), model
        with pytest.raises(ValueError, match=message):
            malt.torch.Optimizer(*(make(model) if rank else right))

    malt.simulate(train, 2)


@pytest.mark.parametrize(("options", "message"), [
    (dict(average="gradient", every=2), "exchanges at every step"),
    (dict(average="gradient", graph="ring"), 'for graph="all" and sync="bsp"'),
    (dict(average="gradient", wire="int8"), 'wire is for changes: average="delta"'),
    (dict(average="median"), "average must be .*, got 'median'"),
    (dict(average="gradient", check_finite="no"), "check_finite must be True or False, got 'no'"),
    (dict(step="secondstep"), "malt.torch.Optimizer: step must be the name of a method of SGD, got 'secondstep'"),
])  # fmt: skip
def test_arguments_that_do_not_go_together(options, message):
    with pytest.raises(ValueError, match=message):
        trained(0, 0, **options)
    malt.finalize()


@pytest.mark.parametrize(("average", "again"), [("gradient", "them a second"), ("model", "the models of")])
def test_a_process_group_would_average_twice(average, again, monkeypatch):
    """Of several processes, among several ranks, and unless it is said to be there for something else."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)

    def made(rank=0, **options):
        return trained(rank, 1, average=average, **options)

    def refused(rank):
        with pytest.raises(ValueError, match=f"process group of 2 processes.*would average {again}"):
            made(rank)

    malt.simulate(refused, 2)
    malt.simulate(lambda rank: made(rank, distributed=True)[1].finish(), 2)
    malt.simulate(made, 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    malt.simulate(lambda rank: made(rank)[1].finish(), 2)


def test_without_torch_the_extra_is_named():
    program = (
        "import sys, malt\nassert 'torch' not in sys.modules\nsys.modules['torch'] = None\n"
        "try:\n    malt.torch\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "malt.torch needs PyTorch: pip install '.[torch]' in the checkout\n"


def test_frameworks_are_not_imported_unless_used_and_their_extras_are_named():
    program = """
import sys, malt, malt.torch
for name, package in (("hf", "transformers"), ("lightning", "lightning")):
    assert package not in sys.modules
    sys.modules[package] = None
    try:
        getattr(malt.torch, name)
    except ModuleNotFoundError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "malt.torch.hf needs transformers and Accelerate: pip install '.[hf]' in the checkout",
        "malt.torch.lightning needs Lightning: pip install '.[lightning]' in the checkout",
    ]
