"""apps.embed as a user runs it: on any number of ranks, resumed, with ranks that fail, with bad input."""

import json

import numpy as np
import pytest
from programs import dying_after, in_process, on_simulated_ranks
from ranks import run_failing

pytest.importorskip("numba")
pytest.importorskip("sklearn")

import malt
from apps.embed import planted, program
from apps.embed.vectors import Vectors
from apps.harness import BadInput

pytestmark = pytest.mark.serial

FEW = ["--walks", 3, "--length", 20, "--dim", 10]
NODES = 1_000
"""Of a large graph."""
KEPT = [0, 1, 4, 5, 6]
"""The dimensions of 7 that ranks 0 and 2 of 3 have."""


@pytest.fixture
def simulated(tmp_path):
    """simulated(ranks, *arguments): the report of a run on simulated ranks, and the model that it saves."""
    return on_simulated_ranks(program.run, tmp_path)


def test_the_vectors_of_several_ranks_are_those_of_one(simulated):
    """Also where a rank has no dimension. Each pair costs each rank a scalar for each of its products."""
    options = [*FEW, "--p", 0.5, "--q", 2, "--dim", 2]
    alone, one = simulated(1, *options)
    for ranks in (2, 3):
        report, several = simulated(ranks, *options)
        for name in ("vectors", "contexts"):
            assert several[name] == pytest.approx(one[name], abs=1e-4)
        assert [epoch["loss"] for epoch in report["epochs"]] == pytest.approx(
            [epoch["loss"] for epoch in alone["epochs"]], rel=1e-5
        )
        pairs = report["epochs"][-1]["examples"]
        assert report["epochs"][-1]["bytes_sent"] == pytest.approx(2 * (ranks - 1) * 4 * 6 * pairs, rel=0.01)


def test_a_window_may_be_wider_than_a_walk(simulated):
    """The process ended by SIGSEGV."""
    whole, widest = (simulated(1, *FEW, "--length", 5, "--window", window)[0] for window in (4, 2**63 - 1))
    assert whole["final"]["model_sha256"] == widest["final"]["model_sha256"]


def test_steps_of_a_node_in_one_exchange_do_not_add_up_at_hubs(simulated, tmp_path):
    """The star has a loop at its centre, which is in half of all pairs."""
    edges = tmp_path / "edges"
    edges.write_text("hub hub\n" + "".join(f"hub {node}\n" for node in range(50)))
    report, model = simulated(1, edges, "--walks", 5, "--dim", 10, "--step", 0.1)
    assert report["final"]["loss"] < 0.7 * 6 * np.log(2) and np.abs(model["vectors"]).max() < 10


def test_a_resumed_run_ends_bit_by_bit_as_one_that_never_failed(simulated, tmp_path):
    whole, vectors = simulated(1, *FEW)
    keeping = [*FEW, "--checkpoint", tmp_path / "train.ckpt", "--checkpoint-every", 0]
    with dying_after(2):
        simulated(1, *keeping)
    rest, others = simulated(1, *keeping, "--resume")
    assert rest["resumed_from"] == 2 and rest["epochs"][-1]["loss"] == whole["epochs"][-1]["loss"]
    assert np.array_equal(others["vectors"], vectors["vectors"])
    over, others = simulated(3, *keeping, "--resume")
    assert over["epochs"] == [] and np.array_equal(others["contexts"], vectors["contexts"])
    assert {**over["final"], "model_sha256": 0} == {**rest["final"], "model_sha256": 0}


def test_where_a_rank_fails_the_others_train_its_dimensions_anew(tmp_path, capsys):
    report, model = tmp_path / "report.json", tmp_path / "model.npz"
    words = [*map(str, FEW), "--exchange-every", "100", "--json", str(report), "--save", str(model)]
    _, failed = run_failing(3, 0, {1: 300}, lambda rank: program.run(words))
    found, errors = json.loads(report.read_text()), capsys.readouterr().err
    assert failed == {1} and "malt: 3 of 10 dimensions are reinitialized in epoch " in errors
    assert [epoch["epoch"] for epoch in found["epochs"]] == [1, 2, 3]
    assert found["epochs"][2]["loss"] < found["epochs"][0]["loss"] - 0.5
    assert malt.files.load_npz(model)["vectors"].shape == (500, 10)


def test_where_there_is_a_checkpoint_the_others_go_on_from_it(tmp_path, capsys):
    report = tmp_path / "report.json"
    words = [*map(str, FEW), "--exchange-every", "100", "--json", str(report)]
    words += ["--checkpoint", str(tmp_path / "train.ckpt"), "--checkpoint-every", "0"]
    _, failed = run_failing(3, 0, {1: 1900}, lambda rank: program.run(words))
    found = json.loads(report.read_text())
    assert failed == {1} and "are reinitialized" not in capsys.readouterr().err
    assert found["resumed_from"] == 1 and [epoch["epoch"] for epoch in found["epochs"]] == [2, 3]


