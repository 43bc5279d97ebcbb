"""malt.torch: gradients that are sent while a backward pass computes others, on simulated ranks."""

import importlib.util
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import malt
from dstorm.transports.simulated.transport import SimulatedTransport

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra torch"),
]
STEPS = 4


def model_of(torch, dtype=None):
    """Layers of which two have one weight, one is frozen in part, and one is computed without every now and then."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.ModuleDict(
        dict(first=nn.Linear(3, 5), second=nn.Linear(5, 5), tied=nn.Linear(5, 5), spare=nn.Linear(5, 5),
             last=nn.Linear(5, 1))
    )  # fmt: skip
    model["tied"].weight = model["second"].weight
    model["first"].bias.requires_grad_(False)
    model["last"].double()
    return model if dtype is None else model.to(dtype)


def loss(model, rank, step, uses_spare=True):
    import torch

    generator = torch.Generator().manual_seed(100 * rank + step)
    x = torch.randn(4, 3, generator=generator).to(model["first"].weight.dtype)
    for name in ("first", "second", "tied", "spare") if uses_spare else ("first", "second", "tied"):
        x = torch.tanh(model[name](x))
    return (model["last"](x.to(model["last"].weight.dtype)) ** 2).mean()


def plain(at):
    loss(at.model, at.rank, at.step).backward()


def unused(at):
    loss(at.model, at.rank, at.step, uses_spare=at.step % 2 == 0 or at.rank == 0).backward()


def unused_everywhere(at):
    loss(at.model, at.rank, at.step, uses_spare=at.step == 0).backward()


def accumulated(at):
    for half in range(2):
        (loss(at.model, at.rank, 10 * at.step + half) / 2).backward()


def accumulated_once_on_one_rank(at):
    plain(at)
    if at.step == 2 and at.rank == 1:
        loss(at.model, at.rank, 10 + at.step).backward()


def accumulated_at_last(at):
    for half in range(1 + (at.step == STEPS - 1 and at.rank == 2)):
        loss(at.model, at.rank, 10 * at.step + half).backward()


def clipped(at):
    plain(at)
    at.torch.nn.utils.clip_grad_norm_(at.model.parameters(), 0.01)


def changed_unseen(at):
    plain(at)
    if at.step == 1:
        at.model["last"].bias.grad.data.mul_(2)  # no version counter changes


def taken_away(at):
    plain(at)
    if at.step == 1 and at.rank == 0:
        at.model["spare"].weight.grad = None


def not_a_number(at):
    plain(at)
    at.model["first"].weight.grad[0, 0] = np.nan


def failed(at):
    if at.step == 1 and at.rank == 0:

        def fail(grad):
            raise ArithmeticError("amid the pass")

        x = at.model["first"](at.torch.zeros(4, 3))
        x.register_hook(fail)
        with pytest.raises(ArithmeticError, match="amid the pass"):
            (at.model["last"](at.model["spare"](x).double()) ** 2).mean().backward()
        at.optimizer.zero_grad()
    plain(at)


def with_a_graph(at):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch advises against it
        loss(at.model, at.rank, at.step).backward(create_graph=True)


class Postponed:
    """A call that is made when its result is asked for."""

    def __init__(self, call):
        self._call = call

    def result(self):
        call, self._call = self._call, lambda: None
        call()


class NoThread:
    """Stands for ThreadPoolExecutor: simulated ranks cannot take turns in a backward pass."""

    def __init__(self, *_):
        self.submit, self.shutdown = Postponed, lambda **_: None


def trained(monkeypatch, ranks, backward, early, dtype=None, leaves_early=False):
    """The model and the messages of each bucket, of all ranks."""
    import torch

    from malt.torch import buckets, gradients

    monkeypatch.setattr(buckets, "LEAST_NBYTES", 1)
    monkeypatch.setattr(gradients, "ThreadPoolExecutor", NoThread)
    monkeypatch.setattr(SimulatedTransport, "may_send_ahead", early)

    def train(rank):
        model = model_of(torch, dtype)
        optimizer = malt.torch.Optimizer(
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model, average="gradient"
        )
        steps = STEPS // 2 if leaves_early and rank == 1 else STEPS
        for step in range(steps):
            optimizer.zero_grad()
            backward(SimpleNamespace(torch=torch, model=model, optimizer=optimizer, rank=rank, step=step))
            optimizer.step()
        if steps < STEPS:
            loss(model, rank, 1000).backward()
            if early:
                for one in optimizer._gradients._under_way:  # what the hook has handed over leaves before the rank does
                    one.result()
        sent = [one.step for one in optimizer.vectors]
        ends = [one.detach().float().numpy().tobytes() for one in model.parameters()]
        optimizer.finish()
        assert not any(one._post_accumulate_grad_hooks for one in model.parameters())
        return ends, sent

    return malt.simulate(train, ranks, seed=ranks)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(("backward", "again"), [
    (plain, 0), (unused, 0), (unused_everywhere, 0), (with_a_graph, 0), (accumulated, 1),
    (accumulated_once_on_one_rank, 1), (clipped, 1), (changed_unseen, 1), (taken_away, 1), (not_a_number, 0),
    (failed, 1),
])  # fmt: skip
def test_gradients_that_are_sent_early_are_those_of_the_step(backward, again, ranks, monkeypatch):
    """All bits are those of gradients that are sent at the step. Buckets that were stale at one step are sent again."""
    early = trained(monkeypatch, ranks, backward, True)
    at_the_step = trained(monkeypatch, ranks, backward, False)
    assert [ends for ends, _ in early] == [ends for ends, _ in at_the_step]
    for (_, sent), (_, once) in zip(early, at_the_step, strict=True):
        assert once == [STEPS] * 6
        assert sent == early[0][1] and sent[-1] == STEPS and set(sent) == {STEPS, STEPS + again}


@pytest.mark.parametrize("backward", [plain, failed, accumulated_at_last])
def test_a_rank_that_finishes_after_a_backward_pass_has_no_part_in_the_next_step(backward, monkeypatch):
    early = trained(monkeypatch, 3, backward, True, leaves_early=True)
    at_the_step = trained(monkeypatch, 3, backward, False, leaves_early=True)
    assert [ends for ends, _ in early] == [ends for ends, _ in at_the_step]
    assert early[0][0] == early[2][0] != early[1][0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_early_gradients_of_other_dtypes(dtype, monkeypatch):
    import torch

    kind = getattr(torch, dtype)
    early = [trained(monkeypatch, 2, backward, True, kind) for backward in (plain, accumulated)]
    at_the_step = [trained(monkeypatch, 2, backward, False, kind) for backward in (plain, accumulated)]
    for one, twin in zip(early, at_the_step, strict=True):
        assert one[0][0] == one[1][0] == twin[0][0]
    assert set(early[0][0][1]) == {STEPS}


def test_parameters_are_divided_into_messages_of_about_as_many_bytes(monkeypatch):
    import torch

    from malt.torch import buckets

    monkeypatch.setattr(buckets, "LEAST_NBYTES", 40)
    some = [(str(size), torch.zeros(size)) for size in (3, 7, 12, 1, 2)]
    assert [[name for name, _ in part] for part in buckets.divided(some, 4)] == [["3", "7"], ["12"], ["1", "2"]]
    large = [(str(number), torch.zeros(100)) for number in range(32)]
    assert [len(part) for part in buckets.divided(large, 4)] == [4] * 8
    assert buckets.divided([], 4) == []
