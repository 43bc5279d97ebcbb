"""What apps.lda draws and reads, against slow twins."""

from __future__ import annotations

import gzip
import math

import numpy as np
import pytest

pytest.importorskip("numba")

import malt
from apps.lda import corpus, kernels
from apps.lda.counts import Counts
from apps.lda.documents import Documents
from apps.lda.measuring import HeldOut


def test_sums_do_not_depend_on_where_arrays_are():
    """Kernels allocate arrays: wherever these lie, the same topics have the same bits."""
    generator = np.random.default_rng(0)
    starts, words = np.array([0, 40]), generator.integers(0, 50, 40).astype(np.int32)
    topics, found = generator.random((50, 10), np.float32), set()
    for _ in range(1000):
        others: list[object] = [np.empty(nbytes, np.uint8) for nbytes in generator.integers(40, 200, 50)]
        for place in generator.permutation(50)[:40]:
            others[place] = None
        found.add(kernels.complete(starts, words, topics, 0.1))
    assert len(found) == 1


@pytest.mark.thorough(but="3")
@pytest.mark.parametrize("topics", [3, 40])
def test_a_token_takes_each_topic_as_often_as_its_weight_says(topics):
    """p(topic) = (tokens of the document + alpha) (tokens of the word + beta) / (tokens of all + words beta)."""
    generator, alpha, beta, words = np.random.default_rng(0), 0.3, 0.2, 2
    around = generator.integers(1, 9, (words, topics)).astype(np.float32)  # of other documents
    others = generator.integers(topics, size=5)
    here = np.bincount(others, minlength=topics)
    expected = (here + alpha) * (around[1] + beta) / (around.sum(axis=0) + here + words * beta)
    assert len(np.unique(np.round(expected, 6))) > topics / 2
    assigned = np.append(others, 0).astype(np.int32)
    ends, places = np.array([[0, 5, 6]]), np.array([0] * 5 + [1], np.int32)  # the last token has a part of its own
    found, logs, draws = np.zeros(topics), [], 20_000
    for _ in range(draws):
        counts, totals = around[1:].copy(), around.sum(axis=0) + here
        counts[0, assigned[5]] += 1
        totals[assigned[5]] += 1
        before = totals.copy()
        logs.append(
            kernels.sweep(ends, 1, places, assigned, 1, counts, totals.astype(float), alpha, beta, 2, generator)
        )
        assert counts.sum() == around[1].sum() + 1 and before.sum() == totals.sum()
        found[assigned[5]] += 1
    assert found / draws == pytest.approx(expected / expected.sum(), abs=0.015)
    assert logs == pytest.approx([math.log(expected.sum() / (5 + topics * alpha))] * draws, rel=1e-4)


def test_counts_stay_those_of_the_tokens(everywhere):
    train, _ = corpus.planted(2, documents=30, words=40, topics=3, length=12)

    def work(rank):
        mine = np.arange(30)[malt.shard(30)]
        counts = Counts(np.bincount(train.words, minlength=40), 5, malt.alive())
        documents = Documents(train, mine, counts, 0.1, 0.1)
        documents.begin(np.random.default_rng(0).integers(5, size=len(train.words)).astype(np.int32))
        logs = [documents.sweep([epoch]) for epoch in range(2)]  # parts of 5 ranks end in the second half
        topics, found = documents.topics(len(train.words)), counts.whole()
        expected = np.zeros((40, 5))
        np.add.at(expected, (train.words, topics), 1)
        assert np.array_equal(found, expected) and np.array_equal(counts.totals, expected.sum(axis=0))
        assert sorted(counts.places) == list(range(40)) and len(set(topics)) == 5
        return logs

    assert len({tuple(logs) for logs in everywhere(work)}) == 1


