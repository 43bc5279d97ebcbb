"""The workloads of the MALT paper as shapes: real rows, or rows generated from a seed, and the training of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

import malt
from apps.mf import planted as planted_ratings
from apps.mlp import planted as planted_clicks
from bench.benchmarks.svm import planted
from bench.benchmarks.svm.task import L2
from bench.harness import jobs
from bench.harness.datasets import RCV1
from bench.harness.document import say
from bench.papers.mllib import task

Array = np.ndarray[Any, Any]
CLICKS_HIDDEN = 16
"""Neurons of the hidden layer of apps.mlp for rows, by default."""
_FEW_CLICKS = 6000, 10_000
"""Rows and features, in place of those of apps.mlp."""
FACTORS = 16
"""Of a user and of an item."""
EXCHANGES = 5
"""Of an epoch of a linear SVM on simulated ranks."""
CLOSE = 1.005
"""Of news stories and films, several ranks are timed until the measure is that of one rank in the end, times this."""
LETTERS = 4
_FLIPPED = 0.05
"""The share of the labels that are wrong."""
_HEAD = 1000.0
"""Of `task.rows`: how evenly popular the features of web pages are."""


class Workload(NamedTuple):
    """Data, a program, and what it is to reach."""

    name: str
    """That of the data set whose shape it has."""
    kind: str
    """What is trained."""
    rows: int
    weights: int
    nonzeros: float
    """Features of a row, on average."""
    words: tuple[object, ...]
    """The program and its options."""
    sparse: tuple[object, ...]
    """The options of simulated ranks: they send the rows of weights that they have touched."""
    measure: str
    """What is compared, the smaller the better: a key of the program's report."""
    close: float
    """Several ranks are timed until the measure is that of one rank in the end, times this."""
    epochs: tuple[int, int]
    """Of one rank; of several, at most."""
    simulated: int = 8
    """Simulated ranks, whose bytes are counted."""

    def report(self, ranks: int, seed: int) -> jobs.Report:
        """The report of the program on `ranks` ranks."""
        epochs = self.epochs[ranks > 1]
        return jobs.report(ranks, str(self.words[0]), *self.words[1:], "--epochs", epochs, "--seed", seed)


class Scale(NamedTuple):
    """How large the shapes are that are made."""

    image_rows: int
    string_rows: int
    page_rows: int
    page_features: int
    page_occurring: int
    """Features of web pages that occur at all."""
    page_length: int
    """Features of a page, drawn with replacement."""
    is_whole: bool
    """Whether news stories are those at hand, and ratings as many as a film site's."""
    news: tuple[int, int]
    """Rows of `many_news`, and epochs of several ranks."""


WHOLE = Scale(80_000, 150_000, 8000, 10**7, 680_000, 3700, True, (planted.ROWS, 20))
QUICK = Scale(2000, 2000, 500, 10**5, 6800, 100, False, (6000, 4))


def made(scale: Scale, folder: Path) -> Iterator[Workload]:
    """All workloads. What is generated from a seed is written to `folder`."""
    for make in (_news, _images, _strings, _web_pages, _films, _clicks):
        say(f"rows of {make.__name__[1:].replace('_', ' ')}")
        yield make(scale, folder)


