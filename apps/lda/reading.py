"""Reads what apps.lda trains and tests on: bags of words, the names of the words, a model."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, NamedTuple

import numpy as np

import malt
from apps.harness import load_model
from apps.lda.corpus import Corpus, planted, read
from apps.lda.kernels import Floats
from malt.data import read_chunks


class Data(NamedTuple):
    """The data that are the same on all ranks."""

    train: Corpus | None
    test: Corpus | None
    names: list[str] | None
    """The words, by number."""
    model: Floats | None
    """The counts of a model, by word and topic."""


def data(options: Namespace) -> Data:
    """Return the data that the options name. Collective.

    ValueError, OSError: a file cannot be read, or does not fit another.
    """
    model = malt.together(lambda: None if options.model is None else _model(options))
    train, test = _corpora(options)
    widest = max(one.vocabulary for one in (train, test) if one is not None)
    if model is not None:
        if widest > len(model):
            raise ValueError(f"{options.model}: a model of {len(model):,} words, and there are {widest:,}")
        widest = len(model)
    names = malt.together(lambda: None if options.vocab is None else _names(options.vocab, widest))
    train, test = (one and one._replace(vocabulary=widest) for one in (train, test))
    return Data(train, test, names, model)


def _corpora(options: Namespace) -> tuple[Corpus | None, Corpus | None]:
    if options.corpus is None and options.test is None:
        train, test = planted(options.seed)
        return (None, test) if options.model else (train, test)
    if options.corpus is None:
        if options.model is None:
            raise ValueError("--test needs CORPUS to train on, or --model to measure")
        return None, read(options.test)[0]
    train, zero_based = read(options.corpus)
    return train, None if options.test is None else read(options.test, zero_based)[0]


def _names(path: str, words: int) -> list[str]:
    lines = b"".join(read_chunks(path)).decode("utf-8", errors="replace").rstrip().split("\n")
    names = [line.strip() for line in lines]
    if "" in names:
        raise ValueError(f"{path}:{names.index('') + 1}: a line without a word")
    if len(names) < words:
        raise ValueError(f"{path}: {len(names):,} words, and the documents have {words:,}")
    return names


def _model(options: Namespace) -> Any:
    counts = load_model(options.model, "apps.lda").get("counts", np.empty(0))
    if counts.ndim != 2 or counts.shape[1] != options.topics or not np.all((counts >= 0) & (counts < np.inf)):
        raise ValueError(f"{options.model}: its counts must be finite, of {options.topics} topics (--topics)")
    return counts.astype(np.float32)
