"""bench.pages.link: two hosts on this machine, and the link between them."""

from __future__ import annotations

import json
import subprocess

import pytest

from bench.pages import link
from malt.launch.mpi_library import bound_library

pytestmark = [pytest.mark.serial, pytest.mark.thorough]

HOST = """
import json, os, pathlib, socket, subprocess, sys
shape = subprocess.run(["tc", "qdisc", "show", "dev", "eth0"], capture_output=True, text=True).stdout
own = [socket.gethostname(), os.environ.get("RANK", ""), "rate 50Mbit" in shape]
pathlib.Path(sys.argv[1] + own[0]).write_text(json.dumps(own))
sys.exit(sys.argv[2] == own[0])
"""
RANK = """
import malt, socket, sys
hosts = malt.allgather(socket.gethostname())
if malt.rank() == 0:
    open(sys.argv[1], "w").write(" ".join(hosts))
"""


@pytest.fixture(autouse=True)
def possible():
    if why := link.missing(50):
        pytest.skip(why)


def test_a_command_runs_on_each_host(tmp_path):
    words, own = ["-c", HOST, f"{tmp_path}/", "nowhere"], [{"RANK": "0"}, {"RANK": "1"}]
    link.run_pair(50, words, {"COMMON": "1"}, own)
    assert [json.loads((tmp_path / name).read_text()) for name in ("here", "there")] == [
        ["here", "0", True], ["there", "1", True],
    ]  # fmt: skip
    for name in ("here", "there"):
        with pytest.raises(subprocess.CalledProcessError):
            link.run_pair(50, [*words[:-1], name], {}, own)


@pytest.mark.skipif(bound_library().family != "openmpi", reason="Open MPI alone is used over the link")
def test_a_job_has_a_rank_on_each_host(tmp_path):
    (tmp_path / "program.py").write_text(RANK)
    link.run_malt(50, str(tmp_path / "program.py"), str(tmp_path / "hosts"))
    assert (tmp_path / "hosts").read_text() == "here there"
