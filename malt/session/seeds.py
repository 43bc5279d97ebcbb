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

    Each rank has streams of its own, the same in each run: they follow from `number` and the rank, by
    numpy.random.SeedSequence. So dropout masks and augmented rows differ between ranks. The generators are those of the
    modules random and numpy.random, and of torch on all devices if it has been imported before. The one that is
    returned shares nothing with them.

    What must be equal on all ranks, as data that the program makes, is drawn before the call, or from a generator of
    its own: numpy.random.default_rng(0). Simulated ranks are of one process, and each call seeds the same generators of
    modules: they draw from the one that is returned.

    TypeError, ValueError: `number` is not a whole number from 0 up. No generator has been seeded.
    """
    entropy = arguments.whole("seed", number, 0)
    own = np.random.SeedSequence(entropy, spawn_key=(session.rank(),))
    returned, of_python, of_numpy, of_torch = own.spawn(4)
    random.seed(int.from_bytes(of_python.generate_state(_WORDS).astype("<u4").tobytes(), "little"))
    np.random.seed(of_numpy.generate_state(_WORDS))
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(int(of_torch.generate_state(1, np.uint64)[0]))
    return np.random.default_rng(returned)
