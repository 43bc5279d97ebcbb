"""Jobs whose failed ranks are started again (`malt run --rejoin`), by programs that begin no session."""

import signal
import subprocess
import sys

import pytest
from failing_jobs import under_one_mpi
from programs import ROOT

pytestmark = [pytest.mark.serial, under_one_mpi]
LIMIT_S = 60


COMES_BACK = """
import os, pathlib, signal, sys, time
rank, life = int(os.environ["MALT_RANK"]), os.environ.get("MALT_INCARNATION", "0")
here = pathlib.Path(__file__).parent
(here / f"{rank}-{life}").write_text(sys.stdin.read())
if rank != 1 and life == "0":
    if rank == 2:
        raise OSError("the disk is full")
    os.kill(os.getpid(), signal.SIGKILL)
while not (here / "0-1").exists() or not (here / "2-1").exists():
    time.sleep(0.01)
time.sleep(0.5)
print("ends", rank, life)
"""


@pytest.mark.thorough
def test_ranks_that_fail_come_back(start_rejoining, tmp_path):
    process = start_rejoining(COMES_BACK, options=["--label", "--output", str(tmp_path / "kept")])
    output, _ = process.communicate("words", timeout=LIMIT_S)
    assert process.returncode == 0, output
    for line in ("[0] ends 0 1", "[1] ends 1 0", "[2] ends 2 1"):
        assert line in output.splitlines(), output
    assert "malt: rank 0 failed (killed by SIGKILL), started again (1st time)" in output
    assert "malt: rank 2 failed (status 1), started again (1st time)" in output
    assert (tmp_path / "0-0").read_text() == "words" and (tmp_path / "0-1").read_text() == ""
    assert "the disk is full" in (kept := (tmp_path / "kept" / "rank-2.txt").read_text()) and "ends 2 1" in kept


def test_a_job_all_of_whose_ranks_fail_ends(start_rejoining):
    source = "import os\nif os.environ['MALT_RANK'] == '2':\n    os.kill(os.getpid(), 9)\nimport nothing"
    process = start_rejoining(source)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode in (1, 128 + 9) and "again" not in output  # whichever failed first
    assert output.splitlines()[-1] == "ModuleNotFoundError: No module named 'nothing'"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.thorough(but="2")
def test_after_ctrl_c_no_rank_is_started_again(number, start_rejoining, tmp_path):
    source = "import time\nprint('ready', flush=True)\ntry:\n    time.sleep(60)\nfinally:\n    import os; os._exit(7)"
    process = start_rejoining(source)
    for _ in range(3):
        assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + number and "again" not in output, output


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import mpi4py.MPI", "ImportError: MPI cannot be used under malt run --survive: ranks are no"),
        ("import malt; malt.init(object())", "ValueError: malt.init takes no comm under malt run --survive"),
    ],
)
@pytest.mark.thorough
def test_mpi_is_refused_in_a_line(program, says, start_rejoining):
    process = start_rejoining(program, ranks=2)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1 and says in output, output


def test_without_survive_it_is_refused_in_a_line(job_environment):
    environment = {name: value for name, value in job_environment.items() if name != "MALT_SURVIVE"}
    done = subprocess.run(
        [sys.executable, "-m", "malt", "run", "-n", "2", "--rejoin", "-c", "pass"],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.startswith("malt run: --rejoin needs --survive") and not done.stdout
    assert done.stderr.count("\n") == 1
