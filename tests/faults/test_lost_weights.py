"""A rank of apps.logistic is killed in the midst of a minimization."""

from __future__ import annotations

import json

import pytest
from failing_jobs import killed_at, under_one_mpi

pytestmark = pytest.mark.serial


@pytest.mark.thorough
@under_one_mpi
def test_the_others_take_over_its_rows_and_go_on_from_a_checkpoint_of_its_weights(start, tmp_path):
    killed = killed_at(6, "apps.logistic", "apps.logistic.dealing:Dealt.whole")
    words = [killed, "--epochs", "12", "--json", str(tmp_path / "report.json")]
    job = start(*words, ranks=3)
    assert job.end() == 0, job.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert [lost["rank"] for lost in report["lost_ranks"]] == [1] and report["final"]["objective"] < 0.33
    job = start(*words, "--sharded", ranks=3)
    assert job.end() in (1, 137) and "Traceback" not in job.output  # 137: it was the first
    assert job.output.count("apps.logistic: error: rank 1 is lost: its part of the model is lost with it; wi") == 1
    words += ["--sharded", "--checkpoint", str(tmp_path / "train.ckpt"), "--checkpoint-every", "0"]
    job = start(*words, ranks=3)
    assert job.end() == 0, job.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["resumed_from"] > 0 and [lost["rank"] for lost in report["lost_ranks"]] == [1]
    assert report["epochs"][-1]["epoch"] == 12 and report["final"]["objective"] < 0.34
