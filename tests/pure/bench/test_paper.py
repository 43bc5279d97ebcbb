"""bench.papers.malt: the shapes of the MALT paper's data, what ranks send of each model, and the page that says so."""

import json
import math
from argparse import Namespace

import numpy as np
import pytest
from failing_jobs import under_one_mpi
from measured import kept, quickly

from bench.benchmarks.svm import planted
from bench.papers.malt import __main__ as program
from bench.papers.malt import experiments, workloads

pytestmark = pytest.mark.serial
MESSAGES = {"all": 56, "halton": 24}
"""Of an exchange of 8 ranks."""
EVERY = 200


@pytest.fixture
def posed(tmp_path):
    """A linear SVM on these rows."""
    return lambda data: workloads.svm("rows", data, tmp_path, EVERY)


@pytest.fixture
def news(monkeypatch, posed):
    """Rows like those of RCV1."""
    monkeypatch.setattr(planted, "ROWS", EVERY * 8)
    return posed(planted.made())


def test_sparse_vectors_send_less_of_rows_like_those_of_text(news):
    rows = experiments.traffic(news, "all")
    whole = experiments.traffic(news._replace(sparse=("--vector", "dense", *news.sparse[2:])), "all")
    assert 0 < rows["sent"] < whole["sent"] / 2 and whole["sent"] == whole["dense"] == rows["dense"]
    assert rows["measured"] == pytest.approx(whole["measured"], rel=1e-4)


def test_sparse_graphs_send_less(news):
    found = {graph: experiments.traffic(news, graph) for graph in ("all", "halton")}
    for graph, one in found.items():
        assert one["messages"] == workloads.EXCHANGES * MESSAGES[graph]
    assert found["halton"]["sent"] < found["all"]["sent"] / 2


def test_rows_of_all_features_send_no_less(posed):
    found = experiments.traffic(posed(workloads.dense(EVERY * 8, 500)), "all")
    assert 1 < found["sent"] / found["dense"] < 1.05


@pytest.mark.parametrize(
    "make, columns, features",
    [(lambda seed: workloads.dense(300, 50, seed), 50, 50), (lambda seed: workloads.strings(300, 20, seed), 80, 20)],
    ids=["dense", "strings"],
)
def test_rows_follow_the_seed_and_have_length_1(make, columns, features):
    data, again, other = make(1), make(1), make(2)
    assert data.X.shape == (300, columns) and data.X.nnz == 300 * features and data.X.has_sorted_indices
    assert (data.X != again.X).nnz == 0 and (data.y == again.y).all() and (data.X != other.X).nnz
    assert np.allclose(data.X.power(2).sum(axis=1), 1, atol=1e-5)
    assert set(data.y) == {-1, 1} and abs(data.y.mean()) < 0.1


def test_few_of_the_features_of_pages_occur():
    scale = workloads.QUICK._replace(page_rows=100)
    X = workloads.pages(scale).X
    assert X.shape == (100, scale.page_features) and X.nnz == 100 * scale.page_length
    present = np.unique(X.indices)
    assert present.max() < scale.page_features and len(present) < scale.page_occurring
    assert (np.diff(X.indices.reshape(100, -1)) >= 0).all()


class Fast(workloads.Workload):
    """One whose ranks need a second for an epoch, divided among them, and come 0.01 closer to 1 by it."""

    def report(self, ranks, seed):
        count = self.epochs[ranks > 1]
        errors = [1.1 - 0.01 * epoch + 0.004 * (ranks - 1) for epoch in range(1, count + 1)]
        rows = [{"epoch": place, "seconds": place / ranks, "examples": 100 * place, "error": error}
                for place, error in enumerate(errors, 1)]  # fmt: skip
        return {"epochs": rows}


def test_the_time_of_several_ranks_is_that_to_the_end_of_one():
    one = Fast("name", "kind", 1, 1, 1, (), (), "error", 1.005, (10, 20))
    found = experiments.speedup(one, 3)
    assert found["target"] == pytest.approx(1.005) and found["epochs"] == [10, 10]
    assert found["one"] == [10.0] * 3 and found["several"] == [5.0] * 3 and found["ratio"] == found["rate"] == 2
    late = experiments.speedup(one._replace(epochs=(10, 9)), 1)
    assert late["several"] == [math.inf] and late["ratio"] == 0


