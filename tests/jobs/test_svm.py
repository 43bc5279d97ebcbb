"""apps.svm as a user runs it."""

import json
import re
import sys

import numpy as np
import pytest
from documents import DOCUMENTS
from programs import ROOT, as_job, in_process, last_line, on_simulated_ranks

import malt
from apps.harness import BadInput
from apps.harness.job import main
from apps.svm.program import run
from malt.models import Sharing, linear

pytestmark = pytest.mark.serial


@pytest.fixture
def svm(job_environment):
    """Runs the program as a job of its own."""
    return as_job("apps.svm", job_environment)


@pytest.fixture
def alone(capsys):
    """Runs the program here, on simulated ranks."""
    return in_process(run, capsys)


def final(done):
    shape = r"final: objective ([\d.]+) (?:test accuracy ([\d.]+) )?model ([0-9a-f]{64})"
    objective, accuracy, model = last_line(done, shape)
    return float(objective), accuracy and float(accuracy), model


@pytest.fixture
def tiny(tmp_path):
    """Two separable classes, sorted by label."""
    rng = np.random.default_rng(0)
    lines = []
    for label in ("0", "1"):
        for _ in range(300):
            x = rng.standard_normal(5) + (2 if label == "1" else -2)
            lines.append(label + "".join(f" {k + 1}:{value:.4f}" for k, value in enumerate(x)))
    file = tmp_path / "tiny.svm"
    file.write_text("\n".join(lines) + "\n")
    return file


def shapes(text):
    """The lines, but for figures, hashes and the name of the MPI library."""
    lines = map(str.strip, text.splitlines())
    return {re.sub(r"[0-9a-f]{64}|\d[\d.,]*", "#", re.sub("Open MPI|MPICH", "MPI", line)) for line in lines}


class TestEmbeddedData:
    def test_four_ranks(self, svm, tmp_path):
        """They print what README.md shows."""
        report = tmp_path / "report.json"
        done = svm("--json", report, ranks=4)
        objective, accuracy, model = final(done)
        shown = re.search(r"<!-- expected: make run -->\n(.*?)\n\n\S", DOCUMENTS[ROOT / "README.md"], re.DOTALL)
        assert shapes(shown[1]) - shapes(done.stdout) == {"..."}
        assert accuracy >= 0.845 and objective < 0.36
        assert re.findall(r"model on rank (\d): ([0-9a-f]{64})", done.stdout) == [
            (str(rank), model) for rank in range(4)
        ]
        rows = [line for line in done.stdout.splitlines() if re.match(r"\d+ ", line)]
        assert [int(row.split()[0]) for row in rows[-10:]] == list(range(1, 11))
        reports = json.loads(report.read_text())
        assert (reports["program"], reports["ranks"], reports["graph"], reports["sync"], reports["seed"]) == (
            "apps.svm",
            4,
            "all",
            "asp",
            0,
        )
        assert reports["final"]["model_sha256"] == model and reports["lost_ranks"] == []
        assert [epoch["examples"] for epoch in reports["epochs"]] == [32_561 * (k + 1) for k in range(10)]
        last = reports["epochs"][-1]
        assert last["bytes_sent"] == last["bytes_dense"] > 0
        assert 0 < last["seconds"] == reports["final"]["seconds"]
        assert last["merged"] + last["overwritten"] <= last["bytes_sent"] / (124 * 4)

    def test_bsp_ends_the_same_bit_by_bit_however_ranks_take_turns(self, alone):
        first, second = (final(alone("--sync", "bsp", "--epochs", 2, ranks=3, seed=seed)) for seed in range(2))
        assert first == second

    def test_another_seed_makes_another_model(self, alone):
        one, other = (final(alone("--epochs", 1, "--seed", k)) for k in (0, 1))
        assert one != other


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic"])
def test_losses(alone, tiny, loss):
    assert final(alone(tiny, "--test", tiny, "--loss", loss))[1] > 0.99


