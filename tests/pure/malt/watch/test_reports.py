"""What the program of a rank shows of itself: numbers, progress, the time that is left; and where reports go."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from types import ModuleType

import pytest

import malt
from dstorm.membership import children
from malt.session import session
from malt.session.world.counters import counters
from malt.watch import metrics, reports, table
from malt.watch.progress import Loop, Loops, Rate
from malt.watch.ranks import Shown
from malt.watch.record import Counters, Record, parsed

COUNTERS = Counters(sent={1: 20}, merged=3, waits_for=(2, 3), call="w.gather", wait_s=1.5)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """As if nothing had been reported."""
    monkeypatch.setattr(reports, "_reports", reports.Reports())
    monkeypatch.setattr(reports, "_callbacks", [])
    monkeypatch.setattr(reports, "_sinks", [])
    monkeypatch.setattr(reports, "_has_begun", False)
    monkeypatch.setattr(reports, "_is_child", False)
    monkeypatch.delenv(metrics.METRICS, raising=False)
    monkeypatch.delenv(metrics.TRACE, raising=False)


def shown() -> Record:
    found = parsed(reports.record(COUNTERS).text())
    assert found is not None
    return found


def test_the_newest_numbers_are_shown_beside_the_counters():
    malt.report(loss=0.5, epoch=1)
    malt.report(loss=0.25, examples=10)
    assert shown().numbers == {"loss": 0.25, "epoch": 1, "examples": 10}
    assert Counters(**{name: getattr(shown(), name) for name in vars(COUNTERS)}) == COUNTERS
    assert (shown().progress, shown().left_s) == (None, None)


@pytest.mark.parametrize("number", ["1", True, None, [1]])
def test_what_is_no_number_is_refused(number):
    with pytest.raises(TypeError, match=r"malt.report: loss must be a number"):
        malt.report(epoch=1, loss=number)
    assert shown().numbers == {}


def test_numbers_that_are_too_large_are_infinite(capsys):
    """10**400 is no float, and `malt status` ended in a traceback."""
    malt.report(loss=10**400, epoch=-(10**400), epochs=10**400, examples=10**308)
    malt.report(examples=2 * 10**307, epoch=float("nan"))
    found = shown()
    assert found.numbers["loss"] == found.numbers["epochs"] == math.inf
    assert (found.progress, found.left_s, found.done) == (None, None, 0)
    assert "inf" in table.lines(table.rows([Shown(0, record=found)])).splitlines()[1]
    assert '"loss": null' in metrics.line(0, 0.0, found.numbers)


WAITS = '{"sent": {}, "waits_for": [], '


@pytest.mark.parametrize("text", [
    "", "{}", "[1]", '{"sent": 3}', WAITS + '"more": 1}', WAITS + '"numbers": {"loss": "x"}}', WAITS + '"numbers": 3}',
    WAITS + '"call": null}', WAITS + '"merged": "1"}', WAITS + '"progress": "0.5"}', WAITS + '"done": null}',
    WAITS + '"waits_for": ["x"]}', WAITS + '"sent": {"1": 1e999}}',
])  # fmt: skip
def test_what_is_no_record_or_has_values_of_other_types_is_none(text):
    assert parsed(WAITS + '"left_s": null, "done": 1}') is not None
    assert parsed(text) is None


def test_a_loop_within_another_counts_for_one_of_its_items():
    parts, done = [], []
    for _ in malt.progress(range(2)):
        for _ in malt.progress(iter("abcd"), total=4):
            parts.append(shown().progress)
            done.append(shown().done)
    assert parts == [0, 1 / 8, 2 / 8, 3 / 8, 4 / 8, 5 / 8, 6 / 8, 7 / 8]
    assert done == [0] * 4 + [1] * 4
    assert (shown().progress, shown().left_s) == (1, 0)
    for _ in malt.progress(iter("ab")):  # nobody knows how many: the loop before is no longer shown
        assert shown().progress is None
    assert shown().done == 2


def test_a_loop_that_is_left_early_is_not_done():
    for _ in malt.progress(range(4)):
        break
    assert list(malt.progress([])) == []
    with pytest.raises(TypeError, match="not iterable"):
        malt.progress(3)
    with pytest.raises(ValueError, match=r"malt.progress: total must be an integer of at least 0, got -1"):
        malt.progress("ab", -1)


def test_the_time_left():
    loops = Loops()
    outer = Loop(4, began=10.0)
    loops.begin(outer)
    assert loops.progress(11.0).left_s is None
    outer.done = 1
    assert loops.progress(12.0).left_s == 6.0
    epochs = Rate()
    epochs.note(10.0, 1)
    assert epochs.left_s(10.0, 5) is None and epochs.per_s() is None
    epochs.note(12.0, 2)
    assert epochs.left_s(13.0, 5) == 5.0
    assert epochs.left_s(99.0, 5) == 0.0


def test_epochs_are_the_progress_where_there_is_no_loop():
    for epoch, progress in ((1, 0.25), (2, 0.5)):
        malt.report(epoch=epoch, epochs=4)
        assert shown().progress == progress and (shown().left_s is None) == (epoch == 1)


def test_the_speed_is_that_of_late():
    rate = Rate()
    for second in range(10):
        rate.note(second, 100 * second)
    for second in range(10, 20):
        rate.note(second, 900 + 10 * (second - 9))
    assert rate.per_s() == 10
    rate.note(20, 0)  # another training
    rate.note(21, 30)
    assert rate.per_s() == 30


@pytest.fixture
def written(tmp_path, monkeypatch):
    """written(): the reports in the file where they go as lines of JSON."""
    file = tmp_path / "run.jsonl"
    monkeypatch.setenv(metrics.METRICS, str(file))
    return lambda: [json.loads(line) for line in file.read_text().splitlines()]


def test_reports_as_lines_of_json(written, tmp_path):
    """Numbers with the names of a line's own fields are there beside them."""
    before = time.time()
    malt.report(loss=0.5, epoch=1)
    malt.report(loss=float("nan"))
    malt.report(time=12.5, time_=13.5, rank=7, loss=0.3)
    metrics.sink(str(tmp_path / "run.jsonl"))({"loss": 0.25})  # as another rank, which opens the same file
    lines = written()
    times = [line.pop("time") for line in lines]
    assert times == sorted(times) and before - 1 <= times[0] <= times[-1] <= time.time() + 1
    assert lines == [
        {"rank": 0, "loss": 0.5, "epoch": 1}, {"rank": 0, "loss": None},
        {"rank": 0, "time_": 12.5, "time__": 13.5, "rank_": 7, "loss": 0.3}, {"rank": 0, "loss": 0.25},
    ]  # fmt: skip


