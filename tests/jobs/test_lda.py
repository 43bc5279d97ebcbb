"""apps.lda as a user runs it: on any number of ranks, resumed, with ranks that fail, with bad input."""

import json
import pydoc_data.topics
import re
from collections import Counter

import numpy as np
import pytest
from programs import dying_after, in_process, on_simulated_ranks
from ranks import run_failing

pytest.importorskip("numba")

import malt
from apps.harness import BadInput
from apps.lda import program
from apps.lda.corpus import planted
from apps.lda.measuring import HeldOut

pytestmark = pytest.mark.serial

FEW = ["--epochs", 4]


@pytest.fixture
def simulated(tmp_path):
    """simulated(ranks, *arguments): the report of a run on simulated ranks, and the model that it saves."""
    return on_simulated_ranks(program.run, tmp_path)


def test_topics_are_found_on_any_number_of_ranks(simulated):
    train, _ = planted(0)
    for ranks in (1, 3):
        report, model = simulated(ranks, "--epochs", 40)
        assert np.array_equal(model["counts"].sum(axis=1), np.bincount(train.words, minlength=500))
        assert report["final"]["perplexity"] < 105 and report["epochs"][1]["perplexity"] > 150
        assert report["epochs"][-1]["examples"] == 40 * len(train.words)
        last = report["epochs"][-1]
        assert last["train_perplexity"] < 100
        assert last["tokens_per_s"] == (None if ranks == 1 else last["examples"] / last["seconds"])
        largest = np.argmax(model["counts"].sum(axis=0))
        assert report["final"]["topics"][0][0] == str(np.argmax(model["counts"][:, largest]) + 1)
        part, changes = -(-500 // ranks) * 10 * 4, (10 + 1) * 8  # of ten topics: what a rank reads and sends in a step
        visit = ranks * ranks * (part + (ranks - 1) * changes) if ranks > 1 else 0
        assert np.diff([epoch["bytes_sent"] for epoch in report["epochs"]]).min() == visit


def test_a_resumed_run_ends_bit_by_bit_as_one_that_never_failed(simulated, tmp_path):
    whole, model = simulated(2, *FEW)
    keeping = [*FEW, "--checkpoint", tmp_path / "train.ckpt", "--checkpoint-every", 0]
    with dying_after(2):
        simulated(2, *keeping)
    rest, others = simulated(2, *keeping, "--resume")
    assert rest["resumed_from"] == 2 and rest["final"]["perplexity"] == whole["final"]["perplexity"]
    assert np.array_equal(others["counts"], model["counts"])
    over, others = simulated(3, *keeping, "--resume")
    assert over["epochs"] == [] and np.array_equal(others["counts"], model["counts"])
    assert over["final"]["perplexity"] == pytest.approx(rest["final"]["perplexity"], rel=1e-6)


FAILURES = [{1: 800}, {2: 40, 0: 900}, {0: 1000, 1: 1004}, {2: 1300}]


@pytest.mark.parametrize("seed", range(len(FAILURES)))
def test_where_a_rank_fails_the_others_keep_the_topics_that_they_have(tmp_path, seed, capsys, monkeypatch):
    lost = [malt.LostRank(rank, 0.0, "") for rank in sorted(FAILURES[seed])]
    monkeypatch.setattr(malt, "lost_ranks", lambda: lost)
    report, model = tmp_path / "report.json", tmp_path / "model.npz"
    words = ["--epochs", "20", "--json", str(report), "--save", str(model)]
    _, failed = run_failing(3, seed, FAILURES[seed], lambda rank: program.run(words))
    found, errors = json.loads(report.read_text()), capsys.readouterr().err
    told = set(re.findall(r"the topics of [\d,]+ tokens are reinitialized in epoch (\d+)", errors))
    assert failed == FAILURES[seed].keys() and told
    assert {str(one["anew_in_epoch"]) for one in found["lost_ranks"]} == told
    assert all(f" documents of rank {rank} are dealt to rank" in errors for rank in failed)
    perplexities = [epoch["train_perplexity"] for epoch in found["epochs"]]
    assert [epoch["epoch"] for epoch in found["epochs"]] == list(range(1, 21))
    assert perplexities[0] > 240 and max(perplexities[5:]) < 200  # 250 where all begin anew
    counts = malt.files.load_npz(model)["counts"]
    assert np.array_equal(counts.sum(axis=1), np.bincount(planted(0)[0].words, minlength=500))


def test_a_model_is_measured_and_trained_on(simulated, tmp_path, capsys):
    first, _ = simulated(2, "--epochs", 20)
    model = ["--model", tmp_path / "model.npz"]
    in_process(program.run, capsys)(*model, "--json", tmp_path / "measured.json")
    measured = json.loads((tmp_path / "measured.json").read_text())
    assert measured["final"]["perplexity"] == pytest.approx(first["final"]["perplexity"], rel=1e-5)
    uci(planted(0)[0], tmp_path / "corpus")
    begun, _ = simulated(2, tmp_path / "corpus", *model, "--epochs", 1)
    anew, _ = simulated(2, tmp_path / "corpus", "--epochs", 1)
    assert begun["final"]["train_perplexity"] < anew["final"]["train_perplexity"] / 2


def uci(corpus, path):
    """Write a corpus in UCI's format."""
    pairs = Counter(zip(np.repeat(np.arange(len(corpus.starts) - 1), corpus.lengths()), corpus.words, strict=True))
    lines = [f"{document + 1} {word + 1} {count}" for (document, word), count in pairs.items()]
    header = [len(corpus.starts) - 1, corpus.vocabulary, len(pairs)]
    path.write_text("\n".join(map(str, [*header, *lines])) + "\n")


WRONG = {
    "document": ("2\n2\n1\n3 1 1\n", "a document must have a number from 1 to 2, as the header says"),
    "word": ("2\n2\n1\n1 0 1\n", "a word must have a number from 1 to 2, as the header says"),
    "short": ("2\n2\n1\n1 1\n", "expected document, word and count in each line, found 2 numbers"),
    "text": ("2\n2\n1\n1 1 x\n", "could not convert string 'x' to int64"),
    "comment": ("2\n2\n1\n1 1 1 # 2\n", "could not convert string '#' to int64"),
    "cut": ("2\n2\n3\n1 1 1\n1 2 1\n", "2 lines of counts, and 3 as the header says"),
    "nothing": ("2\n2\n3\n", "0 lines of counts, and 3 as the header says"),
    "large": ("9" * 17 + "\n2\n1\n1 1 1\n", "documents, as the header says, do not fit in memory"),
    "fraction": ("0 1:1.5\n", "counts of words must be integers of at least 0"),
    "negative": ("0 1:-1\n", "counts of words must be integers of at least 0"),
    "many": (f"1\n2\n1\n1 1 {10**12}\n", "a word is there more than 16,777,216 times"),
    "empty": ("0\n", "there are no words"),
    "empty, in UCI's format": ("2\n2\n0\n", "there are no words"),
    "missing": (None, "No such file or directory"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_one_line(tmp_path, capsys, name):
    text, message = WRONG[name]
    if text is not None:
        (tmp_path / "corpus").write_text(text)
    with pytest.raises(BadInput) as raised:
        in_process(program.run, capsys)(tmp_path / "corpus")
    assert message in str(raised.value) and "\n" not in str(raised.value) and "corpus" in str(raised.value)


def test_options_that_do_not_go_together(simulated, tmp_path, capsys):
    simulated(1, "--epochs", 0)
    (tmp_path / "words").write_text("one\ntwo\n")
    model = ["--model", tmp_path / "model.npz"]
    for options, message in [
        (["--test", "x"], "--test needs CORPUS"), ([*model, "--topics", 11], r"of 11 topics \(--topics\)"),
        (["--vocab", tmp_path / "words"], "2 words, and the documents have 500"), (["--topics", 0], "of at least 1"),
    ]:  # fmt: skip
        with pytest.raises(BadInput, match=message):
            in_process(program.run, capsys)(*options)


def documentation():
    """Paragraphs of Python's own documentation as a corpus, to train and to test on, and its words."""
    texts = "\n\n".join(text for _, text in sorted(pydoc_data.topics.topics.items())).split("\n\n")
    bags = [re.findall(r"[a-z]{3,}", text.lower()) for text in texts]
    bags = [bag for bag in bags if len(bag) >= 20]
    document_counts = Counter(word for bag in bags for word in set(bag))
    names = sorted(word for word, count in document_counts.items() if 3 <= count < len(bags) / 5)
    numbers = {word: number for number, word in enumerate(names)}
    return [[numbers[word] for word in bag if word in numbers] for bag in bags], names


def corpora():
    """Documents to train and to test on, and the number of topics."""
    from apps.lda.corpus import corpus

    bags, names = documentation()
    parts = [bag for number, bag in enumerate(bags) if number % 10], bags[::10]
    return *(
        corpus(
            np.repeat(np.arange(len(some)), list(map(len, some))), np.concatenate(some), np.ones(sum(map(len, some))),
            (len(some), len(names)), "",
        ) for some in parts
    ), 20  # fmt: skip


@pytest.mark.thorough
def test_held_out_documents_are_predicted_as_well_as_by_scikit_learn(simulated, tmp_path):
    """On four ranks."""
    decomposition = pytest.importorskip("sklearn.decomposition")
    train, test, topics = corpora()
    uci(train, tmp_path / "train")
    uci(test, tmp_path / "test")
    X = np.zeros((len(train.starts) - 1, train.vocabulary))
    np.add.at(X, (np.repeat(np.arange(len(X)), train.lengths()), train.words), 1)
    peer = decomposition.LatentDirichletAllocation(topics, doc_topic_prior=0.1, topic_word_prior=0.01, random_state=0)
    counts = (peer.fit(X).components_ - 0.01).T.astype(np.float32)
    held = HeldOut(test, 0, set())
    expected = held.perplexity(counts[held.words], counts.sum(axis=0), 0.1, 0.01, len(counts))
    words = [tmp_path / "train", "--test", tmp_path / "test", "--topics", topics, "--epochs", 100]
    assert simulated(4, *words)[0]["final"]["perplexity"] < 1.02 * expected
