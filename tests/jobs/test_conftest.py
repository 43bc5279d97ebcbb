"""What tests/conftest.py runs where, and how a failure on one rank ends."""

import re
import shutil
import subprocess
import sys

import pytest
from programs import ROOT

FILES = {
    "pure/test_a.py": "import time\ndef test_on_rank_0(): time.sleep(0.5)\ndef test_twice(): pass\n",
    "mpi/test_b.py": """
import pytest
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
def test_anywhere(): MPI.COMM_WORLD.Barrier()
@pytest.mark.parallel
def test_of_several(): assert MPI.COMM_WORLD.allreduce(1) == MPI.COMM_WORLD.size == 2
@pytest.mark.serial
def test_of_one(): assert MPI.COMM_WORLD.size == 1
@pytest.mark.thorough
def test_thorough(): MPI.COMM_WORLD.Barrier()
""",
    "jobs/test_c.py": "def test_a_job(): pass\n",
}


@pytest.fixture
def suite(job_environment, tmp_path):
    """suite(*words, ranks, **files): run pytest over `files` on `ranks` ranks; its status and its output."""
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "drawn.py", "hung.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")

    def run(*words, ranks=2, **files):
        for name, text in {**FILES, **{f"{kind}/test_more_{kind}.py": text for kind, text in files.items()}}.items():
            (tmp_path / "tests" / name).parent.mkdir(exist_ok=True)
            (tmp_path / "tests" / name).write_text(text)
        launcher = ["-m", "malt", "run", "-n", str(ranks)] if ranks > 1 else []
        command = [sys.executable, *launcher, "-m", "pytest", "-rs", "-p", "no:cacheprovider", *words]
        environment = {**job_environment, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    return run


def counts(output):
    """The numbers of the last line, by word. The line is there once, as only rank 0 prints."""
    assert output.count("test session starts") == 1
    (line,) = re.findall(r"^=+ (.* in [\d.]+s).*=$", output, re.MULTILINE)
    return {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", line)}


def test_several_ranks_run_what_is_theirs(suite):
    status, output = suite()
    assert (status, counts(output)) == (0, {"passed": 4, "skipped": 1, "deselected": 2}), output
    assert "starts jobs of its own: run pytest without mpiexec" in output


@pytest.mark.thorough
def test_thorough_ones_run_if_asked_for(suite):
    assert counts(suite("--all", ranks=1)[1]) == {"passed": 6, "deselected": 1}
    assert counts(suite("tests/mpi/test_b.py::test_thorough", ranks=1)[1]) == {"passed": 1}


@pytest.mark.thorough
def test_several_ranks_of_which_one_alone_has_tests(suite):
    status, output = suite("tests/pure")
    assert (status, counts(output)) == (0, {"passed": 2}), output


@pytest.mark.thorough
def test_a_failure_of_rank_0_alone_stops_all_of_them(suite):
    status, output = suite("-x", pure="def test_fails(): assert 1 == 2\n")
    assert (status, counts(output)) == (1, {"failed": 1, "passed": 2, "skipped": 1, "deselected": 2}), output


@pytest.mark.thorough
def test_a_failure_of_another_rank_is_reported(suite):
    failing = "from mpi4py import MPI\ndef test_fails(): assert MPI.COMM_WORLD.rank == 0\n"
    status, output = suite("--maxfail=2", mpi=failing, pure="def test_fails_here(): assert 1 == 2\n")
    assert (status, counts(output)) == (1, {"failed": 2, "passed": 4, "skipped": 1, "deselected": 2}), output
    assert "--- on ranks [1]:" in output


@pytest.mark.thorough
def test_a_rank_that_cannot_collect_ends_all(suite):
    status, output = suite(mpi="from mpi4py import MPI\nif MPI.COMM_WORLD.rank: raise ValueError\n")
    assert status != 0, output
