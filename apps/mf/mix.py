"""Brings rows of items to other ranks: --mix, its options, and the memory that they need."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from apps import harness
from apps.harness import Parser, memory
from apps.mf.ratings import DealtRatings
from malt.models.factors import USUAL, Averaging, Learner, Rotation, Settings, capacity

_AVERAGE: Final[dict[str, Any]] = {"exchange_every": None, "graph": "all", "degree": None, "sync": "asp"}
"""The options of --mix average, and their defaults."""


def add_options(parser: Parser) -> None:
    """Add --mix and the options of --mix average."""
    parser.add_argument("--mix", choices=("rotate", "average"), default="rotate",
        help="how items are shared: passed from rank to rank, or averaged (default: %(default)s)")  # fmt: skip
    group = parser.add_argument_group("for --mix average")
    harness.add_exchange_every(group, USUAL, "ratings")
    harness.add_graph(group, _AVERAGE["graph"], _AVERAGE["sync"])


def settle(options: Namespace) -> None:
    """Give the options of --mix average their defaults. ValueError: one of them was given with --mix rotate. Local."""
    for name, default in _AVERAGE.items():
        value = getattr(options, name)
        if options.mix == "average":
            setattr(options, name, default if value is None else value)
        elif value is not None:
            raise ValueError(f"--{name.replace('_', '-')} is for --mix average: blocks are passed on without it")
    if options.mix == "average":
        harness.settle_exchange_every(options, USUAL, options.checkpoint is not None and options.sync != "asp")


def learner(ratings: DealtRatings, generator: np.random.Generator, state: Mapping[str, Any]) -> Learner:
    """The learner of --mix. Collective. The arguments are those of `Learner`."""
    options = ratings.options
    settings = Settings(options.l2, options.step, options.epochs, meets=options.checkpoint is not None)
    if options.mix == "rotate":
        return Rotation(ratings, settings, generator, state)
    return Averaging(ratings, settings, generator, state, harness.sharing_of(options))


def nbytes(ratings: DealtRatings) -> int:
    """The memory for rows of items that come from other ranks. Local."""
    options = ratings.options
    if options.mix == "rotate":
        return ratings.row_nbytes * len(ratings.item_counts)
    return memory.queues_nbytes(options, ratings.row_nbytes * capacity(ratings, harness.sharing_of(options)))
