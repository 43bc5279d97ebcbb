"""apps.logistic as a user runs it, and on rcv1-ccat against scipy and scikit-learn."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from programs import as_job, in_process, last_line
from scipy.optimize import minimize

pytest.importorskip("numba")

import malt
from apps.logistic import program

pytestmark = pytest.mark.serial

L1 = L2 = 1e-4
KINDS = pytest.mark.parametrize("kind", ["replicated", "sharded"])


@pytest.fixture
def report(job_environment, tmp_path, capsys):
    """report(ranks, *arguments): what a job reports, and the model that it saves. 0 ranks: a run in this process."""
    job = as_job("apps.logistic", job_environment)

    def report(ranks, *arguments):
        file, model = tmp_path / "report.json", tmp_path / "model.npz"
        words = [{"sharded": "--sharded"}.get(word, word) for word in arguments if word != "replicated"]
        words += ["--json", file, "--save", model]
        done = job(*words, ranks=ranks) if ranks else in_process(program.run, capsys)(*words)
        made = json.loads(file.read_text())
        shape = r"final: objective ([\d.]+) (?:test accuracy ([\d.]+) )?model ([0-9a-f]{64})"
        assert float(last_line(done, shape)[0]) == pytest.approx(made["final"]["objective"], abs=1e-6)
        return made, malt.files.load_npz(model)

    return report


@pytest.mark.thorough(but="0-replicated")
@KINDS
@pytest.mark.parametrize("ranks", [0, 2])
def test_the_embedded_data(report, ranks, kind):
    """The minimum was found by scipy's L-BFGS-B."""
    made, model = report(ranks, kind, "--tolerance", 1e-3)
    assert made["final"]["objective"] == pytest.approx(0.324413044, rel=1e-3)
    assert made["final"]["test_accuracy"] > 0.848 and model["weights"].shape == (123,)
    assert len(made["epochs"]) < 100 and (made["epochs"][-1]["bytes_sent"] > 0) == (ranks > 1)


def smooth(X, y, w, l2):
    margins = y * (X @ w)
    gradient = X.T @ (-y / (1 + np.exp(margins))) / len(y) + l2 * w
    return np.logaddexp(0, -margins).mean() + l2 / 2 * w @ w, gradient


@pytest.mark.thorough
class TestRcv1:
    """No intercept, l2 1e-4; for OWL-QN l1 1e-4 alone."""

    @pytest.fixture
    def rows(self, data):
        path = data / "rcv1-ccat" / "train.svm.xz"
        return path, *self._read(path)

    @staticmethod
    @cache
    def _read(path):
        found = malt.open_svmlight(path)
        return found.X.astype(np.float64), found.y.astype(np.float64)

    @staticmethod
    @cache
    def _minimum(path):
        X, y = TestRcv1._read(path)
        options = {"ftol": 0, "gtol": 1e-9, "maxiter": 10_000, "maxfun": 20_000}
        return minimize(
            lambda w: smooth(X, y, w, L2), np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options=options
        )

    @pytest.mark.parametrize("ranks, kind", [(1, "replicated"), (2, "sharded"), (4, "replicated"), (4, "sharded")])
    def test_lbfgs_ends_at_the_minimum_of_scipy(self, report, rows, ranks, kind):
        path, X, y = rows
        made, model = report(ranks, path, "--l2", L2, "--no-intercept", kind)
        assert made["final"]["objective"] == pytest.approx(self._minimum(path).fun, rel=1e-6)
        assert smooth(X, y, model["weights"], L2)[0] == pytest.approx(made["final"]["objective"], rel=1e-9)

    @pytest.mark.filterwarnings("ignore:.*penalty")
    def test_owlqn_has_the_zeros_of_saga(self, report, rows):
        linear_model = pytest.importorskip("sklearn.linear_model")
        path, X, y = rows
        made, model = report(2, path, "--l2", 0, "--no-intercept", "--optimizer", "owlqn", "--l1", L1)
        options = {"penalty": "elasticnet", "l1_ratio": 1, "solver": "saga", "tol": 1e-5, "max_iter": 3000}
        saga = linear_model.LogisticRegression(C=1 / (L1 * len(y)), fit_intercept=False, **options).fit(X, y)
        w = saga.coef_[0]
        objective = smooth(X, y, w, 0)[0] + L1 * np.abs(w).sum()
        assert made["final"]["objective"] == pytest.approx(objective, rel=1e-3)
        assert (model["weights"] == 0).sum() == pytest.approx((w == 0).sum(), rel=0.01)

    def test_a_warm_start_halves_the_passes(self, report, rows):
        """Those to 1e-3 above the minimum."""
        path, _, y = rows

        def passes(*options):
            made, _ = report(2, path, "--l2", L2, "--no-intercept", "--epochs", 40, *options)
            return next(
                one["examples"] / len(y) for one in made["epochs"]
                if one["objective"] <= 1.001 * self._minimum(path).fun
            )  # fmt: skip

        assert passes("--warm-start", 3) <= passes() / 2
