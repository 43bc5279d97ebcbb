"""The runner of each rank: as plain Python, but for how a failure ends. Without mpiexec."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys

import pytest

from malt.launcher import RUNNER

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
    "nothing of ours": "import sys\nprint({'malt', 'malt.exits', 'numpy', 'mpi4py'} & set(sys.modules))",
}


@pytest.fixture
def folder(tmp_path, job_environment):
    """Where the programs are: run(words, **environment) runs Python on `words` there."""

    def run(*words, **environment):
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=job_environment | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    tmp_path.run = run
    return tmp_path


@pytest.fixture
def tmp_path(tmp_path):
    """One that takes attributes."""
    return type("Folder", (type(tmp_path),), {})(tmp_path)


@pytest.mark.parametrize("as_module", [False, True], ids=["file", "module"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_plain_python(folder, name, as_module):
    (folder / "program.py").write_text(PROGRAMS[name] + "\n")
    words = ["-m", "program"] if as_module else ["program.py"]
    plain, ours = folder.run(*words, "-m", "x y"), folder.run(RUNNER, *words, "-m", "x y")
    assert ours.stdout == plain.stdout
    frozen = r'  File "<frozen runpy>".*\n|  File ".*/runpy\.py".*\n    .*\n'  # plain Python shows its own
    assert ours.stderr == re.sub(frozen, "", plain.stderr)
    assert ours.returncode == (130 if name == "interrupted" else plain.returncode)


def test_the_program_is_main_to_the_end(folder):
    (folder / "program.py").write_text(
        "import atexit, sys\nx = 1\natexit.register(lambda: print(sys.modules['__main__'].x))\n"
    )
    assert folder.run(RUNNER, "program.py").stdout == "1\n"


def test_a_thread_fails(folder):
    (folder / "program.py").write_text(
        "import threading, time\nthreading.Thread(target=lambda: 1 / 0).start()\ntime.sleep(30)\n"
    )
    done = folder.run(RUNNER, "program.py")
    assert done.returncode == 1 and done.stderr.count("ZeroDivisionError") == 1


def test_a_thread_may_leave(folder):
    (folder / "program.py").write_text(
        "import threading, sys\nt = threading.Thread(target=lambda: sys.exit(3))\nt.start(); t.join()\n"
    )
    assert folder.run(RUNNER, "program.py").returncode == 0


@pytest.mark.parametrize("thread", [False, True])
def test_the_traceback_is_left_for_the_launcher(folder, thread):
    failing = "raise ValueError('caf\\u00e9 \\udcff')"
    text = f"import threading\ndef f():\n    {failing}\n" + ("threading.Thread(target=f).start()" if thread else "f()")
    (folder / "program.py").write_text(text)
    left = folder / "left"
    left.mkdir()
    folder.run(RUNNER, "program.py", MALT_FAILURE_DIR=str(left), PMI_RANK="3")
    (file,) = left.iterdir()
    assert file.name == "rank-3.txt"
    assert file.read_text(encoding="utf-8").startswith("Traceback") and "ValueError: café" in file.read_text(
        encoding="utf-8"
    )


def test_nowhere_to_leave_it(folder):
    (folder / "program.py").write_text("1 / 0\n")
    done = folder.run(RUNNER, "program.py", MALT_FAILURE_DIR=str(folder / "gone"))
    assert done.returncode == 1 and done.stderr.count("Traceback") == 1


def test_the_process_manager_is_asked_to_abort(folder, job_environment):
    """Before MPI_Init MPICH does not see that a rank has failed."""
    (folder / "program.py").write_text("raise SystemExit(7)\n")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        environ = job_environment | {"PMI_FD": str(theirs.fileno())}
        words = [sys.executable, RUNNER, "program.py"]
        status = subprocess.run(words, cwd=folder, env=environ, pass_fds=[theirs.fileno()], timeout=60).returncode
        assert (status, ours.recv(100)) == (7, b"cmd=abort exitcode=7\n")


@pytest.mark.parametrize("descriptor", ["", "x", "1", "99"])
def test_what_is_no_socket_is_not_written_to(folder, descriptor):
    (folder / "program.py").write_text("raise SystemExit(7)\n")
    done = folder.run(RUNNER, "program.py", PMI_FD=descriptor)
    assert (done.returncode, done.stdout) == (7, "")


def test_lines_are_written_when_they_end(folder):
    """To a pipe: what is lost when the process is killed is at most a line."""
    (folder / "program.py").write_text("import os, signal\nprint('a', 'b')\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert folder.run(RUNNER, "program.py").stdout == "a b\n"
    assert os.path.isabs(RUNNER)
