"""The output of a job comes in whole lines, whatever its ranks print and whoever reads it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from malt.launch.streams.display import make_files
from malt.launch.streams.output import Lines, Source

pytestmark = pytest.mark.serial
ONE, TWO, ERR, MPIEXEC = Source("1", 1), Source("2", 1), Source("1", 2), Source("", 2)


def written(*inputs, label=False):
    """What is written after `inputs`, each (source, bytes, seconds). A source of None is a tick alone."""
    pieces = []
    lines = Lines(pieces.append, label)
    for source, data, now in inputs:
        if source is not None:
            lines.feed(source, data, now)
        lines.tick(now)
    lines.tick(1e9)
    return b"".join(pieces)


def test_lines_are_whole():
    inputs = [(ONE, b"a", 0), (TWO, b"b\nc", 0.1), (ONE, b" a\n", 0.1), (ERR, b"e\n", 0.2), (TWO, b"c\n", 0.2)]
    assert written(*inputs) == b"b\na a\ne\ncc\n"


def test_a_part_of_a_line_is_seen_soon_and_what_follows_it_stays_with_it():
    assert (
        written((ONE, b"\r1", 0), (None, b"", 0.3), (ONE, b"\r2", 0.4), (None, b"", 0.7), (ONE, b"\n", 1))
        == b"\r1\r2\n"
    )
    parts = [(ONE, b"name? ", 0), (None, b"", 0.3), (TWO, b"x\n", 0.4), (ONE, b"me\n", 0.5)]
    assert written(*parts) == b"name? \nx\nme\n"
    assert written(*parts, label=True) == b"[1] name? \n[2] x\n[1] me\n"
    assert written((ONE, b"name? ", 0), (None, b"", 0.3), (ONE, b"me\nx", 0.4), label=True) == b"[1] name? me\n[1] x"


def test_a_part_that_grows_is_held_back_no_longer():
    pieces = []
    lines = Lines(pieces.append)
    for step in range(10):
        lines.feed(ONE, b".", step / 10)
        lines.tick(step / 10)
    assert b"".join(pieces) >= b"......"


@pytest.mark.parametrize("data", [bytes(range(256)), b"\r\n\n\r", b"\xff\n" * 3, b"x" * 100_000, b"\n", b"a\0"])
def test_bytes_are_as_they_were(data):
    for cut in {0, 1, len(data) // 2, len(data) - 1}:
        assert written((ONE, data[:cut], 0), (ONE, data[cut:], 0)) == data
        assert written((ERR, data[:cut], 0), (ERR, data[cut:], 0)) == data


def test_each_line_has_its_label():
    assert written((TWO, b"a\n\nb", 0), (ERR, b"c\n", 0), label=True) == b"[2] a\n[2] \n[1] c\n[2] b"
    tagged = b"[1,3]<stdout>: a\n[prterun-vm-1@1,12]<stderr>: [1] b\nits own\n"
    assert written((MPIEXEC, tagged, 0), label=True) == b"[3] a\n[12] [1] b\nits own\n"
    assert written((MPIEXEC, tagged, 0)) == tagged
    assert written((MPIEXEC, b"a\n\0", 0)) == b"a\n"  # Open MPI ends what it prints about a failure so


JOB = """if True:
    import os, sys, time
    from malt.launch import job
    from malt.launch.command import Job, Line
    from malt.launch.streams.display import Display
    end = job.run(Line({{}}, ["sh", "-c", {script!r}], Job(2, (), display={display})), os.environ)
    sys.exit(end.status)"""


def launch(script, display="Display()", **streams):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-c", JOB.format(script=script, display=display)], env=environment, **streams
    )


def test_ranks_write_whole_lines_at_once_and_a_reader_may_be_slow():
    """They write more than pipes hold: no rank waits for the reader, nothing is lost, and no line is cut."""
    loud = "i=0; while [ $i -lt 40 ]; do printf '%09999d\\n' {0}; i=$((i+1)); done > $MALT_FAILURE_DIR/out-{0} & "
    script = loud.format(0) + loud.format(1) + "wait; echo done >&2"
    job = launch(script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert job.stderr.readline() == b"done\n"
    out = job.stdout.read()
    assert job.wait(100) == 0
    job.stderr.close()
    job.stdout.close()
    assert sorted(out.splitlines()) == [b"%09999d" % rank for rank in (0, 1) for _ in range(40)]


def test_a_process_that_keeps_the_pipes_open_is_not_waited_for():
    start = time.monotonic()
    job = launch("sleep 30 > $MALT_FAILURE_DIR/out-0 & echo $!; sleep 30 & echo $!", stdout=subprocess.PIPE)
    with job.stdout:
        first, second = job.stdout.read().split()
    assert job.wait(28) == 0 and time.monotonic() - start < 28
    for number in (first, second):
        os.kill(int(number), 9)


def test_a_reader_that_closes_the_pipe_does_not_end_the_job():
    job = launch("echo x; sleep 0.2; echo y > $MALT_FAILURE_DIR/out-1; exit 7", stdout=subprocess.PIPE)
    job.stdout.close()
    assert job.wait(100) == 7


@pytest.mark.parametrize("streams", [{"stderr": subprocess.DEVNULL}, {"stderr": subprocess.STDOUT}])
@pytest.mark.parametrize("nbytes", [1_000_000, 200_000_000])
def test_a_second_signal_ends_a_job_whose_output_nobody_takes(nbytes, streams):
    """All has been printed, or ranks wait to print more; the reader has not gone, as a pager that shows a page."""
    job = launch(f"echo x; head -c {nbytes} /dev/zero > $MALT_FAILURE_DIR/out-0", stdout=subprocess.PIPE, **streams)
    assert os.read(job.stdout.fileno(), 2) == b"x\n"
    time.sleep(1)  # the pipe is full by now
    job.terminate()
    time.sleep(0.7)  # one that comes sooner is the same one
    job.terminate()
    assert job.wait(30) == 128 + signal.SIGTERM
    job.stdout.close()


@pytest.mark.parametrize("script", ["echo x", "echo x > $MALT_FAILURE_DIR/out-1", "echo x; exit 7"])
def test_output_that_cannot_be_written_makes_a_job_fail_that_ended_well(script):
    with open("/dev/full", "w") as full:
        job = launch(script, stdout=full, stderr=subprocess.PIPE)
        reports = job.communicate(timeout=200)[1]
    assert job.returncode == (7 if "7" in script else 1)
    assert reports == b"malt run: what ranks print is lost: standard output: No space left on device\n"


TRACE = b"Traceback (most recent call last):\n  File 'x.py', line 1\nValueError: x\n"


@pytest.mark.parametrize("label", [False, True])
def test_equal_tracebacks_of_ranks_are_written_once(label):
    """Whatever comes between, as far as they come in a moment; one that differs is written by itself."""
    errors = [Source(rank, 2) for rank in ("0", "3", "10", "2")]
    other = TRACE.replace(b"1", b"2")
    inputs = [(errors[0], b"a\n" + TRACE[:40], 0), (errors[1], TRACE, 0.01), (ONE, b"b\n", 0.02)]
    inputs += [(errors[3], other, 0.02), (errors[0], TRACE[40:], 0.03), (errors[2], TRACE, 0.04)]
    inputs += [(ONE, b"c\n", 0.11)]  # what comes of the failure is below it, also where no time was left in between
    equal, by_itself = TRACE.decode(), other.decode()
    if label:
        lines = [f"[0, 3, 10] {line}\n" for line in equal.splitlines()] + [f"[2] {x}\n" for x in by_itself.splitlines()]
        assert written(*inputs, label=True).decode() == "".join(["[0] a\n", "[1] b\n", *lines, "[1] c\n"])
    else:
        assert written(*inputs).decode() == f"a\nb\nranks 0, 3, 10:\n{equal}{by_itself}c\n"


def test_what_is_printed_below_a_traceback_is_not_held_back_for_long():
    noise = (b"x" * 999 + b"\n") * 70
    pieces = []
    lines = Lines(pieces.append)
    lines.feed(ERR, TRACE + noise, 0)
    assert b"".join(pieces) == TRACE + noise


def test_both_streams_of_a_terminal_share_its_lines(tmp_path):
    wait = f"until [ -e {tmp_path}/shown ]; do sleep 0.1; done"
    script = f"cd $MALT_FAILURE_DIR; printf a > out-0; {wait}; echo b > err-1"
    job = launch(script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert os.read(job.stdout.fileno(), 1) == b"a"
    (tmp_path / "shown").touch()
    assert job.communicate(timeout=200)[0] == b"\nb\n"


def test_a_line_of_the_launcher_is_below_an_incomplete_line_of_a_rank(tmp_path):
    words = [sys.executable, "-m", "malt", "run", "-n", "1", "--trace", tmp_path, "-c", "print('no end', end='')"]
    job = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100)
    assert job.returncode == 0 and job.stdout.startswith(b"no end\nmalt run: malt report ")


def test_some_ranks_are_shown_and_the_lines_of_each_are_kept(tmp_path):
    for name in ("rank-0.txt", "rank-7.txt", "rank-mine.txt"):
        (tmp_path / name).write_text("of an earlier job")
    make_files(str(tmp_path), 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-0.txt", "rank-1.txt", "rank-mine.txt"]
    script = (
        "echo its own; cd $MALT_FAILURE_DIR; printf 'a\nb' > out-0; echo c > err-1; echo d > err-0; printf e > out-1"
    )
    job = launch(
        script, f"Display(True, {str(tmp_path)!r}, frozenset([1]))", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = job.communicate(timeout=200)
    assert sorted(out.splitlines()) == [b"[1] e", b"its own"] and err == b"[1] c\n"
    assert sorted((tmp_path / "rank-0.txt").read_text().split()) == ["a", "b", "d"]
    assert (tmp_path / "rank-1.txt").read_text().split() == ["c", "e"]
