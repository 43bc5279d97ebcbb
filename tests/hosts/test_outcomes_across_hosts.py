"""bench.hosts: starts and failures of jobs on hosts, what is left of them, and their tables."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from failing_jobs import under_one_mpi
from host_network import LIMIT_S, ROOT, missing


@under_one_mpi
@pytest.mark.thorough
def test_the_quick_form_finds_that_jobs_end_and_go_on_as_promised(tmp_path):
    if why := missing():
        pytest.skip(why)
    parts = ["starts", "survival"]
    words = [sys.executable, "-m", "bench.hosts", "--quick", "--only", *parts, "--json", str(tmp_path / "page.json")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=2 * LIMIT_S)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads((tmp_path / "page.json").read_text()).values()
    runs = [(part, name, run) for part in parts for name, each in found[part].items() for run in each]
    assert len(runs) == 4
    for run in runs:
        assert run[2]["expected"] and run[2]["clean_s"] is not None, run
    assert "| 1 of 1 |" in done.stdout
