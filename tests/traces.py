"""Traces of simulated ranks."""

import itertools
import time

import malt
from malt.watch.trace import files, layout
from malt.watch.trace.log import Log


def traced(folder, function, ranks=3, capacity=1 << 14, seed=0, network=None):
    """Call function(rank) on simulated ranks whose events go to `folder`; return the results by rank."""
    folder.mkdir(exist_ok=True)

    def live(rank):
        transport = malt.init().transport
        now, calls = transport.clock, itertools.count(1)
        transport.clock = lambda: now() + 1e-8 * next(calls)  # as a true clock it never shows the same time twice
        log = Log(files.log_of(folder, rank), rank, ranks, capacity, transport.clock)
        log.begin(transport.clock())
        log.name(f"{layout.LAUNCHED}{malt.init().launched_at}")
        transport.trace = log
        return function(rank)

    return malt.simulate(live, ranks, seed, network)


def report(folder, rank, **numbers):
    """Add a report to `folder`, as malt.report does in a job that is traced."""
    from malt.watch import metrics

    with (folder / files.METRICS).open("a") as file:
        file.write(metrics.line(rank, time.time(), numbers))
