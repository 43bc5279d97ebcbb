"""What the programs train, and report, where a rank fails, and where epochs are repeated."""

import json

import pytest
from ranks import run_failing

import malt
from apps.harness import Shares
from apps.mf import program as mf
from apps.mlp import program as mlp
from apps.svm import program as svm

ROWS = {svm: 32_561, mlp: 1438}
MEASURE = {svm: "objective", mlp: "train_loss", mf: "test_rmse"}


@pytest.fixture
def report(tmp_path):
    """report(program, words, by): the report of a program of which by(function) is a run."""

    def report(program, words, by):
        file = tmp_path / "report.json"
        by(lambda rank: program.run([*words.split(), "--json", str(file)]))
        return json.loads(file.read_text())

    return report


@pytest.mark.parametrize("program", ROWS, ids=["svm", "mlp"])
def test_the_report_has_an_epoch_that_comes_again_once(program, report, monkeypatch):
    """It is in the report as it was the last time, and its counts include all training until then."""
    if program is mlp:
        pytest.importorskip("sklearn")
    monkeypatch.setattr(Shares, "epochs", lambda *_: iter([1, 2, 3, 2, 3]))
    made, rows = report(program, "--epochs 3", lambda run: run(0)), ROWS[program]
    epochs, final = made["epochs"], made["final"]
    assert [epoch["epoch"] for epoch in epochs] == [1, 2, 3]
    assert [epoch["examples"] for epoch in epochs] == [rows, 4 * rows, 5 * rows]
    assert epochs[-1]["seconds"] == final["seconds"]
    assert epochs[-1][MEASURE[program]] == pytest.approx(final[MEASURE[program]], rel=1e-6)


FAILING = {
    "svm": (svm, "--epochs 8 --exchange-every 500 --sync bsp", {1: 500}),
    "mlp": (mlp, "--epochs 8 --exchange-every 5 --sync bsp", {1: 200}),
    "mf": (mf, "--epochs 6", {0: 150, 2: 200}),
    "mf average": (mf, "--epochs 5 --mix average --exchange-every 4000 --sync bsp", {1: 100}),
}


@pytest.mark.parametrize("name", FAILING)
def test_where_a_rank_fails_the_others_train_its_rows(name, report, capsys):
    program, words, failures = FAILING[name]
    if program is mlp:
        pytest.importorskip("sklearn")
    whole, failed = report(program, words, lambda run: malt.simulate(run, 3)), set()
    made = report(program, words, lambda run: failed.update(run_failing(3, 0, failures, run)[1]))
    assert failed == failures.keys()
    printed = capsys.readouterr().err
    assert all(f" of rank {rank} are dealt to rank" in printed for rank in failed)
    assert [one["epoch"] for one in made["epochs"]] == [one["epoch"] for one in whole["epochs"]]
    if "bsp" in words:  # else the others may notice it after the training: no virtual time passes in that
        assert made["epochs"][-1]["examples"] - made["epochs"][-2]["examples"] == whole["epochs"][0]["examples"]
    assert made["final"][MEASURE[program]] < 1.05 * whole["final"][MEASURE[program]]