def test_a_graph_has_the_degree_that_is_asked_for(tmp_path):
    """Of 8 ranks along halton each has 3 peers, or one. A graph whose degree is not free refuses another one."""
    simulated = on_simulated_ranks(run, tmp_path)
    words = ["--epochs", 1, "--sync", "bsp", "--graph", "halton", "--exchange-every", 1000]
    sent = [simulated(8, *words, *more)[0]["epochs"][-1]["bytes_sent"] for more in ([], ["--degree", 1])]
    assert sent[0] == 3 * sent[1] > 0
    with pytest.raises(BadInput, match="graph 'ring' of 3 ranks has degree 1: degree=2 is not possible"):
        simulated(3, *words, "--graph", "ring", "--degree", 2)


@pytest.mark.parametrize("vector", ["dense", "sparse"])
@pytest.mark.parametrize("average", ["delta", "gradient", "none"])
def test_averages(alone, tiny, average, vector):
    options = ["--average", average, "--vector", vector, "--exchange-every", 20, "--sync", "bsp", "--graph", "ring"]
    done = alone(tiny, "--test", tiny, *options, ranks=3)
    assert final(done)[1] > 0.99
    sent = int(done.stdout.splitlines()[-3].split()[-3].replace(",", ""))
    assert (sent == 0) == (average == "none")


@pytest.mark.parametrize("average", ["model", "delta", "gradient"])
def test_sparse_vectors_learn_what_dense_ones_do_from_fewer_bytes(average, tmp_path):
    """Rows have 3 of 2000 features. Models differ by rounding, and by the weights that L2 shrinks in an exchange."""
    rng = np.random.default_rng(1)
    truth = rng.standard_normal(2000)
    lines = []
    for _ in range(400):
        columns = np.sort(rng.choice(2000, 3, replace=False))
        lines.append(f"{int(truth[columns].sum() > 0)} " + " ".join(f"{column + 1}:1" for column in columns))
    (tmp_path / "sparse.svm").write_text("\n".join(lines))
    data = malt.open_svmlight(tmp_path / "sparse.svm")
    rows = linear.examples(data.X, data.y)
    problem = linear.Problem("hinge", 1e-3, True)

    def train(vector):
        def on_rank(rank):
            mine = linear.examples(data.X, data.y, malt.shard(np.arange(400)))
            made = linear.learner(problem, mine, 2000, 0.5, Sharing("all", "bsp", 1), average, vector)
            for part in np.array_split(np.arange(100, dtype=np.int32), 5) * 3:
                made.learn(part)
                made.exchange()
            made.finish()
            return made.model.copy(), made.vectors[0].statistics().bytes_sent

        return malt.simulate(on_rank, 4)

    dense, sparse = train("dense"), train("sparse")
    assert sum(sent for _, sent in sparse) < 0.5 * sum(sent for _, sent in dense)
    assert all((model == sparse[0][0]).all() for model, _ in sparse)
    np.testing.assert_allclose(sparse[0][0], dense[0][0], atol=0.02 * np.abs(dense[0][0]).max())
    objectives = [linear.objective(problem, rows, ends[0][0]) for ends in (dense, sparse)]
    assert objectives[1] == pytest.approx(objectives[0], rel=0.01)


def test_rows_sorted_by_label_do_not_hurt(alone, tiny):
    assert final(alone(tiny, "--test", tiny, "--average", "none", ranks=2))[1] > 0.99


def test_more_ranks_than_rows(alone, tmp_path):
    file = tmp_path / "three.svm"
    file.write_text("1 1:1\n-1 1:-1\n1 1:2\n")
    objective = final(alone(file, "--exchange-every", 1, "--sync", "bsp", ranks=4))[0]
    assert objective < 0.01, "ranks without rows take part in the average"


def test_tolerance_stops_early(alone):
    done = alone("--tolerance", 0.05, "--epochs", 50)
    final(done)
    assert ", at most 50 epochs\n" in done.stdout
    epochs = [line for line in done.stdout.splitlines() if re.match(r"\d+ ", line)][-1].split()[0]
    assert 2 <= int(epochs) < 10


