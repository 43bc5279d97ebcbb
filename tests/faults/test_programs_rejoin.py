"""Programs of apps/ whose failed ranks come back (`malt run --rejoin`): they go on from the epoch of a neighbour."""

import json
import re
import subprocess
import sys

import pytest
from failing_jobs import under_one_mpi
from programs import ROOT

from bench.benchmarks.svm import planted
from bench.papers.malt import experiments, workloads

pytestmark = [pytest.mark.serial, under_one_mpi]
LIMIT_S = 120
EPOCHS, KILLED_IN = 8, 3


@pytest.mark.thorough
def test_a_rank_that_comes_back_goes_on_from_the_epoch_of_the_others(job_environment, tmp_path):
    """In other modes: tests/pure/apps/harness/test_newcomers.py."""
    rows, report = tmp_path / "rows", tmp_path / "report.json"
    rows.mkdir()
    planted.write(workloads.strings(2000, experiments.PLACES), rows)
    words = f"--exchange-every 250 --epochs {EPOCHS} --killed-in {KILLED_IN} --until-back --sync asp --json".split()
    launch = ["-m", "malt", "run", "-n", "2", "--survive", "--rejoin", "-m", "bench.papers.malt.struck"]
    command = [sys.executable, *launch, str(rows), *words, str(report)]
    environment = job_environment | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert "malt: rank 1 is back; 2 of 2 ranks continue" in done.stderr.splitlines(), done.stderr
    report = json.loads(report.read_text())
    [lost] = report["lost_ranks"]
    assert lost["rank"] == 1 and lost["at_s"] < lost["back_at_s"] and lost["rows"] == 1000
    assert [one["epoch"] for one in report["epochs"]] == [*range(1, EPOCHS + 1)]
    models = re.findall(r"model on rank (\d): (\w+)", done.stdout)
    assert [rank for rank, _ in models] == list("01") and len({digest for _, digest in models}) == 1
    assert report["final"]["objective"] < report["epochs"][0]["objective"]
    # what it began with is what a neighbour had: the objective does not leap when it joins the means
    curve = [one["objective"] for one in report["epochs"]]
    assert max(curve[KILLED_IN + 1 :]) < curve[0]
