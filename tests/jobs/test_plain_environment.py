"""An environment of mpi4py, NumPy, scipy, pytest and an MPI alone, which `make test-plain` makes."""

import itertools
import json
import lzma
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
TRAIN = ROOT / "apps/linear/data/a9a/train.svm.xz"
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


def final(python, tmp_path, *words, ranks=2, notes=1):
    """The measures at the end, of a run in which one line says how much slower it is, or none if it has no kernels."""
    path = tmp_path / "report.json"
    done = python(*words, "--json", path, ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(rf"^{NOTE}$", done.stderr, re.MULTILINE)) == done.stderr.count("numba") // 2 == notes
    return json.loads(path.read_text())["final"]


def test_the_linear_classifier_ends_where_compiled_kernels_do(python, tmp_path):
    found = final(python, tmp_path, "apps.svm", "--epochs", 3, ranks=4)
    assert found["objective"] < 0.357 and found["test_accuracy"] > 0.845, found  # after 10 epochs 0.3533 to 0.3545


ENDS = {  # of compiled kernels
    "svm ROWS --sync bsp --epochs 3": {"objective": 0.3783}, "logistic ROWS --epochs 5": {"objective": 0.393769},
    "gbdt ROWS --trees 5": {"train_loss": 0.43811}, "kmeans ROWS --epochs 3": {"inertia": 11858.56},
    "mf --epochs 2": {"train_rmse": 0.9251, "test_rmse": 0.9504}, "lda --epochs 1": {"perplexity": 246.99},
    "embed --walks 1 --length 8 --dim 16 --step 0.2": {"loss": 2.9903},
    "mlp --epochs 2 --sync bsp": {"train_loss": 0.2141, "test_accuracy": 0.9582},
    "autoencoder --epochs 2": {"loss": 6.7892},
}  # fmt: skip


@pytest.mark.parametrize("words", ENDS)
def test_a_program_ends_where_compiled_kernels_do(python, tmp_path, words):
    with lzma.open(TRAIN, "rt") as lines:
        (tmp_path / "rows.svm").write_text("".join(itertools.islice(lines, 2000)))
    name, *options = words.replace("ROWS", str(tmp_path / "rows.svm")).split()
    found = final(python, tmp_path, f"apps.{name}", *options, notes=int(name not in ("mlp", "autoencoder")))
    for measure, end in ENDS[words].items():
        assert found[measure] == pytest.approx(end, rel=5e-4), measure


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
