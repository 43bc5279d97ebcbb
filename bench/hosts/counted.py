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

_SENT = 8
"""The place of the bytes that an interface has sent, in its line of /proc/net/dev."""


class _Training(job.Training):
    """A training that counts them."""

    def train(self) -> None:
        """As `Training.train`. Collective."""
        malt.barrier()
        before = sent()
        super().train()
        malt.barrier()
        hosts = malt.hosts()
        is_first = hosts.index(hosts[malt.rank()]) == malt.rank()
        everyone = malt.allgather(sent() - before if is_first else 0)
        if malt.lowest():
            Path(sys.argv[1]).write_text(str(sum(everyone)))


def sent(counters: str = "/proc/net/dev") -> int:
    """The bytes that this host has sent to others so far, with all headers. Local."""
    lines = [line.partition(":") for line in Path(counters).read_text().splitlines()[2:]]
    return sum(int(numbers.split()[_SENT]) for name, _, numbers in lines if name.strip() != "lo")


if __name__ == "__main__":
    job.Training = _Training  # type: ignore[misc]
    program = import_module(f"{sys.argv[2]}.program")
    harness.main(sys.argv[2], lambda _: program.run(sys.argv[3:]))
