"""Tests of malt.models.networks.optimizer against slow twins."""

import numpy as np
import pytest

from malt.models.networks.optimizer import OPTIMIZERS, SWEEP_EVERY, Adam, Momentum, step_at


@pytest.fixture
def generator():
    return np.random.default_rng(0)


def momentum_slowly(w, gradients, steps):
    v = np.zeros_like(w)
    for g, step in zip(gradients, steps, strict=True):
        v = 0.9 * v - step * g
        w = w + v
    return w


def adam_slowly(w, gradients, steps):
    """Algorithm 1 of Kingma and Ba, line by line."""
    m, s = np.zeros_like(w), np.zeros_like(w)
    for t, (g, step) in enumerate(zip(gradients, steps, strict=True), 1):
        m = 0.9 * m + 0.1 * g
        s = 0.999 * s + 0.001 * g**2
        w = w - step * (m / (1 - 0.9**t)) / (np.sqrt(s / (1 - 0.999**t)) + 1e-8)
    return w


def adagrad_slowly(w, gradients, steps):
    n = np.zeros_like(w)
    for g, step in zip(gradients, steps, strict=True):
        n = n + g**2
        w = w - step * g / (np.sqrt(n) + 1e-10)
    return w


TWINS = [("momentum", momentum_slowly), ("adam", adam_slowly), ("adagrad", adagrad_slowly)]


@pytest.mark.parametrize(("name", "twin"), TWINS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_an_optimizer_equals_its_slow_twin(name, twin, dtype, tolerance, generator):
    first, steps = generator.standard_normal((4, 3)), np.linspace(0.1, 0, 2 * SWEEP_EVERY)
    gradients = generator.standard_normal((len(steps), 4, 3)) * generator.choice([1e-9, 1e-3, 1, 100], (4, 3))
    weights = first.astype(dtype)
    optimizer = OPTIMIZERS[name].make(weights)
    for gradient, step in zip(gradients, steps, strict=True):
        optimizer.update(gradient.astype(dtype), float(step))
    assert np.allclose(weights, twin(first, gradients, steps), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("kind", "states"), [(Momentum, ["_velocity"]), (Adam, ["_mean", "_square"])])
def test_tiny_numbers_become_zero(kind, states):
    optimizer = kind(np.zeros((3, 2), np.float32))
    optimizer.update(np.full((3, 2), 1e-14, np.float32), 0.1)
    for _ in range(2000):
        optimizer.update(np.zeros((3, 2), np.float32), 0.1)
    assert all(not getattr(optimizer, state).any() for state in states)


def test_step_sizes_fall_linearly_to_zero():
    assert [step_at(0.5, progress) for progress in (0, 0.5, 1)] == [0.5, 0.25, 0]


def test_step_sizes_rise_first_in_a_warm_up():
    assert [step_at(0.5, progress, 0.25) for progress in (0, 0.125, 0.25, 0.625, 1)] == [0, 0.25, 0.5, 0.25, 0]