def test_a_clock_that_is_set_does_not_change_how_far_reports_lie_apart(written, monkeypatch):
    malt.report(loss=0.5)
    monkeypatch.setattr(metrics.time, "time", lambda: 0.0)
    malt.report(loss=0.25)
    first, second = (line["time"] for line in written())
    assert 1e9 < first <= second < first + 100


def test_a_child_of_a_rank_reports_nothing(written, monkeypatch):
    monkeypatch.setenv(children.RANK_PROCESS, f"0 {os.getpid()} -1")
    malt.report(loss=1.0)
    if (child := os.fork()) == 0:
        malt.report(loss=2.0)
        os._exit(0)
    os.waitpid(child, 0)
    monkeypatch.setattr(reports, "_has_begun", False)
    monkeypatch.setenv(children.RANK_PROCESS, f"0 {os.getpid() + 1} -1")  # as after a spawn
    malt.report(loss=3.0)
    assert [line["loss"] for line in written()] == [1.0]


@pytest.mark.parametrize(("where", "line"), [
    ("full.jsonl", "malt: rank 0 no longer writes reports: {}: No space left on device\n"),
    # on another host, say, which lacks the folder: the first report came after an epoch, and ended the job
    ("absent/run.jsonl", "malt: rank ? writes no reports: {}: No such file or directory\n"),
    # malt run refuses --metrics then: a program that is started otherwise, with MALT_METRICS, trains
    ("", "malt: rank ? writes no reports: {}: event files need tensorboard or tensorboardX (pip install tensorboardX); "
     "a file that ends in .jsonl needs neither\n"),
], ids=["full disk", "no folder", "no library"])  # fmt: skip
def test_training_goes_on_where_reports_cannot_be_written(where, line, tmp_path, monkeypatch, capsys):
    (tmp_path / "full.jsonl").symlink_to("/dev/full")
    for name in ("tensorboard", "tensorboard.summary", "tensorboardX"):
        monkeypatch.setitem(sys.modules, name, None)
    path, seen = tmp_path / where, []
    monkeypatch.setenv(metrics.METRICS, str(path))
    monkeypatch.setenv(metrics.TRACE, str(tmp_path / "absent"))
    malt.on_report(seen.append)
    malt.report(loss=0.5, epoch=1)
    malt.report(loss=0.25)
    assert capsys.readouterr().err == line.format(path)
    assert seen == [{"loss": 0.5, "epoch": 1}, {"loss": 0.25}]
    with pytest.raises(TypeError, match=r"malt.on_report takes a function"):
        malt.on_report("print")


def test_reports_in_event_files(tmp_path, monkeypatch):
    written = []

    class SummaryWriter:
        def __init__(self, folder):
            self.folder = folder

        def add_scalar(self, *numbers):
            written.append((self.folder, *numbers))

        def flush(self):
            written.append("flush")

    module = ModuleType("tensorboardX")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    monkeypatch.setitem(sys.modules, "tensorboardX", module)
    monkeypatch.setenv(metrics.METRICS, str(tmp_path))
    malt.report(loss=0.5)
    malt.report(loss=0.25, step=7)
    malt.report(loss=0.2, step=float("nan"))
    run = str(tmp_path / "rank-0")
    assert written == [
        (run, "loss", 0.5, 1), "flush", (run, "loss", 0.25, 7), "flush", (run, "loss", 0.2, 3), "flush",
    ]  # fmt: skip


def test_the_totals_keep_what_freed_vectors_have_sent():
    def program(rank):
        found = []
        for _ in range(3):
            vector = malt.vector(4, sync="bsp")
            vector.scatter()
            vector.gather()
            malt.barrier()
            found.append(counters(session.world(), range(2)))
            vector.close()
        malt.vector(4)
        return [*found, counters(session.world(), range(2))], len(session.world().vectors)

    for (found, kept), other in zip(malt.simulate(program, 2), (1, 0), strict=True):
        first = found[0].sent[other]
        assert kept == 1 and first > 0
        assert [one.sent for one in found] == [{other: n * first} for n in (1, 2, 3, 3)]
        assert [one.merged for one in found] == [1, 2, 3, 3]
