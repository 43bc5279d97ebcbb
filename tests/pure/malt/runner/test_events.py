"""The events of a job: their lines, what counts of them, and what is read of their files."""

import shutil
import subprocess
import sys
import threading

import pytest
from programs import ROOT
from reported import add, made, reported

from malt.runner import events
from malt.runner.events import FULL, Event, History, Kind, Stream, append, parsed


@pytest.mark.parametrize("text", ["", "3", "Traceback\n  café\r\n", "\x1c\u2028 one line", '"], [1'])
def test_a_line_has_the_event(text):
    one = made("traceback-2", text)
    assert one.line().count(b"\n") == 2 and parsed(one.line()) == one


@pytest.mark.parametrize(
    "line",
    ["", "[]", "null", "nonsense", '[1, "left", 2]', '[1, "right", 2, ""]', '["1", "left", 2, ""]',
     '[1, "left", "2", ""]', '[1, "left", 2, 3]', '[1, ["left"], 2, ""]', "[" * 100_000],
    ids=lambda line: line[:20],
)  # fmt: skip
def test_what_is_no_event(line):
    assert parsed(line) is None


def test_what_cannot_be_written_as_text_is_escaped():
    assert made("traceback-0", "caf\u00e9 \udcff").text == "café \\udcff"


def test_events_are_read_once_and_in_whole_lines(tmp_path):
    stream = Stream(tmp_path)
    assert stream.fresh() == [] and Stream(tmp_path / "none").fresh() == []
    add(tmp_path, "started-0", "7 8", 1)
    line = made("left-0", "3", 2).line()
    with (tmp_path / "events-0").open("ab") as file:
        file.write(line[:-1])
    assert stream.fresh() == [Event(Kind.STARTED, 0, "7 8", 1)] and stream.fresh() == []
    with (tmp_path / "events-0").open("ab") as file:
        file.write(b"\n")
    assert stream.fresh() == [Event(Kind.LEFT, 0, "3", 2)] and stream.fresh() == []
    assert stream.texts(Kind.STARTED) == {0: "7 8"} and stream.ranks(Kind.LEFT) == {0}


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path):
    """A disk was full for a while."""
    (tmp_path / "events-0").write_bytes(made("started-0", "7 8").line()[:-4])
    add(tmp_path, "left-0", "3")
    assert reported(tmp_path) == {"left-0": "3"}


def test_what_was_read_is_kept_where_a_cleaner_removes_it(tmp_path):
    """Also where the file is made anew, with an event that is as long."""
    stream = Stream(tmp_path)
    add(tmp_path, "ready-0", at=1)
    assert len(stream.fresh()) == 1
    (tmp_path / "events-0").unlink()
    assert stream.fresh() == [] and stream.ranks(Kind.READY) == {0}
    add(tmp_path, "ready-0", at=2)
    assert stream.fresh() == [Event(Kind.READY, 0, "", 2)]
    shutil.rmtree(tmp_path)
    assert stream.read().ranks(Kind.READY) == {0}


def test_lines_of_several_writers_stay_whole(tmp_path):
    def write(rank):
        for number in range(100):
            append(tmp_path, Event(Kind.LOST, 0, f"{rank} {number} " + "x" * 5000, 1))

    writers = [threading.Thread(target=write, args=(rank,)) for rank in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = [one.text.split()[:2] for one in Stream(tmp_path).fresh()]
    for rank in range(4):
        assert [number for who, number in found if who == str(rank)] == [str(number) for number in range(100)]


def test_on_a_full_disk_a_job_is_known_to_have_failed(tmp_path):
    """One with a status of its own counts first."""
    stream = Stream(tmp_path)
    (tmp_path / FULL).touch()
    assert [one.kind for one in stream.fresh()] == [Kind.STATUS] and stream.fresh() == []
    assert list(stream.texts(Kind.STATUS).values()) == [""]
    add(tmp_path, "status-2", "7")
    assert next(iter(Stream(tmp_path).read().texts(Kind.STATUS))) == 2


def test_what_a_full_disk_does_not_take_its_stream_has(tmp_path):
    """In order with what is in the folder."""
    stream, (left, ended, ready) = Stream(tmp_path), (made(f"{kind}-1", "", at) for at, kind in enumerate(UNWRITTEN))
    (tmp_path / "events-1").mkdir()
    stream.add(left)
    stream.add(ended)
    (tmp_path / "events-1").rmdir()
    stream.add(ready)
    assert stream.fresh() == [left, ended, ready] and stream.fresh() == []
    assert reported(tmp_path) == {"ready-1": ""}


UNWRITTEN = "left", "ended", "ready"


def test_a_write_in_part_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(events.os, "write", lambda file, line: len(line) - 1)
    with pytest.raises(OSError, match="No space left"):
        add(tmp_path, "left-0", "3")


def test_the_oldest_event_comes_first_whatever_the_order(tmp_path):
    history = History()
    history.take(made(f"left-{rank}", at=at) for rank, at in ((2, 7), (0, 9), (1, 8)))
    assert list(history.texts(Kind.LEFT)) == [2, 1, 0]


def test_what_a_rank_has_reported_counts_no_more_once_it_is_started_again(tmp_path):
    """The session to which it came, and what the job has of it, do; of what others say, they say of which start."""
    for kind in Kind:
        for rank in (1, 2):
            add(tmp_path, f"{kind.value}-{rank}")
    (tmp_path / "shown-2").touch()
    (tmp_path / "ask-2").touch()
    before = reported(tmp_path)
    add(tmp_path, "again-2", "1")
    kept = {f"{kind}-2" for kind in ("elsewhere", "status", "came", "lost", "exited", "again")}
    assert before.keys() - reported(tmp_path).keys() == {name for name in before if name.endswith("-2")} - kept
    assert {path.name for path in tmp_path.iterdir()} == {"events-1", "events-2"}
    assert reported(tmp_path)["again-2"] == "1"


REPORTS = """
import os, sys
sys.path.insert(0, {root!r})
from malt.runner import reporting
from malt.runner.events import Kind
reporting.start({folder!r}, [])
if os.fork() == 0:
    reporting.report(Kind.LEFT, "3")
    reporting.publish("shown-2", "x")
    os._exit(0)
os.wait()
reporting.report(Kind.READY)
reporting.report(Kind.LOST, "1", 0)
"""


def test_a_rank_says_first_that_it_was_started_again_and_its_child_says_nothing(tmp_path):
    text = REPORTS.format(root=str(ROOT), folder=str(tmp_path))
    environ = {"MALT_RANK": "2", "MALT_INCARNATION": "3"}
    subprocess.run([sys.executable, "-c", text], env=environ, check=True, timeout=60)
    assert [(one.kind, one.rank, one.text) for one in sorted(Stream(tmp_path).fresh(), key=lambda one: one.at)] == [
        (Kind.AGAIN, 2, "3"), (Kind.READY, 2, ""), (Kind.LOST, 0, "1"),
    ]  # fmt: skip
    assert not (tmp_path / "shown-2").exists()
