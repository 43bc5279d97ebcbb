"""The runner of each rank, without mpiexec: it does as plain Python, except after a failure."""

import py_compile
import re
import socket
import subprocess
import sys
import zipfile

import pytest
from reported import reported

from malt.launch.command import RUNNER
from malt.launch.reports.job_state import failed_with
from malt.runner.events import Stream
from malt.runner.program import marked

pytestmark = pytest.mark.serial

PROGRAMS = {
    "what it sees": "import sys\nprint(sys.argv, sys.path, __name__, __file__, __spec__ and __spec__.name)",
    "itself in sys.modules": "import sys\nclass A: pass\nprint(sys.modules['__main__'].A is A)",
    "ends well": "import sys\nsys.exit()",
    "exit": "import sys\nprint('out')\nsys.exit(3)",
    "exit with text": "import sys\nsys.exit('no such thing')",
    "exit, large": "raise SystemExit(259)",
    "exception": "def f(x):\n    return 1 / x\nf(0)",
    "chained": "try:\n    {}[1]\nexcept KeyError:\n    raise ValueError('of it')",
    "workers": "import multiprocessing as m\ndef f(x): return x + 1\n"
    "if __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p: print(p.map(f, [1]))",
    "own hook": "import sys\nsys.excepthook = lambda *what: print('hook', what[0].__name__)\nraise ValueError",
    "syntax": "print(1\n",
    "interrupted": "raise KeyboardInterrupt",
    "modules of Python": "import session, random\n",
    "prints without a newline": "print('a', end='')",
    "nothing of ours": "import sys\nprint({'malt', 'dis', 'numpy', 'mpi4py'} & set(sys.modules))",
}


PROCESS = {"capture_output": True, "text": True, "timeout": 60}


@pytest.fixture
def run(tmp_path, job_environment):
    """run(text, *words): run Python on `words` in a folder where program.py contains `text`."""

    def run(text, *words, **environment):
        (tmp_path / "program.py").write_text(text)
        return subprocess.run([sys.executable, *words], cwd=tmp_path, env=job_environment | environment, **PROCESS)

    return run


@pytest.mark.parametrize("words", [["program.py"], ["-m", "program"]], ids=["file", "module"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_plain_python(run, name, words):
    plain = run(PROGRAMS[name] + "\n", *words, "-m", "x y")
    ours = run(PROGRAMS[name] + "\n", RUNNER, *words, "-m", "x y")
    assert ours.stdout == plain.stdout
    frozen = r'  File "<frozen runpy>".*\n|  File ".*/runpy\.py".*\n    .*\n'  # plain Python shows its own
    assert ours.stderr == re.sub(frozen, "", plain.stderr)
    assert ours.returncode == (130 if name == "interrupted" else plain.returncode)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "workers"])
def test_a_text_as_plain_python(run, name):
    words = ["-c", PROGRAMS[name], "-m", "x y", "", "-c"]
    plain, ours = run("", *words), run("", RUNNER, *marked(words))
    assert (ours.stdout, ours.stderr) == (plain.stdout, plain.stderr)
    assert ours.returncode == (130 if name == "interrupted" else plain.returncode)


@pytest.mark.parametrize("kind", ["folder", "archive", "compiled"])
def test_what_is_no_text_as_plain_python(run, kind, tmp_path):
    """What has a __main__.py in it, beside which its modules lie, and a compiled file."""
    text = PROGRAMS["what it sees"] + "\nimport " + ("json" if kind == "compiled" else "beside") + "\n1 / 0"
    sources = {"__main__.py": text, "beside.py": "print(__file__)"}
    made = {"folder": "app", "archive": "app.pyz", "compiled": "app.pyc"}[kind]
    if kind == "folder":
        (tmp_path / made).mkdir()
        for name, source in sources.items():
            (tmp_path / made / name).write_text(source)
    elif kind == "archive":
        with zipfile.ZipFile(tmp_path / made, "w") as archive:
            for name, source in sources.items():
                archive.writestr(name, source)
    else:
        (tmp_path / "text.py").write_text(text)
        py_compile.compile(str(tmp_path / "text.py"), str(tmp_path / made))
    plain, ours = run("", made, "-m", "x y"), run("", RUNNER, made, "-m", "x y")
    assert (ours.stdout, ours.returncode) == (plain.stdout, plain.returncode) and "ZeroDivisionError" in ours.stderr
    assert ours.stderr == re.sub(r'  File "<frozen runpy>".*\n', "", plain.stderr)


def test_the_program_is_main_to_the_end(run):
    text = "import atexit, sys\nx = 1\natexit.register(lambda: print(sys.modules['__main__'].x))\n"
    assert run(text, RUNNER, "program.py").stdout == "1\n"


