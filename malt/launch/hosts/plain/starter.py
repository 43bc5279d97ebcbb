"""The starter of a job of plain processes: it starts the ranks of one host, and lasts until the job needs it no more.

    python malt/launch/hosts/plain/starter.py RANKS SIZE PROGRAM...     RANKS: numbers with commas, or - for none

It takes the place of mpiexec where ranks are to outlive everything but themselves (--survive=best-effort on several
hosts). No process of one host waits for one of another: if a host, a daemon or a connection fails, nothing ends here.
What ranks are told: MALT_RANK, MALT_SIZE and MALT_HOST_SIZE, and the folder of the job. How they find each other is in
malt/resilience/hosts.py.

On the launcher's host it ends once all ranks of the job have ended, as files in the folder of the job say. On another,
where a keeper has started it (malt/launch/hosts/plain/keeper.py), it ends once those of its host have, which print into
files. Its status is 0 there where one of them has ended well, else NONE_ENDED_WELL; another where it cannot start them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import FrameType

RANK, SIZE, HOST_SIZE = "MALT_RANK", "MALT_SIZE", "MALT_HOST_SIZE"
"""The variables of a rank: its number, the number of ranks of the job, and that of ranks on its host."""
PRINTED = "printed-{}-{}"
"""The files in the folder of the job to which ranks on other hosts print: rank, and 1 or 2 for stdout or stderr."""
AWAY = "MALT_IS_AWAY"
"""The variable that is set where a keeper has started it."""
OVER = "over"
"""The file in the folder of the job by which the launcher ends the wait for ranks of hosts that it has lost."""
NONE_ENDED_WELL = 3
"""The status of a starter on another host of whose ranks none has ended well."""
_POLL_S = 0.02


def commands(ranks: list[int], size: int, program: list[str]) -> dict[int, tuple[list[str], dict[str, str]]]:
    """The command line and the variables of each rank. Pure."""
    runner = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "runner", "program.py")
    words = [sys.executable, os.path.normpath(runner), *program]
    counts = {SIZE: str(size), HOST_SIZE: str(len(ranks))}
    return {rank: (words, {RANK: str(rank), **counts}) for rank in ranks}


def start(
    ranks: list[int], size: int, program: list[str], folder: str, is_away: bool
) -> dict[int, subprocess.Popen[bytes]]:  # fmt: skip
    """Start the ranks of this host. Rank 0 reads the input of this process, unless a keeper has started it.

    SystemExit: one cannot be started; those before it are killed.
    """
    started = {}
    environ = {name: value for name, value in os.environ.items() if name != AWAY}
    for rank, (words, variables) in commands(ranks, size, program).items():
        given = None if rank == 0 and not is_away else subprocess.DEVNULL
        try:
            prints = [_file(folder, rank, number) for number in (1, 2)] if is_away else [None, None]
            started[rank] = subprocess.Popen(
                words, env=environ | variables, stdin=given, stdout=prints[0], stderr=prints[1]
            )  # fmt: skip
        except OSError as error:
            for process in started.values():
                process.kill()
            sys.exit(f"rank {rank}: {error.strerror}: {error.filename}")
        for number in prints:
            if number is not None:
                os.close(number)
    return started


def _file(folder: str, rank: int, number: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND
    return os.open(os.path.join(folder, PRINTED.format(rank, number)), flags, 0o600)


def main() -> None:
    """Start the ranks of this host, and wait."""
    numbers, size, *program = sys.argv[1:]
    ranks = [int(number) for number in numbers.split(",")] if numbers != "-" else []
    folder, is_away = os.environ["MALT_FAILURE_DIR"], AWAY in os.environ
    started = start(ranks, int(size), program, folder, is_away)

    def end(number: int, frame: FrameType | None) -> None:
        for process in started.values():
            process.kill()
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    elsewhere = set() if is_away else set(range(int(size))) - set(ranks)
    while any(process.poll() is None for process in started.values()) or (
        not os.path.exists(os.path.join(folder, OVER))
        and any(not os.path.exists(os.path.join(folder, f"ended-{rank}")) for rank in elsewhere)
    ):
        time.sleep(_POLL_S)
    if is_away and all(process.returncode for process in started.values()):
        sys.exit(NONE_ENDED_WELL)


if __name__ == "__main__":
    main()
