"""Ranks of apps.autoencoder that are killed in an iteration: the others end with the model of one rank."""

from __future__ import annotations

import json

import pytest
from failing_jobs import killed_at, under_one_mpi
from programs import in_process, last_line

pytest.importorskip("sklearn")

from apps.autoencoder.program import run

pytestmark = [pytest.mark.serial, pytest.mark.thorough, under_one_mpi]

FINAL = r"final: loss ([\d.e-]+) chunk bytes [\d,]+ model ([0-9a-f]{64})"


@pytest.mark.parametrize("killed, at", [([2], 1), ([0], 20), ([0, 3], 33)])
def test_the_others_end_with_the_same_model(killed, at, start, tmp_path, capsys):
    arguments = ["--patches", "3000", "--epochs", "15"]
    wanted = last_line(in_process(run, capsys)(*arguments), FINAL)
    program = killed_at(at, "apps.autoencoder", "apps.autoencoder.program:sums", ranks=killed)
    job = start(program, *arguments, "--json", str(tmp_path / "report"))
    assert job.end() == 0, job.output
    report = json.loads((tmp_path / "report").read_text())
    assert [one["rank"] for one in report["lost_ranks"]] == killed
    assert f"model {wanted[1]}" in job.output and f"{report['final']['loss']:.9g}" == wanted[0]
    assert len(report["epochs"]) == 15