@pytest.mark.parametrize("sync", ["bsp", "notify-ack"])
def test_tolerance_where_ranks_have_different_numbers_of_rows(alone, tiny, sync):
    rows = tiny.read_text().splitlines()
    tiny.write_text("\n".join(rows[250:351]))  # 34, 34 and 33 rows
    final(alone(tiny, "--tolerance", 1e-3, "--exchange-every", 2, "--sync", sync, ranks=3))


def test_with_a_tolerance_ranks_that_wait_for_each_other_exchange_as_often(tiny):
    """Under ssp:S, too, where they need not without it."""

    def live(_):
        with pytest.raises(BadInput, match="here ranks exchange together: give a number, 1,000 say"):
            run([str(tiny), "--tolerance", "0.1", "--sync", "ssp:2", "--exchange-every", "auto"])

    malt.simulate(live, 2)


def test_a_model_worse_than_zeros_is_pointed_out(alone, tiny):
    assert "worse than one of zeros: try a --step below 1e+10" in alone(tiny, "--step", 1e10, ranks=2).stderr
    assert alone(tiny, ranks=2).stderr == ""


def test_no_epochs_and_no_intercept(alone, tiny):
    assert final(alone(tiny, "--epochs", 0))[0] == 1.0  # the hinge loss of w = 0
    final(alone(tiny, "--no-intercept"))


def test_save(alone, tiny, tmp_path):
    file = tmp_path / "model.npz"
    final(alone(tiny, "--save", file))
    with np.load(file, allow_pickle=False) as model:
        assert model["weights"].shape == (5,) and model["labels"].tolist() == [0, 1]
        assert int(model["format"]) == 1 and not model["zero_based"]
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