def test_a_thread_fails(run):
    done = run(
        "import threading, time\nthreading.Thread(target=lambda: 1 / 0).start()\ntime.sleep(30)", RUNNER, "program.py"
    )
    assert done.returncode == 1 and done.stderr.count("ZeroDivisionError") == 1


LEAVES = """
import os, signal, threading, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(30)
except KeyboardInterrupt:
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    print("saved", flush=True)
"""


def test_a_thread_that_fails_as_the_launcher_ends_the_job_keeps_nothing_from_being_saved(run, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("signal-2", "notified"):
        (folder / name).touch()
    environment = {"MALT_FAILURE_DIR": str(folder), "MALT_JOB_DIR": str(folder), "MALT_RANK": "0"}
    done = run(LEAVES, RUNNER, "program.py", **environment)
    assert done.stdout == "saved\n" and "ZeroDivisionError" in done.stderr
    assert not {"status-0", "left-0"} & set(reported(folder))


def test_a_thread_may_leave(run):
    text = "import threading, sys\nt = threading.Thread(target=lambda: sys.exit(3))\nt.start(); t.join()"
    assert run(text, RUNNER, "program.py").returncode == 0


@pytest.mark.parametrize("end", ["f()", "import threading; threading.Thread(target=f).start()"], ids=["main", "thread"])
def test_the_traceback_is_reported_to_the_launcher(tmp_path, run, end):
    left = tmp_path / "left"
    left.mkdir()
    text = f"def f():\n    raise ValueError('caf\\u00e9 \\udcff')\n{end}\n"
    run(text, RUNNER, "program.py", MALT_FAILURE_DIR=str(left), PMI_RANK="3")
    assert sorted(path.name for path in left.iterdir()) == ["events-3", "interpreter-3", "stacks-3"]
    reports = reported(left)
    assert sorted(reports) == ["started-3", "status-3", "traceback-3"]
    assert reports["traceback-3"].startswith("Traceback") and "ValueError: café \\udcff" in reports["traceback-3"]


def test_the_status_of_os_exit_is_reported(tmp_path, run):
    """Else that of a rank which fails after it would be that of the job."""
    folder = tmp_path / "folder"
    folder.mkdir()
    run("import os\nos._exit(261)", RUNNER, "program.py", MALT_FAILURE_DIR=str(folder), PMI_RANK="3")
    assert failed_with(Stream(folder).read()) == 5


def test_a_fork_that_fails_reports_nothing(tmp_path, run):
    text = """if True:
        import os
        from malt.runner import exit_hooks
        exit_hooks.end_job_on_failure(lambda status: None)
        if os.fork() == 0:
            raise ValueError
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 1"""
    left = tmp_path / "left"
    left.mkdir()
    done = run(text, RUNNER, "program.py", MALT_FAILURE_DIR=str(left), PMI_RANK="3")
    assert done.returncode == 0 and "ValueError" in done.stderr
    assert sorted(reported(left)) == ["finished-3", "started-3"]


@pytest.mark.parametrize(
    "environment", [{"MALT_FAILURE_DIR": "no-such-folder", "PMI_RANK": "1"}, {"MALT_FAILURE_DIR": "."}, {}], ids=str
)
def test_a_report_that_cannot_be_written(tmp_path, run, environment):
    done = run("1 / 0", RUNNER, "program.py", **environment)
    assert done.returncode == 1 and done.stderr.count("Traceback") == 1
    assert {file.name for file in tmp_path.iterdir()} == {"program.py"}


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_rank_whose_start_cannot_be_written_ends_the_job(tmp_path, run, rank):
    """On a full disk. One of them says why. A file with nothing in it can be made there, and is the rank's report."""
    folder = tmp_path / "folder"
    folder.mkdir()
    if rank == "1":
        (folder / "full").touch()
    limited = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); del sys.argv[0]\n"
    limited += "runpy.run_path(sys.argv[0], run_name='__main__')"
    done = run("print('runs')", "-c", limited, RUNNER, "program.py", MALT_FAILURE_DIR=str(folder), PMI_RANK=rank)
    assert done.returncode == 1 and done.stdout == ""
    why = f"malt: rank 0 cannot write to the folder of the job, {folder}: File too large: free space there"
    assert done.stderr == ("" if rank == "1" else f"{why}, or set TMPDIR to another folder\n")
    assert failed_with(Stream(folder).read()) == 1


def test_what_a_rank_starts_is_not_of_its_job(tmp_path, run):
    text = """if True:
        import os
        assert "MALT_FAILURE_DIR" not in os.environ
        if os.fork() == 0:
            raise ValueError
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 1"""
    assert run(text, RUNNER, "program.py", MALT_FAILURE_DIR=str(tmp_path)).returncode == 0
    assert [file.name for file in tmp_path.iterdir()] == ["program.py"]


