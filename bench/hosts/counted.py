"""A program of apps, which also counts what its hosts send while it trains.

    malt run -n 4 --hosts a:2,b:2 -m bench.hosts.counted apps.svm ... --json FILE

The report gets "bytes_wire": the bytes, all headers included, to all hosts, but not inside one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import malt
from apps import harness
from apps.harness import job
from bench.harness import jobs
from bench.hosts.wire import sent_by_host


class _Training(job.Training):
    """A training that counts them."""

    bytes_wire = 0

    def train(self) -> None:
        """As `Training.train`. Collective."""
        malt.barrier()
        before = sent_by_host()
        super().train()
        malt.barrier()
        hosts = malt.hosts()
        is_first = hosts.index(hosts[malt.rank()]) == malt.rank()
        everyone = malt.allgather(sent_by_host() - before if is_first else 0)
        if malt.lowest():
            _Training.bytes_wire = sum(everyone)


def _give(run: Callable[[Sequence[str]], object], arguments: Sequence[str]) -> None:
    """Run a program, and give its report with the bytes. Collective."""
    run(arguments)
    if malt.lowest():
        jobs.give({**json.loads(Path(arguments[-1]).read_text(encoding="utf-8")), "bytes_wire": _Training.bytes_wire})


if __name__ == "__main__":
    job.Training = _Training  # type: ignore[misc]
    program = import_module(f"{sys.argv[1]}.program")
    harness.main(sys.argv[1], lambda arguments: _give(program.run, arguments[1:]))
