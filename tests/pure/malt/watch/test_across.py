"""Bytes across hosts are counted apart: by vectors, blocks, sums, the view, programs and the report of a trace."""

from __future__ import annotations

import numpy as np
from traces import traced

import malt
from apps.harness.marks import Mark, mark
from apps.harness.outputs import TRAFFIC, Report
from malt.models import Sums, moved
from malt.session.world import counters, tracing
from malt.watch.trace import summary
from malt.watch.trace.page import page, runs_of
from malt.watch.trace.reading import read

HOSTS = ("a", "a", "b", "b", "b")
RANKS = len(HOSTS)
VERSIONS = 16
"""The bytes of the version of a block, read twice."""


def exchanging(rank: int) -> dict[str, malt.Statistics]:
    malt.init().transport.hosts = HOSTS
    dense, sparse = malt.vector(10, graph="hierarchical", sync="bsp"), malt.vector((6, 2), kind="sparse", graph="ring")
    blocks, sharded, sums = malt.blocks(np.zeros((10, 3)), [2] * 5), malt.sharded(20), Sums()
    for step in range(4):
        dense.scatter()
        dense.gather()
        sparse.array[step] += rank
        sparse.scatter()
        for visit in blocks.round():
            blocks.array[visit.rows] += 1
    sharded.push(np.ones(20, np.float32))
    malt.barrier()
    sharded.pull()
    sharded.norm()
    malt.allreduce(np.zeros(100), algorithm="tree")
    sums.take(np.zeros(30))
    malt.barrier()
    vectors = {"dense": dense, "sparse": sparse, "blocks": blocks, "sharded": sharded}
    found = {name: one.statistics() for name, one in vectors.items()}
    shown = counters.counters(malt.init(), range(RANKS))
    assert shown.across == sum(one.bytes_across for one in (*found.values(), malt.init().statistics()))
    marked = mark(0, 0.0, [dense, sums])
    assert marked.bytes_across == found["dense"].bytes_across + sums.statistics().bytes_across > 0
    pulled = moved(sharded).statistics()
    assert pulled.bytes_sent == found["sharded"].bytes_sent + found["sharded"].bytes_read > pulled.bytes_read > 0
    return found | {"allreduce": malt.init().statistics(), "sums": sums.statistics()}


def test_bytes_across_are_those_sent_to_ranks_of_other_hosts():
    found = malt.simulate(exchanging, RANKS)
    dense = malt.graph("hierarchical", RANKS, hosts=HOSTS)
    for rank, one in enumerate(found):
        for name, totals in one.items():
            for peer, edge in totals.peers.items():
                moved = edge.bytes_sent + (edge.bytes_read + VERSIONS if name == "sharded" else 0)
                assert edge.bytes_across == (moved if HOSTS[peer] != HOSTS[rank] else 0), name
            scalars = totals.bytes_sent - sum(edge.bytes_sent for edge in totals.peers.values())
            far = sum(host != HOSTS[rank] for host in HOSTS)
            rest = totals.bytes_across - sum(edge.bytes_across for edge in totals.peers.values())
            if name == "sums":
                assert (totals.bytes_sent, rest) == (2 * 240 * 4 // 5, 2 * 240 * far // 5)
            else:
                assert rest * (RANKS - 1) == scalars * far, "each of the others got as many"
        away = [peer for peer in dense.out(rank) if HOSTS[peer] != HOSTS[rank]]
        assert one["dense"].bytes_across == 4 * 40 * len(away)
    for name in found[0]:
        sent = sum(one[name].bytes_sent + one[name].bytes_read for one in found)
        assert 0 < sum(one[name].bytes_across for one in found) < sent
    assert sum(one["dense"].bytes_across for one in found) == 4 * 40 * 6


def test_a_report_has_a_column_where_there_are_several_hosts():
    for across, titles in ((0, 0), (12, 1)):
        report = Report({}, (), TRAFFIC)
        report.add_epoch(Mark(bytes_sent=345, bytes_across=across))
        assert report.epochs[0]["bytes_across"] == across
        assert report.table().count("across hosts") == titles
        assert ("345" in report.table()) and ("12" in report.table()) == bool(across)


def test_the_page_of_a_trace_says_how_many(tmp_path):
    def live(rank, hosts):
        transport = malt.init().transport
        transport.hosts = hosts
        tracing.note_host(transport.trace, transport)
        v = malt.vector(100, graph="ring")
        for _ in range(3):
            v.scatter()
            v.gather()
        malt.barrier()

    traced(tmp_path / "two", lambda rank: live(rank, ("a", "b", "b")))
    trace = read(tmp_path / "two")
    assert summary.summarize(trace).nbytes_across == 2 * 3 * 400
    assert "2.4kB of 3.6kB, 66.7%, went to another host." in page(runs_of([trace]))
    traced(tmp_path / "one", lambda rank: live(rank, ("a", "a", "a")))
    assert "another host" not in page(runs_of([read(tmp_path / "one")]))
