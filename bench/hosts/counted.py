"""A program of apps, which also counts what its hosts send while it trains.

    malt run -n 4 --hosts a:2,b:2 -m bench.hosts.counted FILE apps.svm ...

The lowest rank writes the bytes to FILE, all headers included: to all hosts, but not inside one.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import malt
from apps import harness
from apps.harness import job
from bench.hosts.wire import sent_by_host


class _Training(job.Training):
    """A training that counts them."""

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
            Path(sys.argv[1]).write_text(str(sum(everyone)))


if __name__ == "__main__":
    job.Training = _Training  # type: ignore[misc]
    program = import_module(f"{sys.argv[2]}.program")
    harness.main(sys.argv[2], lambda _: program.run(sys.argv[3:]))
