"""`malt.seed`: generators of random numbers that have a stream of their own on each rank."""

from __future__ import annotations

import random
import sys

import numpy as np

from malt.session import session
from vol import arguments

_WORDS = 8
"""The numbers of 32 bits that Python's generator and NumPy's are seeded with."""


def seed(number: int) -> np.random.Generator:
    """Seed the generators of Python, NumPy and torch for this rank; return another generator. Local, once initialized.

        rng = malt.seed(0)

    Each rank gets streams of its own, the same in each run: they are derived from `number` and the rank by
    numpy.random.SeedSequence. So dropout masks and augmented rows differ between ranks. Seeded are the generators of
    the modules random and numpy.random, and those of torch on all devices if it has been imported before. The returned
    generator is independent of them.

    Draw whatever must be equal on all ranks, such as generated data, before the call or from a separate generator,
    numpy.random.default_rng(0). Simulated ranks share one process, in which each call seeds the same module generators,
    so they should draw from the returned one.

    TypeError, ValueError: `number` is not an integer of at least 0. No generator has been seeded.
    """
    entropy = arguments.whole("seed", number, 0)
    own = np.random.SeedSequence(entropy, spawn_key=(session.rank(),))
    returned, of_python, of_numpy, of_torch = own.spawn(4)
    random.seed(int.from_bytes(of_python.generate_state(_WORDS).astype("<u4").tobytes(), "little"))
    np.random.seed(of_numpy.generate_state(_WORDS))
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(int(of_torch.generate_state(1, np.uint64)[0]))
    return np.random.default_rng(returned)
