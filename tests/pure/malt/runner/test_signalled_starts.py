"""A rank that gets the launcher's signal as soon as it has reported its start: it leaves as any other does."""

import os
import signal
import subprocess
import sys

import pytest
from processes import wait_for
from reported import reported

from malt.runner import program

SIGNALLED = f"""import os
write = os.write

def written(file, data):
    nbytes = write(file, data)
    if b'"started"' in data:
        os.kill(os.getpid(), {int(signal.SIGINT)})
    return nbytes

os.write = written
"""


@pytest.mark.parametrize("is_plain", [True, False], ids=["a plain process", "a rank of an mpiexec"])
def test_a_signal_that_comes_with_the_report_of_the_start_ends_a_rank_without_a_word(is_plain, tmp_path):
    """A rank of an mpiexec waits to be killed, as its exit would end the others."""
    folder = tmp_path / "malt-x"
    folder.mkdir()
    (tmp_path / "sitecustomize.py").write_text(SIGNALLED)
    for name in (f"signal-{int(signal.SIGINT)}", "notified"):
        (folder / name).touch()
    own = {"MALT_RANK": "0", "MALT_JOB_DIR": str(folder)} if is_plain else {"PMIX_RANK": "0"}
    process = subprocess.Popen(
        [sys.executable, program.__file__, "-c", "print('runs')"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "MALT_FAILURE_DIR": str(folder), **own},
    )  # fmt: skip
    if not is_plain:
        wait_for(lambda: "stopped-0" in reported(folder) or process.poll() is not None, 20)
        assert process.poll() is None
        process.kill()
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == (0 if is_plain else -signal.SIGKILL)
