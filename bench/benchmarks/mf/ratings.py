"""The ratings that are factorized: epinions and jester, and those of planted factors, as of a film site."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import malt
from apps.mf import planted
from bench.harness import jobs
from bench.harness.datasets import DATA
from malt.data.text.text_file import read_chunks

RANK = 16


class Setting(NamedTuple):
    """The options of a training."""

    step: float
    l2: float
    epochs: int

    def __str__(self) -> str:
        return f"step {self.step:g}, l2 {self.l2:g}, {self.epochs} epochs"


class Source(NamedTuple):
    """Files of ratings to train on and to test on."""

    name: str
    train: Path
    test: Path

    def report(self, ranks: int, setting: Setting, seed: int) -> jobs.Report:
        """The report of apps.mf on `ranks` ranks."""
        chosen = ("--step", setting.step, "--l2", setting.l2, "--epochs", setting.epochs)
        return jobs.report(
            ranks, "apps.mf", self.train, "--test", self.test, "--rank", RANK, "--seed", seed, *chosen
        )  # fmt: skip


def shared(name: str) -> Source:
    """A data set of ../shared/data, which may not be there."""
    return Source(name, *(DATA / name / f"{part}.txt.xz" for part in ("train", "test")))


def film(folder: Path) -> Source:
    """The ratings of `apps.mf --problem film`, written to `folder`."""
    files = folder / "train.txt", folder / "test.txt"
    for file, ratings in zip(files, planted.film(0), strict=True):
        _write(file, ratings)
    return Source("film", *files)


def _write(file: Path, ratings: malt.Ratings) -> None:
    table = np.column_stack([ratings.users + 1, ratings.items + 1, ratings.ratings])
    np.savetxt(file, table, fmt="%d")


def triples(file: Path) -> np.ndarray[Any, Any]:
    """An array of (user, item, rating) rows, float64, with users and items counted from 0."""
    text = b"".join(read_chunks(str(file)))
    table = np.array(text.split(), np.float64).reshape(-1, 3)
    table[:, :2] -= 1
    return table
