"""The reports of the programs when epochs are repeated."""

from __future__ import annotations

import json

import pytest

from apps.harness import Shares
from apps.mlp import program as mlp
from apps.svm import program as svm


@pytest.mark.parametrize(("program", "rows"), [(svm, 32_561), (mlp, 1438)], ids=["svm", "mlp"])
def test_the_report_has_an_epoch_that_comes_again_once(program, rows, monkeypatch, tmp_path):
    """It is in the report as it was the last time, and its counts include all training until then."""
    if program is mlp:
        pytest.importorskip("sklearn")
    monkeypatch.setattr(Shares, "epochs", lambda *_: iter([1, 2, 3, 2, 3]))
    program.run(["--epochs", "3", "--json", str(tmp_path / "report.json")])
    reports = json.loads((tmp_path / "report.json").read_text())
    epochs, final = reports["epochs"], reports["final"]
    assert [epoch["epoch"] for epoch in epochs] == [1, 2, 3]
    assert [epoch["examples"] for epoch in epochs] == [rows, 4 * rows, 5 * rows]
    assert epochs[-1]["seconds"] == final["seconds"]
    measure = "objective" if program is svm else "train_loss"
    assert epochs[-1][measure] == pytest.approx(final[measure], rel=1e-6)
