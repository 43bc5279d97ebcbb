"""Ranks of apps.autoencoder that are killed in an iteration: the others end with the model of one rank."""

from __future__ import annotations

import json

import pytest
from failing_jobs import Job, needs_openmpi
from programs import ROOT, in_process, last_line

pytest.importorskip("sklearn")

from apps.autoencoder.program import run

pytestmark = [pytest.mark.serial, pytest.mark.thorough, needs_openmpi]

KILLED = """
import os, signal, sys
from apps.autoencoder import program
from apps.harness import main

killed, at, calls, sums = json_of_killed, int(sys.argv.pop(1)), 0, program.sums

def dying_sums(w, rows):
    global calls
    calls += 1
    if calls == at and int(os.environ["PMIX_RANK"]) in killed:
        os.kill(os.getpid(), signal.SIGKILL)
    return sums(w, rows)

program.sums = dying_sums
main("apps.autoencoder", program.run)
"""
FINAL = r"final: loss ([\d.e-]+) chunk bytes [\d,]+ model ([0-9a-f]{64})"


@pytest.mark.parametrize("killed, at", [([2], 1), ([0], 20), ([0, 3], 33)])
def test_the_others_end_with_the_same_model(killed, at, tmp_path, job_environment, capsys):
    arguments = ["--patches", "3000", "--epochs", "15"]
    wanted = last_line(in_process(run, capsys)(*arguments), FINAL)
    (tmp_path / "killed.py").write_text(KILLED.replace("json_of_killed", json.dumps(killed)))
    words = [str(tmp_path / "killed.py"), str(at), *arguments, "--json", str(tmp_path / "report")]
    job = Job(words, {**job_environment, "PYTHONPATH": str(ROOT)}, tmp_path)
    assert job.end() == 0, job.output
    report = json.loads((tmp_path / "report").read_text())
    assert [one["rank"] for one in report["lost_ranks"]] == killed
    assert f"model {wanted[1]}" in job.output and f"{report['final']['loss']:.9g}" == wanted[0]
    assert len(report["epochs"]) == 15
