"""bench.hosts: failures of jobs on hosts, what is left of them, and their table."""

import json
import subprocess
import sys

import pytest
from failing_jobs import under_one_mpi
from host_network import LIMIT_S, ROOT, missing


@under_one_mpi
@pytest.mark.thorough
def test_the_quick_form_finds_that_jobs_go_on_as_promised(tmp_path):
    if why := missing():
        pytest.skip(why)
    page = tmp_path / "page.json"
    words = [sys.executable, "-m", "bench.hosts", "--quick", "--only", "survival", "--json", str(page)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=2 * LIMIT_S)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(page.read_text()).values()
    runs = [run for each in found["survival"].values() for run in each]
    assert len(runs) == 2 and all(run["expected"] and run["clean_s"] is not None for run in runs), runs
    assert "| 1 of 1 |" in done.stdout
