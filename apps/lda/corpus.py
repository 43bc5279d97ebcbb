"""Bags of words: documents as runs of tokens, read from files or made of known topics; the names of words, a model."""

from __future__ import annotations

import re
import warnings
from argparse import Namespace
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import malt
from apps.harness import Array, load_model
from apps.lda.kernels import Floats
from malt.data import read_chunks

_HEADER = 3
"""Lines of UCI's format before those of counts: documents, words, lines of counts."""
_START_NBYTES = np.dtype(np.int64).itemsize
_EXACT = 1 << 24
"""The largest count that float32 holds with all smaller ones."""


class Corpus(NamedTuple):
    """Document i has the words words[starts[i]:starts[i + 1]], in ascending order, each as often as it is there."""

    starts: NDArray[np.int64]
    words: NDArray[np.int32]
    vocabulary: int
    """The number of different words."""

    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of each document."""
        return np.diff(self.starts)


def corpus(documents: Array, words: Array, counts: Array, shape: tuple[int, int], path: str) -> Corpus:
    """The corpus of these counts of words in documents. Local. ValueError: a count is wrong, or there is none."""
    if np.any(counts < 0) or np.any(counts != np.floor(counts)):
        raise ValueError(f"{path}: counts of words must be integers of at least 0")
    if not np.any(counts):
        raise ValueError(f"{path}: there are no words")
    if np.bincount(words, counts).max() > _EXACT:
        raise ValueError(f"{path}: a word is there more than {_EXACT:,} times: leave out the most frequent words")
    repeated = np.repeat(np.stack([documents, words]), counts.astype(np.int64), axis=1)
    documents, words = repeated[:, np.lexsort(repeated[::-1])]
    starts = np.concatenate([[0], np.cumsum(np.bincount(documents, minlength=shape[0]))])
    return Corpus(starts, words.astype(np.int32), shape[1])


def read(path: Any, zero_based: bool | None = None) -> tuple[Corpus, bool]:
    """The corpus of a file in UCI's format or svmlight's, and whether that numbers words from 0. Collective.

    ValueError, OSError: it cannot be read, or is neither.
    """
    if malt.together(lambda: _is_uci(path)):
        return malt.together(lambda: _uci(path)), False
    given: dict[str, Any] = {} if zero_based is None else {"zero_based": zero_based}
    data = malt.open_svmlight(path, labels="raw", **given)
    rows = data.X.tocoo()
    return malt.together(lambda: corpus(rows.row, rows.col, rows.data, rows.shape, path)), data.zero_based


def _is_uci(path: Any) -> bool:
    """Return whether the first lines hold a number each."""
    head = list(islice(_lines(path), _HEADER))
    return len(head) == _HEADER and all(re.fullmatch(r"\s*[0-9]+\s*", line) for line in head)


def _uci(path: Any) -> Corpus:
    lines = _lines(path)
    documents, words, count = map(int, islice(lines, _HEADER))
    free = malt.free_memory()
    if free is not None and _START_NBYTES * documents > free:
        raise ValueError(f"{path}: {documents:,} documents, as the header says, do not fit in memory")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there are no lines
        try:
            rows = np.loadtxt(lines, dtype=np.int64, comments=None, ndmin=2).T
        except ValueError as error:
            if str(error).startswith(str(path)):  # the file is damaged
                raise
            raise ValueError(f"{path}: after the header: {str(error).splitlines()[0]}") from None
    if not rows.size:
        rows = np.empty((3, 0), np.int64)
    if len(rows) != 3:
        raise ValueError(f"{path}: expected document, word and count in each line, found {len(rows)} numbers")
    if rows.shape[1] != count:
        raise ValueError(f"{path}: {rows.shape[1]:,} lines of counts, and {count:,} as the header says: fetch it again")
    for name, found, most in (("document", rows[0], documents), ("word", rows[1], words)) if count else ():
        if found.min() < 1 or found.max() > most:
            raise ValueError(f"{path}: a {name} must have a number from 1 to {most}, as the header says")
    return corpus(rows[0] - 1, rows[1] - 1, rows[2], (documents, words), path)


def _lines(path: Any) -> Iterator[str]:
    """The lines that are not blank."""
    for chunk in read_chunks(str(path)):
        yield from filter(str.strip, chunk.decode("latin-1").split("\n"))


def planted(
    seed: int, documents: int = 400, words: int = 500, topics: int = 10, length: int = 80, tested: int = 50
) -> tuple[Corpus, Corpus]:  # fmt: skip
    """Documents of known topics, to train and to test on. The seed alone determines both. Local."""
    generator = np.random.default_rng(seed)
    cumulated = np.cumsum(generator.dirichlet(np.full(words, 0.05), topics), axis=1)
    lengths = generator.poisson(length, documents + tested) + 2
    shares = np.cumsum(generator.dirichlet(np.full(topics, 0.1), documents + tested), axis=1)
    document = np.repeat(np.arange(len(lengths)), lengths)
    draws = generator.random((2, len(document)))
    topic = np.minimum((shares[document] < draws[0][:, np.newaxis]).sum(axis=1), topics - 1)
    word = np.empty(len(document), np.int64)
    for number in range(topics):
        mine = topic == number
        word[mine] = np.minimum(np.searchsorted(cumulated[number], draws[1][mine]), words - 1)
    parts = (document < documents, 0, documents), (document >= documents, documents, tested)
    train, test = (
        corpus(document[mine] - first, word[mine], np.ones(int(mine.sum())), (count, words), "")
        for mine, first, count in parts
    )
    return train, test


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
