"""`malt run --trace`: what a job leaves behind, also where a rank is killed."""

import json
from pathlib import Path

import pytest
from failing_jobs import under_one_mpi

from malt.commands import command_line
from malt.watch.trace.layout import Kind
from malt.watch.trace.reading import read

pytestmark = pytest.mark.serial
ROOT = Path(__file__).parents[2]

KILLED = """
import os, signal
import malt
v = malt.vector(1000, sync="bsp")
for step in range(30):
    v.scatter()
    v.gather(malt.SUM)
    malt.report(loss=1 / (1 + step), examples=step)
    if malt.rank() == 1 and step == 19:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("survives", [False, pytest.param(True, marks=under_one_mpi)])
def test_a_rank_that_is_killed_leaves_its_events(tmp_path, malt_run, capsys, survives):
    folder = tmp_path / "trace"
    folder.mkdir()
    (folder / "rank-7.trace").write_text("of an earlier run")
    done = malt_run(KILLED, options=["--trace", folder, *["--survive"] * survives])
    assert (done.returncode == 0) == survives, done.stderr
    assert f"malt run: malt report {folder} makes a page and trace.json of the trace\n" in done.stderr
    trace = read(folder)
    assert [(rank.rank, len(rank.of(Kind.SCATTER)) >= 20) for rank in trace.ranks] == [(0, True), (1, True)]
    assert len(trace.ranks[1].of(Kind.SCATTER)) == len(trace.ranks[1].of(Kind.MERGED)) == 20
    assert trace.job["status"] == done.returncode and trace.job["ranks"] == 2
    assert sum(report["rank"] == 1 for report in trace.metrics) == 20
    assert all(0 <= report["time"] < trace.until + 1 for report in trace.metrics)
    assert len(trace.ranks[0].of(Kind.SCATTER)) == 30 or not survives
    assert trace.ranks[0].of(Kind.FAILED)["peer"].tolist() == [1] * survives
    assert command_line.main(["report", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[1].startswith("Rank 1 failed") == survives
    assert shown.endswith(f"{folder / 'report.html'}\n{folder / 'trace.json'}\n")
    assert {event["pid"] for event in json.loads((folder / "trace.json").read_text())["traceEvents"]} == {0, 1}


def test_a_folder_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert command_line.main(["run", "-n", "1", "--trace", str(tmp_path / "file"), "-c", "1"]) == 2
    assert capsys.readouterr().err == f"malt run: --trace {tmp_path / 'file'}: File exists\n"
