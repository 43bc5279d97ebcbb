"""The programs of examples/ run, and end with the figures of docs/examples.md."""

import importlib.util
import re
import subprocess
import sys

import pytest
from documents import small
from failing_jobs import LONG
from programs import ROOT

from bench.pages import lines

CLOSE = 0.03
SHORTENED = {"serial": 0.1553, "parallel": 0.1558}
"""The losses of the logistic regression on few rows: on all of them it is to train for long."""
OWN_TESTS = {"trainer", "lightning", "parallel-cnn"}
"""Those that tests/jobs/test_frameworks.py runs, as they log, too; and test_torchrun_jobs.py, which starts it."""
KINDS = ("serial", "parallel") if LONG else ("parallel",)
"""Serial programs do without MALT: no change of it breaks them."""
pytestmark = pytest.mark.serial


def printed(command, environment):
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env={**environment, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.thorough(but="parallel-svm")
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in KINDS for name in lines.EXAMPLES if not {name, f"{kind}-{name}"} & OWN_TESTS],
)  # fmt: skip
def test_a_program_ends_with_what_the_page_says(name, kind, job_environment, tmp_path):
    extra = {"cnn": "torch", "jax": "jax"}.get(name, "numpy")
    if importlib.util.find_spec(extra) is None:
        pytest.skip(f"needs the extra {extra}")
    job = [] if kind == "serial" else ["-m", "malt", "run", "-n", "2"]
    file, example = ROOT / f"examples/{name}_{kind}.py", lines.EXAMPLES[name]
    expected = getattr(example, kind)
    if name == "logistic":
        text, file, expected = small(file.read_text()), tmp_path / file.name, SHORTENED[kind]
        file.write_text(text)
    [result] = set(printed([*job, str(file)], job_environment))
    measure, value = re.fullmatch(r"(.+?) ([\d.]+)", result).groups()
    assert measure.endswith(example.measure)
    assert float(value) == pytest.approx(expected, rel=CLOSE)


MINIMUM = 0.149090
"""The loss of the logistic regression where its gradient is zeros."""


@pytest.mark.thorough
def test_the_examples_on_sharded_vectors_come_to_the_minimum(job_environment):
    job = ["-m", "malt", "run", "-n", "2"]
    [line] = printed([*job, "examples/logistic_adam.py"], job_environment)
    assert float(re.fullmatch(r"loss ([\d.]+)", line)[1]) == pytest.approx(MINIMUM, rel=CLOSE)
    found = [line.split(": ") for line in printed([*job, "examples/logistic_lbfgs.py"], job_environment)]
    assert [place for place, _ in found] == ["loss on arrays", "loss on parts"]
    assert all(text.startswith(f"{MINIMUM:.6f}, converged after") for _, text in found)


def test_multiply_and_sum(job_environment):
    job = ["-m", "malt", "run", "-n", "2", "examples/multiply_sum.py"]
    lines = [line.split(", bytes of chunks ") for line in printed(job, job_environment)]
    assert [text for text, _ in lines] == [f"{theta} x 1000 numbers: {499500 * theta}" for theta in (1, 2, 3)]
    assert len({nbytes for _, nbytes in lines}) == 1
