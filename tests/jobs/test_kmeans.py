"""apps.kmeans: against scikit-learn from the same centres, and as ranks fail."""

import json

import numpy as np
import pytest
from programs import in_process, last_line
from ranks import run_failing

pytest.importorskip("numba")

import malt
from apps.harness import BadInput
from apps.kmeans import program

pytestmark = pytest.mark.serial


def write(path, X):
    path.write_text("".join(f"0 {' '.join(f'{j + 1}:{x!r}' for j, x in enumerate(row) if x)}\n" for row in X.tolist()))


@pytest.fixture
def rows(tmp_path):
    """Rows of six clusters, of dyadic numbers, which float32 holds; and their file."""
    draw = np.random.default_rng(0)
    X = draw.integers(-4, 5, (6, 5))[draw.integers(6, size=600)] + draw.integers(-16, 17, (600, 5)) / 16
    X[draw.random(X.shape) < 0.2] = 0
    X[0] = 0
    write(tmp_path / "rows.svm", X)
    return tmp_path / "rows.svm", X


@pytest.fixture
def report(tmp_path, capsys):
    """report(ranks, *arguments): what a run on simulated ranks reports, and the centres that it saves."""

    def report(ranks, *arguments):
        file, model = tmp_path / "report.json", tmp_path / "model.npz"
        words = [str(word) for word in (*arguments, "--json", file, "--save", model)]
        malt.simulate(lambda rank: program.run(words), ranks)
        return json.loads(file.read_text()), malt.files.load_npz(model)["centres"]

    return report


def saved(tmp_path, centres):
    path = tmp_path / "start.npz"
    malt.files.save_npz(path, program="apps.kmeans", centres=np.asarray(centres, np.float64))
    return path


def scikit_learn(X, start, **options):
    cluster = pytest.importorskip("sklearn.cluster")
    return cluster.KMeans(len(start), init=start, n_init=1, **options).fit(X)


@pytest.mark.parametrize("ranks", [1, 4])
def test_from_the_same_centres_it_ends_as_scikit_learn(report, rows, tmp_path, ranks):
    path, X = rows
    _, start = report(ranks, path, "--clusters", 6, "--epochs", 0)
    assert len(np.unique(start, axis=0)) == 6 and all((centre == X).all(axis=1).any() for centre in start)
    made, centres = report(ranks, path, "--clusters", 6, "--model", saved(tmp_path, start))
    theirs = scikit_learn(X, start)
    assert made["final"]["inertia"] == pytest.approx(theirs.inertia_, rel=1e-9)
    assert centres == pytest.approx(theirs.cluster_centers_)
    near = ((X[:, None] - centres) ** 2).sum(axis=2).min(axis=1).sum()
    assert made["final"]["inertia"] == made["epochs"][-1]["inertia"] == pytest.approx(near)
    assert len(made["epochs"]) == theirs.n_iter_ - 1  # the last of theirs moves no centre
    direct, _ = report(ranks, path, "--clusters", 6)
    assert direct["final"]["model_sha256"] == made["final"]["model_sha256"]
    sums = 8 * (6 * 5 + 6 + 4)  # of the rows of each cluster, their counts, four numbers: once an epoch
    assert set(np.diff([epoch["bytes_sent"] for epoch in direct["epochs"]])) == {2 * (ranks - 1) * sums}


@pytest.mark.parametrize("ranks", [1, 3])
def test_empty_clusters_take_the_farthest_rows_as_in_scikit_learn(report, rows, tmp_path, ranks):
    path, X = rows
    start = np.full((6, 5), 100.0)
    start[1], start[4] = X[0], X[1]
    made, centres = report(ranks, path, "--clusters", 6, "--model", saved(tmp_path, start), "--epochs", 1)
    theirs = scikit_learn(X, start, max_iter=1)
    assert centres == pytest.approx(theirs.cluster_centers_)
    assert made["final"]["inertia"] == pytest.approx(theirs.inertia_)


def test_more_clusters_than_different_rows(report, tmp_path):
    write(tmp_path / "rows.svm", np.array([[1.0, 2.0]] * 4 + [[0.0, 3.0]] * 2))
    made, centres = report(2, tmp_path / "rows.svm", "--clusters", 4)
    assert made["final"]["inertia"] == 0 and len(np.unique(centres, axis=0)) == 2


@pytest.mark.parametrize("batch", [50, 600])
def test_mini_batches_come_close(report, rows, batch):
    path, _ = rows
    made, _ = report(2, path, "--clusters", 6, "--batch", batch)
    whole, _ = report(2, path, "--clusters", 6)
    assert len(made["epochs"]) == 10 and made["final"]["inertia"] < 1.03 * whole["final"]["inertia"]


def test_mini_batches_fill_empty_clusters(report, rows, tmp_path):
    path, X = rows
    start = np.full((6, 5), 100.0)
    start[2] = X[1]
    made, centres = report(2, path, "--clusters", 6, "--model", saved(tmp_path, start), "--batch", 50)
    near = ((X[:, None] - centres) ** 2).sum(axis=2)
    assert len(np.unique(near.argmin(axis=1))) == 6
    assert made["final"]["inertia"] == pytest.approx(near.min(axis=1).sum())


@pytest.mark.parametrize(("options", "message"), [
    (["--clusters", "601"], "rows.svm: --clusters 601 of 600 rows: take fewer"),
    (["--batch", "5", "--tolerance", "0"], "--tolerance is for Lloyd's iterations"),
    (["--model", "{rows}"], "rows.svm: not an .npz"),
    (["--model", "{start}"], "start.npz: a model of 3 clusters of 5 features, not of 8 clusters of 5 features as here"),
])  # fmt: skip
def test_bad_input_is_one_line(rows, tmp_path, options, message):
    path, X = rows
    start = saved(tmp_path, X[:3])
    words = [option.format(rows=path, start=start) for option in options]
    with pytest.raises(BadInput, match=message) as raised:
        program.run([str(path), *words])
    assert "\n" not in str(raised.value)


@pytest.mark.thorough(but="1")
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_embedded_data(capsys, ranks):
    """Twice: the same bits. The bound is that of scikit-learn's starts from ten seeds."""
    done = [in_process(program.run, capsys)(ranks=ranks, seed=seed) for seed in range(2)]
    (inertia, digest), again = [last_line(one, r"final: inertia ([\d.]+) model ([0-9a-f]{64})") for one in done]
    assert float(inertia) < 187_000 and again == (inertia, digest)


@pytest.mark.parametrize(("turn", "options"), [(60, []), (120, []), (200, ["--batch", "50"])], ids=str)
def test_a_rank_fails_among_the_first_centres_or_later(report, rows, tmp_path, capsys, turn, options):
    words = [str(rows[0]), "--clusters", "6", *options]
    whole, _ = report(2, *words)
    _, failed = run_failing(3, 0, {1: turn}, lambda rank: program.run([*words, "--json", str(tmp_path / "failed")]))
    made = json.loads((tmp_path / "failed").read_text())
    assert failed == {1} and " rows of rank 1 are dealt to ranks 0, 2" in capsys.readouterr().err
    assert made["final"]["inertia"] < 1.03 * whole["final"]["inertia"]