def test_a_quick_run_times_one_workload(monkeypatch):
    one = Fast("RCV1", "kind", 1, 1, 1, ("apps.svm",), (), "error", 1.005, (10, 20))
    made = [one, one._replace(name="alpha"), one._replace(name="KDD12")]
    monkeypatch.setattr(program, "shapes", lambda scale, folder: made)
    found = program.timed(Namespace(scale=program.QUICK, scratch=None), {})
    assert [one["name"] for one in found["shapes"]] == ["RCV1", "alpha", "KDD12"]
    assert [one["name"] for one in found["speedup"]] == ["RCV1"] and found["rounds"] == 1


class Alone(workloads.Workload):
    """One whose single rank takes a millisecond for a row, and ends at an objective that two epochs reach."""

    def report(self, ranks, seed):
        assert ranks == 1
        rows = [{"epoch": place, "seconds": self.rows * place * 1e-3, "examples": self.rows * place, "objective": end}
                for place, end in ((1, 0.9), (2, 0.5))]  # fmt: skip
        return {"epochs": rows}


@pytest.mark.parametrize("merge_s", [0, 0.2])
def test_ranks_on_hosts_of_their_own_compute_and_merge_in_virtual_time(posed, monkeypatch, merge_s):
    monkeypatch.setattr(experiments, "HOSTS", (2, 4))
    monkeypatch.setattr(experiments, "EVERY", EVERY)
    monkeypatch.setattr(experiments, "merge_s", lambda _: merge_s)
    one = Alone(*posed(workloads.dense(EVERY * 8, 50)))._replace(close=1.1)
    found = experiments.on_hosts(one)
    assert found["row_s"] == pytest.approx(1e-3) and found["one"] == pytest.approx([2 * one.rows * 1e-3, 2])
    for ranks, (seconds, epochs, _) in zip(experiments.HOSTS, found["graphs"]["all"], strict=True):
        merged = EVERY * 1e-3 + (ranks - 1) * merge_s
        assert seconds == pytest.approx(epochs * one.rows / ranks / EVERY * merged, rel=0.01)


def test_a_link_that_is_too_slow_for_all_peers_is_fast_enough_for_few(posed, monkeypatch):
    monkeypatch.setattr(experiments, "EVERY", 20)
    one = posed(workloads.dense(EVERY * 8, 500))._replace(epochs=(1, 2))
    links = (("all", 5e8), ("halton", 5e8), ("all", 1e15))  # a model of 2 KB every 20 us
    slow, few, free = (experiments.several(one, graph, 8, (1e-6, 0.0), (0.0, rate))["left"] for graph, rate in links)
    assert slow < 0.8 and few > 0.9 < free


def test_the_figures_of_the_page_are_those_of_a_whole_run():
    found = kept("malt")
    names = [one["name"] for one in found["shapes"]]
    assert names == [one["name"] for one in found["speedup"]] == [one["name"] for one in found["traffic"]]
    for one in found["traffic"]:
        if one["name"] in ("RCV1", "webspam", "KDD12"):
            assert one["sent"] < one["dense"] / 2


def test_the_page_names_what_keeps_all_back_among_many_hosts():
    news, many = kept("malt")["hosts"][0], experiments.HOSTS.index(program.MANY)
    whole, few = (news["graphs"][graph] for graph in experiments.GRAPHS)
    assert few[many] < whole[many] and few[-1] < whole[-1] and few[many][0] < news["one"][0]
    assert whole[many][2] < 0.9 and few[many][2] > 0.95


@pytest.mark.thorough
@under_one_mpi
def test_a_quick_run_prints_its_tables(tmp_path):
    """The ranks that are killed train few rows, interpreted: to load kernels takes them longer."""
    (tmp_path / "found.json").write_text(json.dumps(kept("malt")))
    quickly("bench.papers.malt", tmp_path, program.tables, "--only", "failure", NUMBA_DISABLE_JIT="1")
    found, _ = quickly("bench.papers.malt", tmp_path, program.tables, "--only", "hosts", "traffic")
    assert len(found["hosts"]) == 1 and len(found["traffic"]) == len(found["shapes"])
    failed = found["failure"]
    assert failed["lost"]["rank"] == failed["back"]["rank"] == experiments.FAILING - 1
    assert failed["back"]["back_at_s"] > failed["back"]["at_s"]
    ends = [failed[name][-1][1] for name in experiments.FAILURES]
    assert ends == pytest.approx([ends[0]] * 3, rel=0.05) and max(ends) < failed["killed"][0][1]
    assert program.figures(found)["failing"] == experiments.FAILING
