"""An environment of mpi4py, NumPy, scipy, pytest and an MPI alone, which `make test-plain` makes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from programs import ROOT

pytestmark = [
    pytest.mark.serial,
    pytest.mark.skipif(find_spec("numba") is not None, reason="needs an environment without numba: make test-plain"),
]
NOTE = r"malt: numba is not installed: kernels run interpreted, up to \d+ times slower: pip install numba"
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}  # fmt: skip


@pytest.fixture
def python(job_environment):
    """python(*words, ranks=...): a run of python -m, by mpirun if ranks are given."""

    def run(*words, ranks=None):
        mpirun = [str(Path(sys.executable).parent / "mpirun"), "-n", str(ranks)] if ranks else []
        line = [*mpirun, sys.executable, "-m", *map(str, words)]
        return subprocess.run(
            line, cwd=ROOT, env={**job_environment, **ROOT_MAY}, capture_output=True, text=True, timeout=500
        )  # fmt: skip

    return run


def final(python, tmp_path, *words, ranks=4, notes=1):
    """The measures at the end, of a run in which one line says how much slower it is, or none if it has no kernels."""
    path = tmp_path / "report.json"
    done = python(*words, "--json", path, ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(rf"^{NOTE}$", done.stderr, re.MULTILINE)) == done.stderr.count("numba") // 2 == notes
    return json.loads(path.read_text())["final"]


def test_the_linear_classifier_ends_where_compiled_kernels_do(python, tmp_path):
    found = final(python, tmp_path, "apps.svm")
    assert found["objective"] < 0.356 and found["test_accuracy"] > 0.845  # compiled: 0.3533 to 0.3545, from 0.848 up


def test_the_factorization_ends_where_compiled_kernels_do(python, tmp_path):
    found = final(python, tmp_path, "apps.mf")
    assert found["train_rmse"] == pytest.approx(0.3214, abs=5e-4)
    assert found["test_rmse"] == pytest.approx(0.3423, abs=5e-4)


def test_the_minimum_of_a_linear_classifier(python, tmp_path):
    assert final(python, tmp_path, "apps.logistic", "--epochs", 20, ranks=2)["objective"] < 0.34


ENDS = {  # what compiled kernels come to, and how far from that interpreted ones may end
    "gbdt --trees 20": {"train_loss": (0.34242, 1e-4), "test_logloss": (0.34514, 1e-4), "test_auc": (0.89791, 1e-4)},
    "kmeans": {"inertia": (183649.48, 10)}, "lda --epochs 20": {"perplexity": (106, 6)},
    "embed --walks 2": {"loss": (2.707, 0.01)}, "mlp": {"test_accuracy": (0.97, 0.02)},
    "autoencoder --epochs 20": {"loss": (0.2967, 1e-3)},
}  # fmt: skip


@pytest.mark.parametrize("words", ENDS)
def test_other_programs_end_where_compiled_kernels_do(python, tmp_path, words):
    has_kernels = words.split()[0] not in ("mlp", "autoencoder")
    found = final(python, tmp_path, *f"apps.{words}".split(), notes=int(has_kernels))
    for measure, (end, far) in ENDS[words].items():
        assert found[measure] == pytest.approx(end, abs=far), measure


def test_doctor_lists_what_is_missing_and_what_for(python):
    done = python("malt", "doctor")
    assert done.returncode == 0, done.stdout
    assert re.search("^warn  kernels: +numba is not installed: .* — pip install numba$", done.stdout, re.MULTILINE)
    missing = {
        "scikit-learn": ("sklearn", "malt.sklearn"), "torch": ("torch", "malt.torch"),
        "greenlet": ("simulate", "malt.simulate"),
    }  # fmt: skip
    for name, (extra, purpose) in missing.items():
        found = re.search(rf"^ok    {name}: +not installed \(extra {extra}\); needed for (.*)$", done.stdout, re.M)
        assert found and found[1].startswith(purpose) and f"pip install '.[{extra}]'" in found[1]
    assert os.linesep + "a job of 2 ranks can run here" in done.stdout
