"""malt.torch: gradients travel while a backward pass still computes others."""

import importlib.util
import time

import pytest

import malt

if importlib.util.find_spec("torch") is None:  # a rank alone does not import it
    pytest.skip("needs the extra torch", allow_module_level=True)
pytestmark = pytest.mark.parallel
PATIENCE_S = 30.0


def wait_until(arrived):
    end = time.monotonic() + PATIENCE_S
    while not arrived():
        assert time.monotonic() < end, "no gradients have come within the backward pass"
        time.sleep(0.001)


def network():
    import torch

    torch.manual_seed(0)
    return torch.nn.ModuleList([torch.nn.Linear(3, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)])


def trained(monkeypatch, early):
    """The parameters after training. `early`: a pass waits for the peers' gradients of the last layer."""
    import torch

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
        if early:
            x.register_hook(lambda _: wait_until(arrived))
        x = torch.tanh(model[1](x))
        x = torch.tanh(model[2](x))
        (x**2).sum().backward()
        optimizer.step()
    ends = [one.detach().clone() for one in model.parameters()]
    optimizer.finish()
    return ends


def test_gradients_arrive_before_the_backward_pass_has_ended(monkeypatch):
    import torch

    early = trained(monkeypatch, True)
    at_the_step = trained(monkeypatch, False)
    assert all(torch.equal(one, other) for one, other in zip(early, at_the_step, strict=True))
