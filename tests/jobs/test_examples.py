"""The programs of examples/ run, and end with the figures of docs/examples.md."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from programs import ROOT

from bench import lines

CLOSE = 0.03
pytestmark = pytest.mark.serial


def printed(command, environment):
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env={**environment, "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=200,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    [result] = set(done.stdout.splitlines())
    return re.fullmatch(r"(.+?) ([\d.]+)", result).groups()


@pytest.mark.parametrize("name", lines.EXAMPLES)
@pytest.mark.parametrize("kind", [pytest.param("serial", marks=pytest.mark.thorough), "parallel"])
def test_a_program_ends_with_what_the_page_says(name, kind, job_environment):
    job = [] if kind == "serial" else ["-m", "malt", "run", "-n", "2"]
    measure, value = printed([*job, f"examples/{name}_{kind}.py"], job_environment)
    example = lines.EXAMPLES[name]
    assert measure.endswith(example.measure)
    assert float(value) == pytest.approx(getattr(example, kind), rel=CLOSE)
