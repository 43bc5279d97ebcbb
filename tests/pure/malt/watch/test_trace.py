"""Events of ranks: that they say what the counters say, and what is made of them: trace.json, and the report."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import struct
import threading
import time
import warnings
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranks import run_failing, run_ranks
from traces import report, traced

import malt
from malt.commands import command_line
from malt.session.world import tracing
from malt.watch.trace import files, layout, perfetto, summary
from malt.watch.trace.clocks import Exchange, Offset, offset
from malt.watch.trace.layout import DTYPE, Kind
from malt.watch.trace.log import Log
from malt.watch.trace.page import page, runs_of
from malt.watch.trace.reading import TraceError, read

RANKS = 3


def exchanging(sync="asp", steps=20):
    """A function of a rank that exchanges a dense and a sparse vector, and returns their statistics."""

    def run(rank):
        dense, sparse = malt.vector(100, sync=sync), malt.vector((50, 2), kind="sparse", graph="ring")
        for step in range(steps * (1 + rank) if sync == "asp" else steps):
            dense.scatter(to=[(rank + 1) % RANKS] if sync == "asp" and step % 5 == 4 else None)
            sparse.array[step % 50] += 1
            sparse.scatter()
            dense.gather()
            if step % 3 == 0:
                sparse.gather(malt.SUM)
        malt.barrier()
        dense.close()
        sparse.close()
        return dense.statistics(), sparse.statistics(), dense.step

    return run


@pytest.fixture(scope="module", params=["asp", "bsp"])
def run(request, tmp_path_factory):
    """The folder of a traced run, and what exchanging returned by rank."""
    folder = tmp_path_factory.mktemp("trace") / request.param
    found = traced(folder, exchanging(request.param), RANKS)
    for step in range(5):
        report(folder, 0, loss=1 / (1 + step), examples=100 * step)
    return folder, found


def test_events_say_what_the_counters_say(run):
    folder, found = run
    trace = read(folder)
    assert [rank.rank for rank in trace.ranks] == [0, 1, 2] and trace.size == RANKS
    for rank, (dense, sparse, step) in zip(trace.ranks, found, strict=True):
        described = (f"vector 1: dense float32 (100,), graph all, sync {folder.name}",
                     "vector 2: sparse float32 (50, 2), graph ring, sync asp")  # fmt: skip
        for name, vector in zip(described, (dense, sparse), strict=True):
            mine = rank.records[rank.records["name"] == rank.names.index(name)]
            assert (mine["kind"] == Kind.SCATTER).sum() == step
            assert (mine["kind"] == Kind.MERGED).sum() == vector.gathered
            for peer, edge in vector.peers.items():
                sent = mine[(mine["kind"] == Kind.SENT) & (mine["peer"] == peer)]
                assert (len(sent), sent["value"].sum()) == (edge.sent, edge.bytes_sent)
        for what, name in (("messages", "sent"), ("nbytes", "bytes_sent"), ("merged", "gathered"),
                           ("overwritten", "overwritten"), ("waited_s", "waited_s")):  # fmt: skip
            for peer in range(RANKS):
                edges = [vector.peers[peer] for vector in (dense, sparse) if peer in vector.peers]
                total = rank.totals[peer][layout.TOTALS.index(what)]
                assert total == pytest.approx(sum(getattr(edge, name) for edge in edges))


def test_a_ring_keeps_the_newest_events_and_totals_count_all(tmp_path):
    found = traced(tmp_path / "short", exchanging(), RANKS, capacity=32)
    trace = read(tmp_path / "short")
    for rank, (dense, sparse, _) in zip(trace.ranks, found, strict=True):
        written = layout.HEADER.unpack_from((tmp_path / "short" / f"rank-{rank.rank}.trace").read_bytes())[6]
        assert 30 <= written - rank.dropped <= 32 < rank.dropped
        assert (np.diff(rank.records["start"]) >= 0).all()
        assert rank.totals[:, 1].sum() == dense.bytes_sent + sparse.bytes_sent
    made = summary.summarize(trace)
    assert made.dropped == sum(rank.dropped for rank in trace.ranks)
    assert made.edges[0] == trace.since > 0


def test_the_timeline_adds_up(run):
    trace = read(run[0])
    made = summary.summarize(trace, bins=7)
    lasted = [rank.until for rank in trace.ranks]
    assert made.timeline.sum(axis=(1, 2)) == pytest.approx(lasted)
    assert (made.timeline > -1e-9).all()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=8))
def test_what_overlaps_is_covered_once(intervals):
    records = np.zeros(len(intervals), DTYPE)
    records["start"], records["seconds"] = np.array(intervals).reshape(-1, 2).T
    times = np.arange(0, 80, 7)
    found = summary._coverage(records[np.argsort(records["start"])], times)
    covered = {second for start, length in intervals for second in range(start, start + length)}
    assert found.tolist() == [sum(second < time for second in covered) for time in times]


def test_a_file_for_perfetto(run, tmp_path):
    path = tmp_path / "trace.json"
    assert perfetto.write(read(run[0]), path) == 0
    events = json.loads(path.read_text())["traceEvents"]
    needed = {"X": {"ts", "dur", "name"}, "M": {"name", "args"}, "i": {"ts", "s"}}
    for event in events:
        assert {*needed[event["ph"]], "pid", "tid"} <= set(event)
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0
    scatters = sum(event["ph"] == "X" and event["cat"] == "scatter" for event in events)
    assert scatters == sum(2 * step for _, _, step in run[1])
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {
        f"rank {rank}" for rank in range(RANKS)
    }
    gathers = [event["args"]["messages"] for event in events if event["ph"] == "X" and event["cat"] == "gather"]
    assert sum(gathers) == sum(vector.gathered for found in run[1] for vector in found[:2])
    timed = [event for event in events if event["ph"] in "Xi"]
    assert timed == sorted(timed, key=lambda event: event["ts"])
    open_slices: dict[tuple[int, int], list] = {}
    for event in timed:  # as Perfetto's importer reads them
        inner = open_slices.setdefault((event["pid"], event["tid"]), [])
        while event["ph"] == "X" and inner and inner[-1]["ts"] + inner[-1]["dur"] <= event["ts"] + 1e-4:
            inner.pop()
        if event["ph"] == "X":
            assert not inner or event["ts"] + event["dur"] <= inner[-1]["ts"] + inner[-1]["dur"] + 1e-4
            inner.append(event)


def test_a_file_for_perfetto_of_a_rank_without_events(tmp_path):
    log = Log(files.log_of(tmp_path, 0), 0, 1)
    log.begin(1.0)
    path = tmp_path / "trace.json"
    perfetto.write(read(tmp_path), path)
    assert {event["ph"] for event in json.loads(path.read_text())["traceEvents"]} == {"M"}
    log.yielded(0.5, 0.75)  # of an earlier session of this process
    perfetto.write(read(tmp_path), path)
    assert [event["ts"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"] == [0.0]


def test_of_many_events_perfetto_gets_the_newest(run, tmp_path, monkeypatch):
    monkeypatch.setattr(perfetto, "MOST_EVENTS", 40)
    trace, path = read(run[0]), tmp_path / "trace.json"
    left_out = perfetto.write(trace, path)
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] != "M"]
    drawn = (Kind.SCATTER, Kind.GATHER, Kind.WAIT, Kind.YIELD, Kind.CALL, Kind.OVERWRITTEN)
    assert len(events) + left_out == sum(len(rank.of(*drawn)) for rank in trace.ranks)
    assert 40 <= len(events) < 60  # several begin at once


class Balanced(HTMLParser):
    """A reader that checks that each tag is closed, and keeps what would be loaded."""

    def __init__(self):
        super().__init__()
        self.open, self.loads = [], []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "data")]

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("count", [1, 2])
def test_a_page_that_loads_nothing(run, count):
    text = page(runs_of([read(run[0])] * count))
    reader = Balanced()
    reader.feed(text)
    assert reader.open == reader.loads == []
    assert not re.search(r"https?:|@import|<script|url\((?!#)", text)
    charts = re.findall(r"<svg.*?</svg>", text, re.S)
    for chart in charts:
        ElementTree.fromstring(chart)
    assert len(charts) == 2 + (5 + ("bsp" in str(run[0]))) * count
    assert text.count('class="line one"') == 2 and text.count('class="line two"') == 2 * (count - 1)


def test_the_command_compares_two_runs(run, tmp_path, capsys):
    output = tmp_path / "both.html"
    assert command_line.main(["report", str(run[0]), str(run[0]), "-o", str(output)]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [str(output), *[str(run[0] / "trace.json")] * 2]
    assert "prefers-color-scheme: dark" in output.read_text()


def copy(run, folder):
    folder.mkdir()
    for path in run[0].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder / "rank-1.trace"


def test_an_event_that_was_being_written_is_left_out(run, tmp_path):
    path = copy(run, tmp_path / "killed")
    whole = read(run[0]).ranks[1].records
    data = bytearray(path.read_bytes())
    (count,) = struct.unpack_from("<Q", data, layout.COUNT_AT)
    end = layout.records_at(RANKS) + count * DTYPE.itemsize
    path.write_bytes(data[: end - 10])
    assert len(read(path.parent).ranks[1].records) == len(whole) - 1
    data[end - DTYPE.itemsize : end] = bytes(DTYPE.itemsize)
    path.write_bytes(data)
    assert len(read(path.parent).ranks[1].records) == len(whole) - 1
    at = end - DTYPE.itemsize + DTYPE.fields["seconds"][1]
    data[at : at + 4] = struct.pack("<I", 0x7F800001)  # a NaN of which NumPy warns
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read(path.parent).ranks[1].records) == len(whole) - 1
    (path.parent / files.METRICS).write_text('{"rank": 0, "time": 3, "loss": 1}\n{"rank": 0, "ti')
    assert [one["loss"] for one in read(path.parent).metrics] == [1]


def test_odd_reports_and_a_path_that_is_no_utf_8(run, tmp_path):
    """Reports that are none are left out."""
    path = copy(run, tmp_path / "odd").parent
    lines = ["5", "[]", '{"rank": 0}', '{"rank": 1e999, "time": 1}', '{"rank": 0, "time": 1' + 400 * "0" + "}",
             '{"rank": 0, "time": 3, "loss": "x", "examples": 5, "seen": null}']  # fmt: skip
    (path / files.METRICS).write_text("\n".join(lines))
    assert [one.keys() - {"rank", "time"} for one in read(path).metrics] == [{"examples"}]
    (path / files.JOB).write_text(json.dumps({"version": 1, "program": ["x-\udcff.py"]}))
    assert command_line.main(["report", str(path)]) == 0
    assert "x-?.py" in (path / files.REPORT).read_text()


@pytest.mark.parametrize("harm, message", [
    (lambda data: b"", "not a trace of malt"),
    (lambda data: b"MALTRACF" + data[8:], "not a trace of malt"),
    (lambda data: data[:8] + struct.pack("<I", 1) + data[12:], "of version 1, and this malt reads version 3"),
    (lambda data: data[:1000], "cut off, or damaged"),
    (lambda data: data[:16] + struct.pack("<I", 1 << 30) + data[20:], "cut off, or damaged"),
    (lambda data: data[:12] + struct.pack("<I", RANKS) + data[16:], "cut off, or damaged"),
    (lambda data: data[:40] + struct.pack("<I", layout.NAMES + 1) + data[44:], "cut off, or damaged"),
    (lambda data: data[:48] + struct.pack("<d", math.inf) + data[56:], "cut off, or damaged"),
    (lambda data: data[:80] + struct.pack("<Q", 1 << 63) + data[88:], "cut off, or damaged"),
])  # fmt: skip
def test_a_file_that_cannot_be_read(run, tmp_path, harm, message, capsys):
    path = copy(run, tmp_path / "harmed")
    path.write_bytes(harm(path.read_bytes()))
    assert command_line.main(["report", str(path.parent)]) == 2
    assert capsys.readouterr().err == f"malt report: {path}: {message}\n"


@pytest.mark.parametrize("made, message", [
    ({}, "no trace there: malt run --trace"),
    ({"job.json": '{"version": 1}'}, "no rank has begun a session there"),
    ({"job.json": '{"version": 9}'}, "of version 9, and this malt reads version 1"),
    ({"job.json": "{"}, "not what malt run --trace writes"),
    ({"job.json": "[1]"}, "not what malt run --trace writes"),
    ({"job.json": '{"version": 1, "program": 5}'}, "not what malt run --trace writes: program is 5"),
    ({"job.json": '{"version": 1, "hosts": [1]}'}, r"--trace writes: hosts is \[1\]"),
    ({"job.json": '{"version": 1, "python": null}'}, "--trace writes: python is null"),
    ({"job.json": '{"version": 1, "seconds": 1e999}'}, "--trace writes: seconds is Infinity"),
    ({"job.json": '{"version": 1, "environment": {"A": 1}}'}, r"--trace writes: environment is \{"),
])  # fmt: skip
def test_a_folder_without_a_trace(tmp_path, made, message):
    for name, text in made.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(TraceError, match=message):
        read(tmp_path)
    with pytest.raises(TraceError, match="no such folder"):
        read(tmp_path / "absent")


@given(st.floats(-1e3, 1e3), st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_the_offset_of_a_clock_is_as_good_as_it_says(true, rounds):
    own, other, now = [], [], 0.0
    for mine, theirs, late in rounds:
        both = now + max(mine, theirs)  # both have entered
        own.append(Exchange(now + mine + true, both + late + true))
        other.append(Exchange(now + theirs, both + late / 2))
        now = both + late
    found = offset(own, other)
    assert abs(found.seconds - true) <= found.error_s + 1e-9
    each = [offset([mine], [theirs]).error_s for mine, theirs in zip(own, other, strict=True)]
    assert found.error_s <= min(each) + 1e-9


def test_a_wait_in_a_barrier_is_for_the_rank_that_came_last(tmp_path):
    def run(rank):
        transport = malt.init().transport
        transport.trace = log = Log(files.log_of(tmp_path, rank), rank, RANKS, 1 << 10, transport.clock)
        log.begin(transport.clock())
        for _ in range([0, 60, 20][rank]):
            transport.pause(10)
        malt.barrier()

    run_failing(RANKS, 0, {}, run)
    made = [rank.of(Kind.WAITED) for rank in read(tmp_path).ranks]
    assert set(made[0]["peer"]) == set(made[2]["peer"]) == {1}
    assert made[0]["seconds"].sum() > made[2]["seconds"].sum() > 0.02


def test_ranks_of_several_hosts_compare_their_clocks():
    def ahead(transport):
        now, by = transport.clock, 7.0 * transport.rank
        transport.clock = lambda: now() + by
        return tracing._offset(transport)

    assert run_ranks(ahead, "aaa") == [Offset()] * 3
    for rank, found in enumerate(run_ranks(ahead, "abb")):
        assert found.seconds == pytest.approx(7.0 * rank, abs=found.error_s + 1e-9) and found.error_s < 0.1


def test_what_the_report_says_of_a_straggler(tmp_path):
    def run(rank):
        transport, vector = malt.init().transport, malt.vector(10, sync="bsp")
        for _ in range(10):
            end = transport.clock() + 0.1 * (1 + 2 * (rank == 1))
            while transport.clock() < end:
                transport.pause(10)
            vector.scatter()
            vector.gather()

    traced(tmp_path, run, RANKS)
    lines = summary_of(tmp_path)
    assert re.fullmatch(r"Rank [02] waits 6\d% of its time, 100% of that for rank 1\.", lines[0])
    assert re.match(r"Rank 1 computes 3\.\d times as long as the others", lines[2])


def summary_of(folder):
    from malt.watch.trace.advice import advice

    trace = read(folder)
    return advice(trace, summary.summarize(trace))


def test_what_the_report_says_of_a_run_without_calls(tmp_path):
    """Each rank was said to compute for at least 0% of its time."""
    folder = tmp_path / "run"
    folder.mkdir()
    log = Log(files.log_of(folder, 0), 0, 1, 1 << 10, time.monotonic)
    log.begin(time.monotonic())
    assert summary_of(folder) == ["No call is in the trace, so it does not show how ranks spent their time."]


def test_what_the_report_says_of_messages_that_were_overwritten(tmp_path):
    def run(rank):
        vector = malt.vector(10)
        for step in range(40):
            vector.scatter()
            if step % 8 == 0:
                vector.gather()
        malt.barrier()

    traced(tmp_path, run, RANKS)
    assert any(re.match(r"[6-9]\d% of messages were overwritten", line) for line in summary_of(tmp_path))


def test_a_full_disk_leaves_no_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        Log(files.log_of(tmp_path, 0), 0, 1)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.note(tmp_path, {})
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_takes_the_file_of_another_leaves_its_memory_alone(tmp_path):
    path = files.log_of(tmp_path, 0)
    before, after = Log(path, 0, 1), Log(path, 0, 1)
    before.yielded(1.0, 2.0)
    before.yielded(2.0, 3.0)
    after.yielded(1.0, 3.0)
    assert read(tmp_path).ranks[0].records["seconds"].tolist() == [2.0]
    assert before._written[0] == 2


def test_more_steps_than_a_record_has_bits_for(tmp_path):
    log, step = Log(files.log_of(tmp_path, 0), 0, 2), (1 << 32) + 5
    name = log.name("vector")
    log.sent(name, step, 1.0, 2.0, [(1, 10)])
    log.sent(name, step, 1.0, 2.0, [(0, 5), (1, 5)])
    log.merged(name, step, 3.0, 4.0, [1], [step - 1], [(1, 1)])
    for start, behind in enumerate((6, -1, 70_000), 4):
        log.merged(name, step, start, start + 1, [1], [step - behind])
    rank = read(tmp_path).ranks[0]
    assert rank.of(Kind.SCATTER)["step"].tolist() == [5, 5]
    merged = rank.of(Kind.MERGED)
    assert merged["step"].tolist() == [4, (1 << 32) - 1, 6, (1 << 32) - 69_995]
    assert merged["value"].tolist() == [1, 6, -1, 70_000] and rank.of(Kind.GATHER)["value"].tolist() == [1] * 4


def test_calls_of_two_threads_at_once_are_both_noted(tmp_path):
    log = Log(files.log_of(tmp_path, 0), 0, 1)
    log.yielded(0.0, 1.0)  # so that there is room to write several records at once
    with log.call("the outer"):
        with log.call("the inner"):
            pass
        thread = threading.Thread(target=note, args=[log, "another"])
        thread.start()
        thread.join()
    rank = read(tmp_path).ranks[0]
    assert {int(one["thread"]) for one in rank.of(Kind.WAITED)} == {1}
    made = rank.of(Kind.CALL)
    assert {(rank.names[one["name"]], int(one["thread"])) for one in made} == {("the outer", 0), ("another", 1)}


def note(log, what):
    with log.call(what):
        log.waited(what, 1.0, 2.0, [(0, 0.5)])


def test_a_rank_that_was_started_again_is_one_rank_with_all_its_events(tmp_path):
    """Each incarnation has a file, with names of its own."""
    for rank, incarnation, names, began in ((1, 10, "b", 9.0), (1, 0, "ab", 1.0), (0, 0, "c", 1.0), (1, 2, "ca", 5.0)):
        log = Log(files.log_of(tmp_path, rank, incarnation), rank, 2)
        log.begin(began)
        for place, name in enumerate(names):
            log.waited(name, began + place, began + place + 0.5, [(1 - rank, 0.5)])
    (tmp_path / "rank-1.old.trace").touch()
    other, joined = read(tmp_path).ranks
    waits = joined.of(Kind.WAIT)
    assert [joined.names[number] for number in waits["name"]] == ["a", "b", "c", "a", "b"]
    assert waits["start"].tolist() == [0.0, 1.0, 4.0, 5.0, 8.0] and joined.totals[0, 4] == 2.5
    assert (other.rank, joined.rank, len(other.of(Kind.WAIT))) == (0, 1, 1)
    summary_of(tmp_path)
    files.prepare(tmp_path, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.json", "rank-1.old.trace"]