def test_parts_of_the_vocabulary_have_about_as_many_tokens():
    frequencies = (10_000 / np.arange(1, 1001)).astype(np.int64)

    def work(rank):
        counts = Counts(frequencies, 2, malt.alive())
        return int(frequencies[counts.words].sum())

    sizes = malt.simulate(work, 4)
    assert sum(sizes) == frequencies.sum() and max(sizes) < 1.25 * np.mean(sizes)


def test_documents_are_completed_by_the_shares_of_their_first_half():
    generator = np.random.default_rng(1)
    topics = generator.dirichlet(np.full(6, 0.3), 4).T.astype(np.float32)  # p(word | topic), by word
    words, starts, alpha = generator.integers(6, size=15).astype(np.int32), np.array([0, 7, 7, 15]), 0.2
    expected = 0.0
    for begin, end in ((0, 7), (7, 15)):
        middle, shares = (begin + end + 1) // 2, np.full(4, 0.25)
        for _ in range(30):
            weights = shares * topics[words[begin:middle]]
            shares = alpha + (weights / weights.sum(axis=1, keepdims=True)).sum(axis=0)
            shares /= shares.sum()
        expected += np.log(topics[words[middle:end]] @ shares).sum()
    assert kernels.complete(starts, words, topics, alpha) == pytest.approx(expected, rel=1e-4)


def test_halves_of_documents_are_drawn():
    """Words ascend in a corpus: else the one half had all of the first word, and the other all of the second."""
    words = np.array(([0] * 10 + [1] * 10) * 20, np.int32)
    held = HeldOut(corpus.Corpus(np.arange(21) * 20, words, 2), 0, set())
    counts = np.diag([1000, 1000]).astype(np.float32)
    assert held.perplexity(counts, counts.sum(axis=0), 0.1, 0.01, 2) < 2.2


def test_the_first_topics_of_a_model_are_drawn_by_its_weights():
    weights = np.array([[1, 2, 3, 0], [0, 0, 0, 5]], np.float32)
    assigned = np.empty(20_000, np.int32)
    kernels.draw(np.repeat([0, 1], 10_000).astype(np.int32), weights, np.random.default_rng(0), assigned)
    assert np.bincount(assigned[:10_000], minlength=4) / 10_000 == pytest.approx([1 / 6, 1 / 3, 1 / 2, 0], abs=0.02)
    assert set(assigned[10_000:]) == {3}


def test_both_formats_are_the_same_corpus(tmp_path):
    (tmp_path / "uci").write_text("3\n5\n4\n1 2 2\n1 5 1\n3 1 1\n3 2 3\n")
    (tmp_path / "svmlight").write_text("0 2:2 5:1\n1\n0 1:1 2:3\n")
    (tmp_path / "marked.gz").write_bytes(
        gzip.compress(b"\xef\xbb\xbf3\r\n5\r\n4\r\n\r\n1 2 2\r\n1 5 1\r\n3 1 1\r\n3 2 3")
    )
    for name in ("uci", "svmlight", "marked.gz"):
        found, _ = corpus.read(str(tmp_path / name))
        assert list(found.starts) == [0, 3, 3, 7] and list(found.words) == [1, 1, 4, 0, 1, 1, 1]
        assert found.vocabulary == 5
    (tmp_path / "cut.gz").write_bytes((tmp_path / "marked.gz").read_bytes()[:-9])
    with pytest.raises(ValueError, match="cut.gz: a damaged or cut-off gzip file"):
        corpus.read(str(tmp_path / "cut.gz"))


def test_names_of_words_stand_on_lines_of_their_own(tmp_path):
    (tmp_path / "vocab").write_bytes("\ufeffone\r\nt\u2028wo\r\nthr\x0cee\r\n\r\n".encode())
    assert corpus._names(str(tmp_path / "vocab"), 3) == ["one", "t\u2028wo", "thr\x0cee"]
    (tmp_path / "vocab").write_text("one\n\ntwo\n")
    with pytest.raises(ValueError, match="vocab:2: a line without a word"):
        corpus._names(str(tmp_path / "vocab"), 2)
