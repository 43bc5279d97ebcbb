"""A job whose failed ranks are started again."""

import subprocess
import sys

import pytest
from programs import ROOT


@pytest.fixture
def start_rejoining(job_environment, tmp_path):
    """start_rejoining(source, *arguments, options, ranks): a `malt run --survive --rejoin` of a program, and a pipe
    with all that it prints. What still runs at the end of the test is killed."""
    started = []

    def start(source, *arguments, options=(), ranks=3):
        program = tmp_path / "program.py"
        program.write_text(source)
        command = [sys.executable, "-m", "malt", "run", "-n", str(ranks), "--survive", "--rejoin", *options, program]
        environment = job_environment | {"PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(
            [*command, *arguments], env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
        ))  # fmt: skip
        return started[-1]

    yield start
    for process in started:
        process.kill()  # what it has started ends then
        with process:  # closes its pipes
            pass