def test_a_rank_that_fails_leaves_the_dimensions_of_the_others_as_they_are():
    generator = np.random.default_rng(0)
    own, near = (generator.standard_normal((9, 7)).astype(np.float32) for _ in range(2))

    def live(rank):
        vectors = Vectors(7, 9, (4, 2), {})
        vectors.put(own, near)
        with pytest.raises(malt.PeerLost):
            while True:
                malt.barrier()
        for vector in malt.init().sharded:
            vector.close()
        lost = vectors.rebuild(5)
        malt.barrier()
        return lost, *vectors.whole()

    results, failed = run_failing(3, 0, {1: 200}, live)
    assert failed == {1}
    for lost, found, contexts in (results[0], results[2]):
        assert lost == 2 and np.array_equal(found[:, KEPT], own[:, KEPT])
        assert np.array_equal(contexts[:, KEPT], near[:, KEPT]) and not contexts[:, 2:4].any()
        assert np.abs(found[:, 2:4]).min() > 0 and np.abs(found[:, 2:4]).max() <= 1 / 14


def test_a_model_is_measured_and_trained_on(simulated, tmp_path):
    first, vectors = simulated(2, *FEW)
    model = ["--model", tmp_path / "model.npz"]
    again, others = simulated(3, *FEW, *model, "--walks", 0)
    assert np.array_equal(others["vectors"], vectors["vectors"]) and again["final"]["nmi"] == first["final"]["nmi"]
    more, _ = simulated(2, *FEW, *model, "--walks", 1)
    assert more["epochs"][0]["loss"] < first["epochs"][0]["loss"] - 0.5


def test_edges_and_labels_of_files(simulated, tmp_path):
    """Names of nodes may be any words. Labels may stand in any order, and may be there for other nodes, too."""
    edges, communities = planted.graph(0, 200, 2)
    (tmp_path / "edges").write_text("# a comment\n" + "".join(f"n{one} n{other}\n" for one, other in edges))
    lines = [f"n{node} {'ab'[community]}\n" for node, community in enumerate(communities)]
    (tmp_path / "labels").write_text("other c\n" + "".join(reversed(lines)))
    report, model = simulated(2, tmp_path / "edges", "--labels", tmp_path / "labels", *FEW, "--walks", 15)
    assert report["final"]["nmi"] > 0.9 and set(model["nodes"]) == {f"n{node}" for node in range(200)}
    report, _ = simulated(2, tmp_path / "edges", *FEW)
    assert report["final"]["nmi"] is None


WRONG = {
    "three": (["a b\n", "a b c\n"], "", [], "edges:2: expected two names a line, found 3"),
    "cut": (["C# F#\n", "C# G # more\n"], "", [], "edges:2: expected two names a line, found 4"),
    "comment": (["#from to\n", "a b\n"], "", [], "the first names, #from and to, seem to be titles: remove that line"),
    "titles": (["source target\n", "1 2\n"], "", [], "the first names, source and target, seem to be titles"),
    "labels": (["a b\n"], "a 1\nb 2\na 2\n", [], "node a has two labels, 1 and 2"),
    "bytes": (["a b\n", "a \udce9\n"], "", [], "edges:2: not UTF-8"),
    "empty": (["# nothing\n"], "", [], "expected two names a line, found"),
    "unlabelled": (["a b\n"], "a 1\n", [], "there is no label for node b"),
    "missing": (None, "", [], "No such file or directory"),
    "step": (["a b\n", "b c\n"], "", ["--step", "1e30"], "the loss is not finite: take a smaller --step"),
    "p": (["a b\n"], "", ["--p", "1e-320"], "argument --p: must be a number from 0.0001 to 10000, got 1e-320"),
    "q": (["a b\n"], "", ["--q", "inf"], "argument --q: must be a number from 0.0001 to 10000, got inf"),
    "window": (["a b\n"], "", ["--window", "0"], "must be an integer of at least 1, got 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_one_line(tmp_path, capsys, name):
    lines, labels, options, message = WRONG[name]
    words = [str(tmp_path / "edges"), *options]
    if lines is not None:
        (tmp_path / "edges").write_text("".join(lines), errors="surrogateescape")
    if labels:
        (tmp_path / "labels").write_text(labels)
        words += ["--labels", str(tmp_path / "labels")]
    with pytest.raises(BadInput) as raised:
        in_process(program.run, capsys)(*words)
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_a_model_of_other_nodes_is_refused(simulated, tmp_path, capsys):
    simulated(1, *FEW)
    for options, message in (["--dim", 11], "10|11 numbers"), (["--dim", 10, "--labels", "x"], "--labels needs EDGES"):
        with pytest.raises(BadInput, match=message):
            in_process(program.run, capsys)("--model", tmp_path / "model.npz", *options)
    (tmp_path / "edges").write_text("a b\n")
    with pytest.raises(BadInput, match="not a model of apps.embed of the nodes of this graph"):
        in_process(program.run, capsys)(tmp_path / "edges", "--model", tmp_path / "model.npz")


@pytest.mark.thorough
def test_communities_of_a_large_graph_are_recovered(simulated, tmp_path):
    """By one rank, whose vectors several have, as is tested above."""
    edges, communities = planted.graph(3, NODES, 10)
    np.savetxt(tmp_path / "edges", edges, "%d")
    np.savetxt(tmp_path / "labels", np.stack([np.arange(NODES), communities], axis=1), "%d")
    options = ["--walks", 3, "--length", 20, "--dim", 32, "--step", 0.1, "--exchange-every", 500]
    files = [tmp_path / "edges", "--labels", tmp_path / "labels"]
    report, _ = simulated(1, *files, *options)
    assert report["final"]["nmi"] >= 0.9
