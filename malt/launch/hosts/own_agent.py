"""The agent of the launcher's own host: where the launcher is killed, it ends what is left of the job here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from malt.launch.machine.mpi_library import LaunchError

_LOADS_S = 1.0
_START = (
    f"import select, sys; select.select([0], [], [], {_LOADS_S}); "
    f"sys.path.insert(0, {str(Path(__file__).parents[3])!r}); "
    "from malt.launch.hosts.agent import agent; agent.main(sys.argv[1])"
)
"""Runs it from the files of this malt. It is isolated (-I): no file of the user's hides one of Python's. It needs no
packages (-S), and loads once the ranks have: else they would start later."""


class OwnAgent:
    """The agent of the job in `folder`. Its standard input ends with this process, however that ends.

    LaunchError: it cannot be started.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _START, str(folder)], stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise LaunchError(f"cannot start {sys.executable}: {error.strerror}") from None

    def end(self) -> None:
        """End it: the launcher itself has left nothing of the job."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin
        self._process.stdin.close()
