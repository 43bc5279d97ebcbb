"""apps.logistic as a user runs it, and on rcv1-ccat at the minima of scipy and scikit-learn."""

import json
import sys

import numpy as np
import pytest
from programs import in_process, last_line
from ranks import run_failing

pytest.importorskip("numba")

import malt
from apps.harness.job import main
from apps.logistic import program

pytestmark = pytest.mark.serial

KINDS = pytest.mark.parametrize("kind", ["replicated", "sharded"])


@pytest.fixture
def report(tmp_path, capsys):
    """report(ranks, *arguments): what a run on simulated ranks reports, and its model."""
    run = in_process(program.run, capsys)

    def report(ranks, *arguments):
        file, model = tmp_path / "report.json", tmp_path / "model.npz"
        words = [{"sharded": "--sharded"}.get(word, word) for word in arguments if word != "replicated"]
        words += ["--json", file, "--save", model]
        done = run(*words, ranks=ranks)
        made = json.loads(file.read_text())
        shape = r"final: objective ([\d.]+) (?:test accuracy ([\d.]+) )?model ([0-9a-f]{64})"
        assert float(last_line(done, shape)[0]) == pytest.approx(made["final"]["objective"], abs=1e-6)
        return made, malt.files.load_npz(model)

    return report


@KINDS
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_embedded_data(report, ranks, kind):
    """The minimum was found by scipy's L-BFGS-B."""
    made, model = report(ranks, kind, "--tolerance", 1e-3)
    assert made["final"]["objective"] == pytest.approx(0.324413044, rel=1e-3)
    assert made["final"]["test_accuracy"] > 0.848 and model["weights"].shape == (123,)
    assert len(made["epochs"]) < 100 and (made["epochs"][-1]["bytes_sent"] > 0) == (ranks > 1)


def test_weights_that_fail_with_a_rank_end_the_job_in_a_line_where_there_is_no_checkpoint(monkeypatch, capsys):
    """Where there is one: tests/pure/apps/harness/test_minima.py."""
    monkeypatch.setattr(sys, "argv", ["apps.logistic", "--sharded", "--epochs", "5"])

    def live(rank):
        with pytest.raises(SystemExit) as end:
            main("apps.logistic")
        return end.value.code

    ends, failed = run_failing(3, 0, {1: 200}, live)
    assert (ends[0], ends[2], failed) == (1, 1, {1})
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("apps.logistic: error: rank 1 is lost: its part of the model is lost with it; with --check")


@pytest.mark.thorough
class TestRcv1:
    """No intercept. The minima were found once: by scipy's L-BFGS-B, and for l1 by scikit-learn's saga, to 1e-10."""

    RIDGE, LASSO, LASSO_ZEROS = 0.29922308955, 0.30459725368, 46868

    @pytest.fixture
    def rows(self, data):
        path = data / "rcv1-ccat" / "train.svm.xz"
        found = malt.open_svmlight(path)
        return path, found.X.astype(np.float64), found.y.astype(np.float64)

    @pytest.mark.parametrize("ranks, kind", [(1, "replicated"), (2, "replicated"), (4, "sharded")])
    def test_lbfgs_ends_at_the_minimum_of_scipy(self, report, rows, ranks, kind):
        path, X, y = rows
        made, model = report(ranks, path, "--l2", 1e-4, "--no-intercept", kind)
        assert made["final"]["objective"] == pytest.approx(self.RIDGE, rel=1e-6)
        loss, w = made_of(X, y, model)
        assert made["final"]["objective"] == pytest.approx(loss + 1e-4 / 2 * w @ w, rel=1e-9)

    def test_owlqn_has_the_zeros_of_saga(self, report, rows):
        path, X, y = rows
        made, model = report(2, path, "--l2", 0, "--no-intercept", "--optimizer", "owlqn", "--l1", 1e-4)
        assert made["final"]["objective"] == pytest.approx(self.LASSO, rel=1e-3)
        loss, w = made_of(X, y, model)
        assert made["final"]["objective"] == pytest.approx(loss + 1e-4 * np.abs(w).sum(), rel=1e-9)
        assert (w == 0).sum() == pytest.approx(self.LASSO_ZEROS, rel=0.01)

    def test_a_warm_start_halves_the_passes(self, tmp_path, rows):
        """Those to 1e-3 above the minimum, on two simulated ranks."""
        path, _, y = rows
        words = [str(path), "--no-intercept", "--tolerance", "1e-3", "--json", str(tmp_path / "report.json")]

        def passes(*options):
            malt.simulate(lambda rank: program.run([*words, *options]), 2)
            epochs = json.loads((tmp_path / "report.json").read_text())["epochs"]
            return next(one["examples"] / len(y) for one in epochs if one["objective"] <= 1.001 * self.RIDGE)

        assert passes("--warm-start", "3") <= passes() / 2


def made_of(X, y, model):
    """The mean loss of a model, and its weights."""
    w = model["weights"]
    return np.logaddexp(0, -y * (X @ w)).mean(), w