def test_the_process_manager_is_asked_to_abort(tmp_path):
    """Before MPI_Init MPICH does not see that a rank has failed."""
    (tmp_path / "program.py").write_text("raise SystemExit(7)\n")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = [sys.executable, RUNNER, tmp_path / "program.py"]
        environment = {"PMI_FD": str(theirs.fileno())}
        assert subprocess.run(words, env=environment, pass_fds=[theirs.fileno()], timeout=200).returncode == 7
        assert ours.recv(100) == b"cmd=abort exitcode=7\n"


@pytest.mark.parametrize("descriptor", ["", "x", "1", "99"])
def test_what_is_no_socket_is_not_written_to(run, descriptor):
    done = run("raise SystemExit(7)", RUNNER, "program.py", PMI_FD=descriptor)
    assert (done.returncode, done.stdout) == (7, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_line_is_written_at_once_and_in_one_piece(tmp_path, unbuffered):
    (tmp_path / "program.py").write_text("import os\nprint('a', 'b', end='')\nprint(' c')\nprint(1, 2)\nos._exit(0)\n")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps what was written apart
    with ours, theirs:
        words = [sys.executable, RUNNER, tmp_path / "program.py"]
        subprocess.run(words, env={"PYTHONUNBUFFERED": unbuffered}, stdout=theirs, timeout=200)
        assert [ours.recv(100), ours.recv(100)] == [b"a b c\n", b"1 2\n"]


def test_lines_are_found_in_what_a_rank_prints(tmp_path, run):
    """In UTF-16 a newline is two bytes: lines of several ranks got mixed, and a later one lost its first half."""
    done = run("import sys\nprint('ä')\nprint('ü', file=sys.stderr)", RUNNER, "program.py", PYTHONIOENCODING="utf-16")
    assert (done.stdout, done.stderr) == ("ä\n", "ü\n")
    text = "import sys\nprint(sys.stdout.encoding, sys.stdout.errors)"
    assert run(text, RUNNER, "program.py", PYTHONIOENCODING="latin-1:replace").stdout == "iso8859-1 replace\n"


CANNOT_PRINT = {
    "a stdout of its own": "import sys\nclass S:\n    def flush(self): raise KeyError\nsys.stdout = S()\n",
    "no stdout": "import sys\nsys.stdout = sys.stderr = None\n",
    "a full disk": "import os, sys\nos.dup2(os.open('/dev/full', os.O_WRONLY), 1)\nsys.stdout.write('x')\n",
    "a closed stderr": "import sys\nsys.stderr.close()\n",
    "a hook that fails": "import sys\ndef hook(*what): raise KeyError\nsys.excepthook = hook\n",
}


@pytest.mark.parametrize("end", ["raise ValueError('it')", "sys.exit('it')", "sys.exit(1)"])
@pytest.mark.parametrize("how", CANNOT_PRINT)
def test_a_failure_is_reported_whatever_can_be_printed(tmp_path, run, how, end):
    left = tmp_path / "left"
    left.mkdir()
    environment = {"MALT_FAILURE_DIR": str(left), "PMI_RANK": "3", "MALT_JOB_DIR": str(left)}
    run(CANNOT_PRINT[how] + end, RUNNER, "program.py", **environment)
    reports = reported(left)
    assert "left-3" in reports and "finished-3" not in reports
    assert ("traceback-3" in reports) == ("raise" in end)


MPI_STATES = "state = 1\ndef Is_initialized(): return state > 0\ndef Is_finalized(): return state > 1\n"
INSIDE = {
    "comes to its end": ("import mpi4py.MPI", None),
    "ends in the midst of it": ("import mpi4py.MPI, os; os._exit(0)", "os._exit(0)"),
    "becomes another": ("import mpi4py.MPI, os; os.execlp('true', 'true')", "os.execv"),
    "ends by a library": ("import mpi4py.MPI, ctypes; ctypes.CDLL(None).exit(0)", ""),
    "ends after it": ("import mpi4py.MPI, os; mpi4py.MPI.state = 2; os._exit(0)", None),
    "never begins it": ("import mpi4py.MPI, os; mpi4py.MPI.state = 0; os._exit(0)", None),
    "ends before it": ("import os; os._exit(0)", None),
    "becomes another before it": ("import os; os.execlp('true', 'true')", None),
    "has a child that ends, as it does": (
        "import mpi4py.MPI, os, ctypes\nif os.fork(): os.wait(), ctypes.CDLL(None).exit(0)\nelse: os._exit(0)",
        "",
    ),
}


@pytest.mark.parametrize("how", INSIDE)
def test_the_launcher_learns_of_an_end_inside_mpi(tmp_path, run, how):
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("")
    (tmp_path / "mpi4py" / "MPI.py").write_text(MPI_STATES)
    left = tmp_path / "left"
    left.mkdir()
    text, expected = INSIDE[how]
    run(text, RUNNER, "program.py", MALT_FAILURE_DIR=str(left), PMI_RANK="3")
    assert reported(left).get("inside-3") == expected
