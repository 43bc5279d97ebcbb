"""malt.run: a function on ranks, its results, its output, its errors; from programs and notebooks."""

import _thread
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import called
import numpy as np
import pytest
from failing_jobs import under_one_mpi
from processes import wait_for
from programs import ROOT

import malt
from malt.session.running import running

pytestmark = pytest.mark.serial
DIGITS = re.compile(r"\d+")


@pytest.fixture(autouse=True)
def environment(job_environment, monkeypatch):
    """The environment of this process is that for a job. Nothing of a job is left in its folder."""
    for name in set(os.environ) - set(job_environment):
        monkeypatch.delenv(name)
    monkeypatch.setenv("TMPDIR", job_environment["TMPDIR"])
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    assert os.listdir(job_environment["TMPDIR"]) == []


def test_results_by_rank(capfd, tmp_path, monkeypatch):
    """Arguments and results are copies. The caller is a world of one, in another folder, and stays so."""
    malt.init()
    os.putenv("SET_BY_MPI", "1")  # which Python does not see
    monkeypatch.chdir(tmp_path)
    tests = os.path.dirname(called.__file__)
    path = [one for one in sys.path if one != tests]  # it may be relative to another folder
    monkeypatch.setattr(sys, "path", [*path, tmp_path])  # a pathlib.Path, which imports ignore
    x = np.arange(3.0)
    results = malt.run(called.scaled, 3, (x, [2]))
    assert [one["rank"] for one in results] == [0, 1, 2]
    for one in results:
        np.testing.assert_array_equal(one["x"], [0, 2, 4])
        np.testing.assert_array_equal(one["total"], [0, 6, 12])
        assert one["inherited"] is None
        assert one["pair"] == (None, [np.float32(0.5)]) and isinstance(one["pair"][1][0], np.float32)
        one["x"] += 1  # is the caller's
    np.testing.assert_array_equal(x, np.arange(3))
    assert malt.size() == 1
    output = capfd.readouterr()
    assert sorted(output.out.splitlines()) == ["from 0 0", "from 1 0", "from 2 0"] and output.err == ""


@pytest.mark.thorough
def test_data_frames_and_estimators():
    """An estimator comes back fitted, and a scaler that was fitted here is used there."""
    pandas = pytest.importorskip("pandas")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    rows = pandas.DataFrame({"a": np.arange(40.0), "b": np.arange(40.0) % 7, "name": ["x", "y"] * 20})
    scaler = preprocessing.StandardScaler().fit(rows[["a", "b"]])
    [(classifier, predicted)] = malt.run(called.classifies, 1, (rows, scaler))
    assert list(classifier.feature_names_in_) == ["a", "b"] and list(classifier.classes_) == ["x", "y"]
    pandas.testing.assert_index_equal(predicted.index, rows.index)
    assert predicted["guess"].tolist() == classifier.predict(called.scaled_frame(scaler, rows)).tolist()


def test_the_error_of_a_rank_is_raised(capfd):
    with pytest.raises(RuntimeError) as raised:
        malt.run(called.fails, 3, [1])
    lines = str(raised.value).splitlines()
    assert lines[:2] == ["malt run: rank 1 failed:", "Traceback (most recent call last):"]
    assert lines[2].startswith(f'  File "{called.__file__}", line ') and lines[-1] == "KeyError: 'the reason'"
    assert "KeyError" not in capfd.readouterr().err  # it would be printed twice


@pytest.mark.thorough
@pytest.mark.parametrize("function, args, message", [
    (called.exits, [3], r"RuntimeError: exits ended by sys\.exit\(3\)"),
    (called.fails_alone, [], "the job ended with status 137"),
    (called.makes_a_set, [], r"the result of makes_a_set\[1\] is of type set, which cannot be sent: list\(\) makes a"),
    (called.calls_again, [], "malt.run starts ranks, and cannot be called in one"),
    (called.ends_at_once, [], "^malt.run: rank 1 ended before ends_at_once had returned, as by os._exit$"),
])  # fmt: skip
def test_other_failures(function, args, message):
    with pytest.raises(RuntimeError, match=message):
        malt.run(function, 2, args)


def test_under_survive_a_rank_without_a_result_is_no_error(monkeypatch):
    """Also where the environment asks for it."""
    monkeypatch.setattr(running, "_run_job", lambda *_: None)
    monkeypatch.delenv("MALT_SURVIVE", raising=False)
    assert malt.run(called.exits, 2, (0,), survive=True) == [None, None]
    with pytest.raises(RuntimeError, match="^malt.run: ranks 0, 1 ended before exits had returned"):
        malt.run(called.exits, 2, (0,))
    monkeypatch.setenv("MALT_SURVIVE", "1")
    assert malt.run(called.exits, 2, (0,)) == [None, None]


@pytest.mark.thorough
@under_one_mpi
def test_the_others_go_on(capfd):
    assert malt.run(called.fails_alone, 3, survive=True, label=True) == [(0, 2), None, (0, 2)]
    assert "[0] malt: rank 1 is lost" in capfd.readouterr().err
    assert malt.run(called.exits, 2, (0,)) == [None, None]


@pytest.mark.parametrize("arguments, error, message", [
    ((called.scaled, 0), ValueError, "n must be an integer of at least 1"),
    ((called.scaled, 1, 3), TypeError, "args must be a tuple or list"),
    ((called.scaled, 1, (object(),)), TypeError, r"args\[0\] is of type object, which cannot be sent: create it in"),
    ((called.scaled, 1, (1, {"x": {2}})), TypeError, r"args\[1\]\['x'\] is of type set, which cannot be sent: list"),
    ((called.finds_neighbours, 1, (1, 2)), TypeError, "finds_neighbours returns model, a KNeighborsClassifier, which"),
])  # fmt: skip
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        malt.run(*arguments)


