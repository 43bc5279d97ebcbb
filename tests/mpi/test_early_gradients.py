"""malt.torch: gradients travel while a backward pass still computes others."""

from __future__ import annotations

import time

import pytest

import malt

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.parallel
PATIENCE_S = 30.0


class Meeting(torch.autograd.Function):
    """The identity. Its backward pass goes on once `arrived()`."""

    @staticmethod
    def forward(ctx, x, arrived):
        ctx.arrived = arrived
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        end = time.monotonic() + PATIENCE_S
        while not ctx.arrived():
            assert time.monotonic() < end, "no gradients have come within the backward pass"
            time.sleep(0.001)
        return grad, None


def network():
    torch.manual_seed(0)
    return torch.nn.ModuleList([torch.nn.Linear(3, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)])


def trained(monkeypatch, early):
    """The parameters after training. `early`: a pass waits for the peers' gradients of the last layer."""
    from malt.torch import buckets, gradients

    monkeypatch.setattr(buckets, "LEAST_NBYTES", 1)
    if not early:
        monkeypatch.setattr(gradients.Gradients, "_watch", lambda *_: None)
    model = network()
    optimizer = malt.torch.Optimizer(torch.optim.Adam(model.parameters(), lr=0.1), model, average="gradient")
    *above, below = optimizer.vectors

    def arrived():
        come = [(one.statistics().gathered, one.statistics().pending) for one in above[:2]]
        return all(sum(one) == (below.step + 1) * (malt.size() - 1) for one in come)

    for step in range(5):
        optimizer.zero_grad()
        x = torch.tanh(model[0](torch.full((2, 3), 1.0 + malt.rank() + step)))
        x = torch.tanh(model[1](Meeting.apply(x, arrived) if early else x))
        x = torch.tanh(model[2](x))
        (x**2).sum().backward()
        optimizer.step()
    ends = [one.detach().clone() for one in model.parameters()]
    optimizer.finish()
    return ends


def test_gradients_arrive_before_the_backward_pass_has_ended(monkeypatch):
    early = trained(monkeypatch, True)
    at_the_step = trained(monkeypatch, False)
    assert all(torch.equal(one, other) for one, other in zip(early, at_the_step, strict=True))
