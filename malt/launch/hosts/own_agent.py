"""The agent of the launcher's own host: where the launcher is killed, it ends what is left of the job here."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from malt.launch.machine.mpi_library import LaunchError

_AGENT = (
    f"import sys; sys.stdin.read(); sys.path.insert(0, {str(Path(__file__).parents[3])!r}); "
    "from malt.launch.hosts.agent.watch import clean; clean(sys.argv[1])"
)
"""It runs from the files of this malt. It is isolated (-I): no file of the user's hides one of Python's. It needs no
packages (-S)."""


@contextlib.contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """A block with the job in `folder`. The agent's standard input ends with this process, or where the block raises.

    LaunchError: it cannot be started.
    """
    try:
        agent = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _AGENT, str(folder)], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise LaunchError(f"cannot start {sys.executable}: {error.strerror}") from None
    with agent:
        yield
        agent.kill()  # the launcher itself has left nothing of the job