def test_ranks_cannot_run_a_function(monkeypatch):
    with pytest.raises(RuntimeError, match="inside a simulated rank"):
        malt.simulate(lambda rank: malt.run(called.scaled), 1)
    monkeypatch.setenv("PMIX_RANK", "0")
    with pytest.raises(RuntimeError, match="cannot be called in one"):
        malt.run(called.scaled)


PROGRAM = """
import os, sys
import malt
assert len(sys.argv) == 2
TABLE = {"a": 1}
def work(key):
    print("at work", malt.rank(), flush=True)
    text = sys.stdin.read() if key == "a" else __import__("time").sleep(100)
    return [__name__, TABLE[key], text]
if __name__ == "__main__":
    os.chdir("/")
    print(malt.run(work, 2, (sys.argv[1],)))
"""


def started(folder, *words, source=PROGRAM):
    """A program in `folder` that runs a function of its own."""
    (folder / "program.py").write_text(source)
    return subprocess.Popen(
        [sys.executable, *words], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_ctrl_c_ends_the_ranks(tmp_path):
    with started(tmp_path, "program.py", "b") as program:
        assert program.stdout.readline().startswith("at work")
        program.send_signal(signal.SIGINT)
        output = program.stdout.read()
        assert program.wait() in (-signal.SIGINT, 130)
    assert "KeyboardInterrupt: malt run: ended by SIGINT; rank 0 was in" in output


LAUNCHER = """
import os, signal, sys, time
signal.signal(signal.SIGINT, lambda *_: os._exit(130))
if {}:
    os.close(1)
    os.close(2)
open(sys.argv[1] + "/ready", "w").close()
time.sleep(100)
"""


@pytest.mark.parametrize("has_closed", [False, True], ids=["its output", "its end"])
def test_ctrl_c_just_before_a_wait_for_the_launcher(has_closed, tmp_path, monkeypatch):
    """It does not wake the wait."""
    monkeypatch.setattr(running, "_LAUNCHER", LAUNCHER.format(has_closed))

    def interrupt():
        wait_for((tmp_path / "ready").exists)
        time.sleep(0.5)  # until this thread waits
        _thread.interrupt_main()

    began = time.monotonic()
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        running._run_job(tmp_path, [])
    assert time.monotonic() - began < 60


@pytest.mark.thorough
@pytest.mark.parametrize("words", [["program.py"], ["-m", "program"]], ids=lambda words: words[0])
def test_a_function_of_the_program_itself(words, tmp_path):
    with started(tmp_path, *words, "a") as program:
        output, _ = program.communicate("what the program itself may read")
        assert output.splitlines()[2:] == ["[['__mp_main__', 1, ''], ['__mp_main__', 1, '']]"]


@pytest.mark.thorough
def test_a_program_without_a_guard(tmp_path):
    with started(tmp_path, "program.py", "a", source=PROGRAM.replace("if __name__", "if True or __name__")) as program:
        assert 'under `if __name__ == "__main__":`' in program.stdout.read()


@pytest.mark.thorough
def test_a_caller_that_is_killed_leaves_nothing(tmp_path, job_environment):
    with started(tmp_path, "program.py", "b") as program:
        assert program.stdout.readline().startswith("at work")
        program.kill()
    wait_for(lambda: os.listdir(job_environment["TMPDIR"]) == [])


@pytest.fixture
def kernel():
    """The client of a notebook's kernel in the folder examples/."""
    manager = pytest.importorskip("jupyter_client.manager", reason="needs the extra notebook")
    pytest.importorskip("ipykernel", reason="needs the extra notebook")
    kernel, client = manager.start_new_kernel(cwd=ROOT / "examples", env={**os.environ, "PYTHONPATH": str(ROOT)})
    client.interrupt = kernel.interrupt_kernel
    yield client
    client.stop_channels()
    kernel.shutdown_kernel(now=True)


def printed(kernel, source, meanwhile=lambda text: None):
    """Run a cell. Returns the name of its error, or None, and what it printed. meanwhile(text): called as it prints."""
    texts = []

    def note(message):
        if message["msg_type"] == "stream":
            texts.append(message["content"]["text"])
            meanwhile(texts[-1])

    reply = kernel.execute_interactive(source, timeout=200, output_hook=note, allow_stdin=False)
    return reply["content"].get("ename"), "".join(texts)


@pytest.mark.thorough
def test_the_notebook(kernel):
    """Its cells print what it shows, but for the digits."""
    book = json.loads((ROOT / "examples" / "logistic.ipynb").read_text())
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            shown = "".join("".join(one["text"]) for one in cell["outputs"])
            error, text = printed(kernel, "".join(cell["source"]))
            assert (error, DIGITS.sub("#", text)) == (None, DIGITS.sub("#", shown))


@pytest.mark.thorough
def test_the_kernel_is_interrupted(kernel):
    """The ranks end, and the next cell runs. The signal comes to the launcher, too, as that of a terminal."""
    sleep = "def sleeps():\n    print('at work', flush=True)\n    __import__('time').sleep(100)\n"
    error, _ = printed(kernel, f"import malt\n{sleep}malt.run(sleeps, 2)", lambda text: kernel.interrupt())
    assert error == "KeyboardInterrupt"
    source = "def fails():\n    return malt.rank() / 0\nmalt.run(fails, 1)"
    assert printed(kernel, source) == ("RuntimeError", "")
    assert printed(kernel, "print(malt.run(malt.rank, 2))") == (None, "[0, 1]\n")