def _news(scale: Scale, folder: Path) -> Workload:
    if not (scale.is_whole and RCV1.exists()):
        rows = scale.news[0]
        return svm("RCV1", planted.made(count=rows), folder, min(3000, rows // 10))
    return _svm_of("RCV1", malt.open_svmlight(RCV1), ("apps.svm", RCV1), 3000)._replace(close=CLOSE, epochs=(15, 30))


def _images(scale: Scale, folder: Path) -> Workload:
    return svm("alpha", dense(scale.image_rows, 500), folder, scale.image_rows // 20)


def _strings(scale: Scale, folder: Path) -> Workload:
    return svm("DNA", strings(scale.string_rows, 200), folder, scale.string_rows // 25)


def _web_pages(scale: Scale, folder: Path) -> Workload:
    made = svm("webspam", pages(scale), folder, scale.page_rows // 8, 4)  # queues for 7 others would take gigabytes
    return made._replace(close=1.02, epochs=(6, 12))


def _films(scale: Scale, folder: Path) -> Workload:
    if not scale.is_whole:
        rows, sides = planted_ratings.planted(0)[0].ratings.size, (planted_ratings.USERS, planted_ratings.ITEMS)
        words: tuple[object, ...] = ("--problem", "small")
    else:
        rows, sides = planted_ratings.FILM_TRAINED, (planted_ratings.FILM_USERS, planted_ratings.FILM_ITEMS)
        words = ("--problem", "film")
    words = ("apps.mf", *words, "--rank", FACTORS)
    sparse = ("--mix", "average", "--exchange-every", 2000)
    return Workload(
        "Netflix", "matrix factorization", rows, FACTORS * sum(sides), 2, words, sparse, "test_rmse", CLOSE,
        (20, 20) if scale.is_whole else (4, 4),
    )  # fmt: skip


def _clicks(scale: Scale, folder: Path) -> Workload:
    if scale.is_whole:
        rows, features, values = planted_clicks.TRAINED, planted_clicks.FEATURES, planted_clicks.VALUES
        words: tuple[object, ...] = ("--problem", "clicks")
    else:
        rows, features, values = *_FEW_CLICKS, task.NONZEROS
        file = folder / "clicks.svm"
        task.write(file, rows, features)
        words = (file, "--test", file)
    weights = CLICKS_HIDDEN * (features + 1) + CLICKS_HIDDEN + 1
    words = ("apps.mlp", *words, "--graph", "all", "--exchange-every", 5)
    return Workload(
        "KDD12", "network, one hidden layer", rows, weights, values, words, (), "test_logloss", 1.02, (2, 2)
    )  # fmt: skip


def many_news(scale: Scale, folder: Path) -> Workload:
    """Rows like those of RCV1, generated from a seed: more than there are at hand."""
    rows, epochs = scale.news
    return svm(f"RCV1, {rows:,} rows", planted.made(count=rows), folder, 1000)._replace(epochs=(10, epochs))


def svm(name: str, data: malt.Dataset, folder: Path, every: int, simulated: int = 8) -> Workload:
    """A linear SVM on rows that are written to a folder of their own. `every`: rows of a rank between two exchanges."""
    own = folder / name
    own.mkdir()
    planted.write(data, own)
    return _svm_of(name, data, ("bench.benchmarks.svm.planted", own), every, simulated)


def _svm_of(name: str, data: malt.Dataset, rows: tuple[object, ...], every: int, simulated: int = 8) -> Workload:
    count, width = data.X.shape
    words = (*rows, "--l2", L2, "--no-intercept", "--exchange-every", every)
    sparse = ("--vector", "sparse", "--exchange-every", count // simulated // EXCHANGES)
    return Workload(
        name, "linear SVM", count, width, data.X.nnz / count, words, sparse, "objective", 1.001, (10, 20), simulated
    )  # fmt: skip


def dense(count: int, width: int, seed: int = 0) -> malt.Dataset:
    """Rows of `width` numbers each, of length 1. Local."""
    draw = np.random.default_rng(seed)
    values = draw.standard_normal((count, width), np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return _labelled(values, np.tile(np.arange(width, dtype=np.int32), (count, 1)), width, draw)


def strings(count: int, places: int, seed: int = 0) -> malt.Dataset:
    """Strings of letters: a row has a 1 in the column of each place's letter, divided to length 1. Local."""
    draw = np.random.default_rng(seed)
    letters = draw.integers(LETTERS, size=(count, places), dtype=np.int32)
    columns = letters + LETTERS * np.arange(places, dtype=np.int32)
    return _labelled(np.full(columns.shape, places**-0.5, np.float32), columns, LETTERS * places, draw)


def pages(scale: Scale) -> malt.Dataset:
    """Long rows, in which only some of very many features occur, and most of these seldom. Local."""
    count, stride = scale.page_rows, scale.page_features // scale.page_occurring
    found = task.rows(count, scale.page_occurring, _HEAD, nonzeros=scale.page_length)
    columns = stride * np.sort(found.columns.reshape(count, -1), axis=1)
    X = csr_array((found.values, columns.ravel(), found.starts), shape=(count, scale.page_features))
    return planted.dataset(X, found.labels)


def _labelled(values: Array, columns: Array, width: int, draw: np.random.Generator) -> malt.Dataset:
    """Rows of these values, of two classes of about the same size that a plane separates but for some labels."""
    plane = draw.standard_normal(width, np.float32)
    sides = np.einsum("ij,ij->i", values, plane[columns])
    labels = np.where(sides > np.median(sides), 1, -1).astype(np.float32)
    labels[draw.random(len(labels)) < _FLIPPED] *= -1
    starts = columns.shape[1] * np.arange(len(columns) + 1, dtype=np.int32)
    return planted.dataset(csr_array((values.ravel(), columns.ravel(), starts), shape=(len(columns), width)), labels)
