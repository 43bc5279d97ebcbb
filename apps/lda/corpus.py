"""Bags of words: documents as runs of tokens, read from files or made of known topics."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import malt
from apps.harness import Array

_HEADER = 3
"""Lines of UCI's format before those of counts: documents, words, lines."""
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
        raise ValueError(f"{path}: counts of words must be whole numbers from 0 up")
    repeated = np.repeat(np.stack([documents, words]), counts.astype(np.int64), axis=1)
    documents, words = repeated[:, np.lexsort(repeated[::-1])]
    if not len(words):
        raise ValueError(f"{path}: there are no words")
    if np.bincount(words).max() > _EXACT:
        raise ValueError(f"{path}: a word is there more than {_EXACT:,} times: leave out the most frequent words")
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
    """Whether the first lines hold a number each."""
    with open(path, "rb"):  # whose error has the number of the error and the name of the file
        pass
    try:
        return _numbers(path, max_rows=_HEADER).shape == (_HEADER, 1)
    except ValueError:
        return False


def _uci(path: Any) -> Corpus:
    documents, words = _numbers(path, max_rows=_HEADER)[:2, 0]
    try:
        rows = _numbers(path, skiprows=_HEADER).T
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).splitlines()[0]}") from None
    if len(rows) != 3:
        raise ValueError(f"{path}: expected document, word and count in each line, found {len(rows)} numbers")
    for name, found, most in (("document", rows[0], documents), ("word", rows[1], words)):
        if found.min() < 1 or found.max() > most:
            raise ValueError(f"{path}: a {name} must have a number from 1 to {most}, as the header says")
    return corpus(rows[0] - 1, rows[1] - 1, rows[2], (int(documents), int(words)), path)


def _numbers(path: Any, **options: Any) -> NDArray[np.int64]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there are no lines
        return np.loadtxt(path, dtype=np.int64, ndmin=2, **options)


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