BAD = {
    "no such file": (["nothing.svm"], "nothing.svm: No such file or directory"),
    "an option that is not there": (["--lossy"], "unrecognized arguments: --lossy"),
    "a loss that is not there": (["--loss", "huge"], "invalid choice: 'huge'"),
    "a graph that is not there": (["--graph", "chrod"], "chord"),
    "a degree that the graph does not have": (["--graph", "ring", "--degree", "0"], "of at least 1, got 0"),
    "a mode that is not there": (["--sync", "ssp:x"], "ssp:S"),
    "no epochs at all": (["--epochs", "-1"], "of at least 0, got -1"),
    "l2 not a number": (["--l2", "nan"], "of at least 0, got nan"),
    "step 0": (["--step", "0"], "above 0, got 0"),
    "exchange-every 0": (["--exchange-every", "0"], "of at least 1, got 0"),
    "dual with a step": (["--optimizer", "dual", "--step", "1"], "--step is for --optimizer sgd: dual has no step"),
    "dual with asp": (["--optimizer", "dual", "--sync", "asp"], "--sync is for --optimizer sgd: all ranks of dual"),
    "dual with a tolerance": (["--optimizer", "dual", "--tolerance", "0.1"], "dual ends by --gap"),
    "dual without l2": (["--optimizer", "dual", "--l2", "0"], "dual needs an --l2 above 0"),
    "sgd with a gap": (["--gap", "0.1"], "--gap is for --optimizer dual: sgd knows of no duality gap"),
    "a negative gap": (["--optimizer", "dual", "--gap", "-1"], "of at least 0, got -1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    arguments, message = BAD[name]
    with pytest.raises(BadInput, match=re.escape(message)):
        run(arguments)


@pytest.mark.parametrize(
    ("labels", "reports"),
    [("3 1 2", "3 different labels (1, 2, 3)"), ("5 4.5 -3 1 5", "4 different labels (-3, 1, 4.5, ...)")],
)
def test_more_than_two_classes(tmp_path, labels, reports):
    data = tmp_path / "data.svm"
    data.write_text("".join(f"{label} 1:1\n" for label in labels.split()))
    with pytest.raises(BadInput) as error:
        run([str(data)])
    assert str(error.value) == f"{data}: {reports}: there must be two: make one class of some and the other of the rest"


def test_bad_input_is_one_line_and_status_2(svm):
    arguments, message = BAD["no such file"]
    done = svm(*arguments, ranks=2)
    assert done.returncode == 2
    assert done.stderr == f"apps.svm: error: {message}\n"


@pytest.mark.parametrize("line", ["1 1:nan", "1 2:x", "1 3:1 3:2", "inf 1:1"])
def test_a_bad_line_is_named(tiny, line):
    tiny.write_text(tiny.read_text().replace("\n", f"\n{line}\n", 1))
    with pytest.raises(BadInput, match=re.escape(f"{tiny}:2: ")):
        run([str(tiny)])


@pytest.mark.thorough
def test_a_step_that_is_too_large_is_named(svm):
    done = svm("--loss", "squared-hinge", "--step", "1e30", "--l2", 0, ranks=2)
    assert done.returncode == 2
    assert "the step size" in done.stderr and "1e+30" in done.stderr and "Traceback" not in done.stderr


def scaled(tmp_path, scale):
    """Rows of five features. The label is the sign of the first."""
    rows = np.random.default_rng(0).standard_normal((1000, 5))
    pairs = [" ".join(f"{k + 1}:{value * scale:.6g}" for k, value in enumerate(row)) for row in rows]
    data = tmp_path / "scaled.svm"
    data.write_text("".join(f"{np.sign(row[0]):.0f} {text}\n" for row, text in zip(rows, pairs, strict=True)))
    return data


@pytest.mark.parametrize("l2", ["0", "1e-7", "1e-4"])
@pytest.mark.parametrize("scale", [1e-42, 1e-18, 1e-5, 1e20])
def test_a_step_that_is_chosen_suits_features_of_any_scale(alone, tmp_path, scale, l2):
    objective, _, _ = final(alone(scaled(tmp_path, scale), "--l2", l2))
    assert objective <= 1  # that of zeros


@pytest.mark.parametrize(("scale", "options"), [(1e25, []), (1e-42, ["--no-intercept", "--l2", "0"])])
def test_features_that_no_step_suits_are_reported_in_one_line(tmp_path, scale, options):
    with pytest.raises(BadInput, match=r"the rows, of mean length .*, are badly scaled: .*: scale the features$"):
        run([str(scaled(tmp_path, scale)), *options])


@pytest.mark.thorough
def test_help(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["apps.svm", "--help"])
    malt.simulate(lambda rank: main("apps.svm"), 2)
    assert capsys.readouterr().out.count("--exchange-every N") == 2  # usage and list, once


@pytest.mark.thorough
class TestRcv1:
    """The reference: an optimum of 0.18855, and a test accuracy of 0.941."""

    @pytest.mark.parametrize(("ranks", "sync"), [(1, "asp"), (4, "bsp")])
    def test_reaches_the_optimum_within_one_percent(self, alone, data, ranks, sync):
        train, test = (data / "rcv1-ccat" / name for name in ("train.svm.xz", "test.svm.xz"))
        options = ["--l2", 1e-4, "--no-intercept", "--epochs", 10, "--sync", sync]
        objective, accuracy, _ = final(alone(train, "--test", test, *options, ranks=ranks))
        assert objective <= 0.1905 and accuracy >= 0.938

    @pytest.mark.parametrize("ranks", [1, 2])
    def test_the_duality_gap_closes(self, data, tmp_path, ranks):
        options = ["--l2", 1e-4, "--no-intercept", "--optimizer", "dual"]
        final = on_simulated_ranks(run, tmp_path)(ranks, data / "rcv1-ccat" / "train.svm.xz", *options)[0]["final"]
        assert final["duality_gap"] <= 1e-4 and 0.18855 < final["objective"] < 0.18858
