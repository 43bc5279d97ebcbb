"""What `malt run` refuses, in one line each, and what it passes on."""

import contextlib
import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile

import pytest
from programs import ROOT

import malt
from dstorm.membership.children import RANK_PROCESS, RANKS
from malt.commands import command_line, placement
from malt.commands import run as run_command
from malt.files import folders
from malt.launch import job
from malt.launch.command import RUNNER, Line
from malt.launch.hosts.allocation import MPIJOB_FILES, Host
from malt.launch.job import End
from malt.launch.machine.mpi_library import Library
from malt.runner.program import marked
from malt.runner.reporting import SURVIVE

REFUSED = {
    "": "malt: .*COMMAND",
    "frob": "malt: .*'frob'",
    "run": "malt run: no PROGRAM",
    "run -n": "malt run: .*-n",
    "run -n 0 x.py": "malt run: .*the number of ranks is from 1 to 4194304, not '0'",
    "run --survive --nproc-per-node 4194305 x.py": "malt run: .*the number of ranks is from 1 to 4194304",
    "run --elastic 1:99999999999 x.py": "malt run: .* MIN:MAX, as 1:4, up to 4194304, not '1:99999999999'",
    "run --survive --hosts localhost:99999999999 x.py": "malt run: .*slots of a host are a number from 1 to 4194304",
    "graph ring -n 99999999999": "malt graph: .*the number of ranks is from 1 to 4194304",
    "graph all -n 100000": "malt graph: -n 100000: the facts of a graph are found for up to 4096 ranks",
    "run -n two x.py": "malt run: .*'two'",
    "run -n 2 --restarts x.py": "malt run: .*the number of restarts is 0 or more, not 'x.py'",
    "run -n 2 --restarts -1 x.py": "malt run: .*--restarts",
    "run -n 2": "malt run: no PROGRAM",
    "run -n 2 --": "malt run: no PROGRAM",
    "run -n 2 -m": "malt run: no PROGRAM",
    "run -n 2 -c": "malt run: -c needs the text of a program",
    "run -n 2 gone.py": "malt run: no such file: gone.py",
    "run -n 2 -": "malt run: no such file: -",
    "run -n 2 --trace= x.py": "malt run: argument --trace: it needs the name of a folder, not ''",
    "run -n 2 --output= x.py": "malt run: argument --output: it needs the name of a folder, not ''",
    "run -n 2 --metrics= x.py": "malt run: argument --metrics: it needs the name of a file or folder, not ''",
    "run -n 2 --hostfile= x.py": "malt run: argument --hostfile: it needs the name of a file, not ''",
    "run -n 2 --metrics gone/a.jsonl x.py": "malt run: --metrics .*/gone/a.jsonl: there is no such folder",
    "run -n 2 -m gone.part": "malt run: no module named gone.part",
    "run -n 2 --bogus x.py": "malt run: unknown arguments: --bogus",
    "run -n 2 --dry x.py": r"malt run: unknown arguments: --dry: did you mean --dry-run\? \(see malt run --help\)",
    "run --host a x.py": r"malt run: unknown arguments: --host: did you mean --hosts\?",
    "run -N 2 x.py": r"malt run: unknown arguments: -N: did you mean -n\?",
    "run --surivve=best-effort -n 2 x.py": r"malt run: .*--surivve=best-effort: did you mean --survive\?",
    "doctor --jsno": r"malt doctor: .*: did you mean --json\?",
    "rnu -n 2 x.py": r"malt: no command rnu: did you mean run\? \(see malt --help\)",
    "stat": r"malt: no command stat: did you mean status\?",
    "--versoin": r"malt: no command --versoin: did you mean --version\?",
    "-n 2 x.py": r"malt: no command goes before -n: did you mean malt run -n \.\.\.\?",
    "x.py": r"malt: no command goes before x.py: did you mean malt run x.py \.\.\.\?",
    "run -n 2 python": "malt run: no PROGRAM",
    "run -n 2 python gone.py": "malt run: no such file: gone.py",
    "run -n 2 python -m": "malt run: -m needs the name of a module",
    "run -n 2 python -O x.py": "malt run: python -O: malt run accepts only -u, -m and -c of Python's options",
    "run -n 2 python2 x.py": f"malt run: python2 is not the Python of this malt, {sys.executable}: leave it out, or ",
    "plan python": "malt plan: no PROGRAM",
    "run -n 2 --mpi lam x.py": "malt run: .*'lam'",
    "run -n 2 --hosts a:0 x.py": "malt run: .*slots",
    "run -n 2 --mpi mpich x.py": "malt run: mpi4py in .* is bound to Open MPI 5.0, not to MPICH",
    "run -n 2 --filter 0,b x.py": "malt run: --filter: ranks are numbers and ranges, as in 0,2-3, not '0,b'",
    "run -n 2 --filter 1-2 x.py": "malt run: --filter: no rank 1-2: there are ranks 0 to 1",
    "run -n 2 --filter 1-0 x.py": "malt run: --filter: no rank 1-0",
    "run -n 2 --inject kill:30 x.py": "malt run: --inject: faults are kill:30s, stop:30s, .* not 'kill:30'",
    "run -n 2 --inject kill:30s x.py": "malt run: --inject kill needs --survive, or --survive=best-effort: ",
    "run -n 2 --inject slow:1x2 --inject stop:9s x.py": "malt run: --inject stop needs --survive",
    "run -n 2 --output x.py x.py": "malt run: --output x.py: File exists",
    "run -n 2 --hostfile gone x.py": "malt run: --hostfile gone: No such file",
    "run -n 2 --hostfile x.py x.py": "malt run: --hostfile x.py: it names no host",
    "run -n 2 --hosts a:1 x.py": "malt run: the hosts have 1 slot, too few for 2",
    "run -n 2 --compare 1,2 x.py": "malt run: argument --compare: not allowed with argument -n/-np/--np",
    "run -np 2 --nproc-per-node 2 x.py": "malt run: argument --nproc-per-node/.*: not allowed with argument -n/",
    "run --nproc-per-node 2 --hosts a,b x.py": "malt run: --nproc-per-node counts the ranks of one host: .*all, -n 4\n",
    "run -n 2 --rounds 3 x.py": "malt run: --rounds goes with --compare",
    "run --compare 1,x x.py": "malt run: .*numbers of ranks are from 1 to 4194304, separated by commas, not '1,x'",
    "run --compare 1,99999999999 x.py": "malt run: .*numbers of ranks are from 1 to 4194304",
    "run --compare 2,2 x.py": "malt run: .*two numbers of ranks or more are compared, as in 1,2, not '2,2'",
    "run --compare 1,2 --rounds 0 x.py": "malt run: .*the number of rounds is 1 or more, not '0'",
    "run --compare 1,2": "malt run: no PROGRAM",
    "run --compare 1,2 gone.py": "malt run: no such file: gone.py",
    "run --compare 1,2 --output x.py x.py": "malt run: --output x.py/round-1-ranks-1: Not a directory",
    "run --compare 1,2 --mpi mpich x.py": "malt run: mpi4py in .* is bound to Open MPI 5.0, not to MPICH",
    **{
        f"run --compare 1,2 {option} x.py":
            f"malt run: --compare cannot be combined with {option.split(maxsplit=1)[0]}: "
        for option in (
            "--hosts a:2", "--hostfile x.py", "--bootstrap", "--need x.py", "--survive", "--rejoin", "--restarts 1",
            "--inject slow:0x2", "--label", "--filter 0", "--view", "--metrics a.jsonl", "--trace a", "--dry-run",
        )
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def openmpi(tmp_path, monkeypatch):
    """A folder with a program, x.py, and an Open MPI that is never asked."""
    (tmp_path / "x.py").touch()
    monkeypatch.chdir(tmp_path)
    granted = "SLURM_JOB_NODELIST", "SLURM_NODELIST", "PBS_NODEFILE", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE"
    for name in (RANK_PROCESS, *RANKS, *granted, *MPIJOB_FILES):  # as if these tests were no rank, and had no hosts
        monkeypatch.delenv(name, raising=False)
    known = contextlib.nullcontext(lambda: Library("openmpi", (5, 0)))
    monkeypatch.setattr(command_line, "looking_for_library", lambda begins: known)
    monkeypatch.setattr(run_command, "find_mpiexec", lambda library, environ: "/opt/bin/mpiexec")


def status(words):
    """What the process would end with."""
    try:
        return command_line.main(words)
    except SystemExit as ended:
        return ended.code


@pytest.fixture
def dry_run(capsys):
    """dry_run(words): the words of the line that --dry-run prints."""

    def run(words):
        assert status(["run", "--dry-run", *words]) == 0
        return shlex.split(capsys.readouterr().out)

    return run


def words_of(line):
    """PROGRAM ARGS..., as ranks get them from a line that --dry-run has printed."""
    return [word.removeprefix("+") for word in line[line.index(RUNNER) + 2 :]]


@pytest.mark.parametrize("words", REFUSED)
def test_refused_in_one_line(words, capsys):
    assert status(words.split()) == 2
    reports = capsys.readouterr()
    assert reports.out == "" and reports.err.endswith("\n") and reports.err.count("\n") == 1
    assert re.match(REFUSED[words], reports.err), reports.err


def test_letters_that_the_output_lacks_are_shown_by_their_numbers(tmp_path):
    """A name of a file may have any, and bytes that are no letter."""
    for name, shown in (("ä.py", "\\xe4.py'\n"), (os.fsdecode(b"\xff.py"), "\\udcff.py'\n")):
        (tmp_path / name).touch()
        done = subprocess.run(
            [sys.executable, "-m", "malt", "run", "--survive", "-n", "1", "--dry-run", tmp_path / name],
            cwd=ROOT, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, timeout=100,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "") and done.stdout.endswith(shown)


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_signal_that_is_ignored_stays_so_and_handlers_are_those_of_a_process_of_malt(before, monkeypatch, capsys):
    """Under nohup SIGHUP is ignored. A program that calls main() has signals of its own."""
    numbers, words = (signal.SIGTERM, signal.SIGHUP), ["completion", "bash"]
    kept = [signal.signal(number, before) for number in numbers]
    try:
        assert command_line.main(words) == 0
        assert [signal.getsignal(number) for number in numbers] == [before] * 2
        monkeypatch.setattr(sys, "argv", ["malt", *words])
        assert command_line.main() == 0
        for number in numbers:
            handler = signal.getsignal(number)
            assert (handler is before) == (before is signal.SIG_IGN)
            if handler is not before:
                with pytest.raises(SystemExit, match=f"^{128 + number}$"):
                    signal.raise_signal(number)
    finally:
        for number, handler in zip(numbers, kept, strict=True):
            signal.signal(number, handler)


@pytest.mark.parametrize("words", ["run -n 2 -m json.tool", "run -n 2 --trace t -c 0", "plan -m json.tool"])
def test_a_folder_that_is_gone(words, capsys, tmp_path, monkeypatch):
    """Another terminal has removed it, and perhaps made it again: ranks cannot start there."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert status(words.split()) == 2
    trouble = "the current folder is gone (No such file or directory): cd to one that is there"
    assert capsys.readouterr().err == f"malt {words.split()[0]}: {trouble}\n"


@pytest.mark.parametrize("words", ["--help", "run --help", "run -n 2 -h x.py", "plan --help"])
def test_help(words, capsys):
    assert status(words.split()) == 0
    assert re.match(r"usage: malt .*\n\n", capsys.readouterr().out)  # in one line


def test_examples_of_the_help_are_command_lines(capsys, tmp_path):
    """Three, of which each starts the program that it names."""
    (tmp_path / "train.py").touch()
    status(["run", "--help"])
    examples = [line[2:] for line in capsys.readouterr().out.partition("\nexamples:\n")[2].splitlines()]
    assert len(examples) == 3
    for example in examples:
        words = example.partition("   ")[0].split()
        assert words[:2] == ["malt", "run"] and status(["run", "--dry-run", *words[2:]]) == 0, capsys.readouterr()


SLURM = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_ID": "17"}
PLACES = [
    ("x.py", {}, "-n 3", "3 ranks, one for each core (-n N: another number)"),
    ("--hosts a:2,b:4 x.py", {}, "-n 6 --host a:2,b:4", "6 ranks on a:2,b:4"),
    ("--hosts a,b:1 x.py", {}, "-n 4 --host a:3,b:1", "4 ranks on a,b:1"),
    ("--hosts localhost:2 x.py", {}, "-n 2 --host localhost:2", "2 ranks on localhost:2"),
    ("--hostfile f x.py", {}, "-n 4 --host b:3,c:1", "4 ranks on b:3,c:1, from f"),
    ("x.py", {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "4(x2)"}, "-n 8 --host n1:4,n2:4",
     "8 ranks on n1:4,n2:4, from the Slurm allocation"),
    ("x.py", {"SLURM_JOB_NODELIST": os.uname().nodename, "SLURM_TASKS_PER_NODE": "1"}, "-n 1",
     "1 rank, from the Slurm allocation"),
    ("-n 2 x.py", {}, "-n 2", ""),
    ("-n 2 --hosts a:2 x.py", {}, "-n 2 --host a:2", ""),
    ("--nproc_per_node=2 --hosts a x.py", {}, "-n 2 --host a:2", ""),
    ("-n 4 --hosts a:4 --hostfile f x.py", SLURM, "-n 4 --host a:4", ""),
    ("-n 4 --hostfile f x.py", SLURM, "-n 4 --host b:3,c:1", "4 ranks on b:3,c:1, from f"),
    ("-n 4 x.py", SLURM, "-n 4 --host n1:2,n2:2", "4 ranks on n1,n2, from the Slurm allocation 17"),
    ("-n 4 x.py", {"SLURM_JOB_NODELIST": os.uname().nodename}, "-n 4", ""),
]  # fmt: skip


@pytest.mark.parametrize(("words", "environ", "options", "said"), PLACES)
def test_the_number_of_ranks(words, environ, options, said, tmp_path, monkeypatch, capsys):
    """Where no option gives it, it is that of the slots, else of the cores, and a line on stderr says so.

    The hosts are those of the option, else of the file, else of the batch system. This machine alone is no news.
    """
    (tmp_path / "f").write_text("\N{BOM}b slots=3\nc slots=1\n")  # as editors of other systems begin a file
    monkeypatch.setattr(placement, "usable_cores", lambda: 3)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert status(["run", "--dry-run", *words.split()]) == 0
    printed = capsys.readouterr()
    line = shlex.split(printed.out)
    given = [line[line.index(name) + k] for name in ("-n", "--host") if name in line for k in (0, 1)]
    assert " ".join(given) == options and printed.err == (f"malt run: {said}\n" if said else "")


MISPLACED = {
    "x.py -n 2": "malt run -n 2 x.py",
    "x.py -n2 --lr 1": "malt run -n2 x.py --lr 1",
    "x.py --lr 1 --np=2": "malt run --np=2 x.py --lr 1",
    "x.py --nproc_per_node 2": "malt run --nproc_per_node 2 x.py",
    "-m timeit -n 2": "malt run -n 2 -m timeit",
    "python x.py -np 2": "malt run -np 2 x.py",
    "--label x.py --hosts a:2 --survive -- -n 3": "malt run --label --hosts a:2 --survive x.py -- -n 3",
}


@pytest.mark.parametrize("words", MISPLACED)
def test_options_of_the_job_stand_before_the_program(words, dry_run, capsys):
    """Where no number of ranks does, the program is not run with them: the line that was meant is shown."""
    assert status(["run", *words.split()]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"malt run: options go before the program: {MISPLACED[words]} (if -")
    shown = re.search(r"program's own: malt (.*)\)\n$", printed)[1].replace("-n N", "-n 2").split()
    assert words_of(dry_run(shown[1:])) == [word for word in words.split() if word not in ("python", "--label")]


def test_a_text_of_many_lines_is_not_shown(capsys):
    assert status(["run", "-c", "a = 1\nb = 2", "-n", "2"]) == 2
    assert capsys.readouterr().err.startswith("malt run: options go before the program: malt run -n 2 -c CODE (")


MAJOR, MINOR = sys.version_info[:2]
TEXT = "'print(1)\nprint(\"2 $X\")'"
MAYBE_ITS_OWN = ["x.py -n data", "x.py -N 2 -c 1 -m 3 --output d", "x.py -- -n 2"]
PROGRAMS = [
    "x.py -n 9 --dry-run -- -m 'a b' --help", *MAYBE_ITS_OWN, "x.py", "x.py -u a", "x.py python", "-m timeit -n 2",
    f"-c {TEXT}", f"-c {TEXT} -n 9 -- -c ''",
]  # fmt: skip
OPTIONS = [
    "-n 2", "-n2", "-np 2", "--np 2", "--np=2", "--nproc-per-node 2", "--nproc_per_node=2", "--mpi openmpi -n 2",
    "--mpi=auto -n=2 --", "--restarts 3 -n 2", "--inject slow:1x2 -n 2", "-n 2 python", "-n 2 python -u",
    f"-n 2 python{MAJOR}", f"-n 2 python{MAJOR}.{MINOR}", f"-n 2 {sys.executable}",
]  # fmt: skip


@pytest.mark.parametrize(("options", "program", "words"), [
    *((options, program, program) for options in OPTIONS for program in PROGRAMS[:1]),
    *((options, program, program) for options in ("-n 2", "-n 2 python") for program in PROGRAMS[1:]),
    *(("", program, program) for program in MAYBE_ITS_OWN), ("", "-- x.py -n 2", "x.py -n 2"),
    ("-n 2 python", "-mtimeit", "-m timeit"),
])  # fmt: skip
def test_what_ranks_run(options, program, words, dry_run):
    """What stands behind the program is its own. A Python before it is that of the ranks."""
    line = dry_run([*options.split(), *shlex.split(program)])
    mpiexec, python = line.index("/opt/bin/mpiexec"), line.index(sys.executable)
    assert line[mpiexec + 1 : mpiexec + 3] == ["-n", "2"] or not options
    assert line[python:] == [sys.executable, RUNNER, *marked(shlex.split(words))]


def test_a_python_of_another_environment_is_refused(tmp_path, capsys):
    """It may be the same file: its packages are others."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    other = tmp_path / "venv" / "bin" / "python3"
    other.symlink_to(os.path.realpath(sys.executable))
    assert status(["run", "-n", "2", str(other), "x.py"]) == 2
    assert capsys.readouterr().err == (
        f"malt run: {other} is not the Python of this malt, {sys.executable}: leave it out, or start the job by "
        f"{other} -m malt run\n"
    )


def test_a_program_may_be_called_python(tmp_path, dry_run):
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "__main__.py").touch()
    assert words_of(dry_run(["-n", "2", "python", "x.py"])) == ["python", "x.py"]


@pytest.mark.parametrize("option", ["--output", "--trace"])
def test_a_folder_into_which_another_job_writes_is_refused(option, tmp_path, capsys):
    """It would remove what that one has written."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "rank-0.txt").touch()
    holder = os.open(tmp_path / "kept", os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    assert status(["run", "-n", "2", option, "kept", "x.py"]) == 2
    assert capsys.readouterr().err == f"malt run: {option} kept: another job that runs writes there\n"
    os.close(holder)
    folders.hold(tmp_path / "kept")
    folders.hold(tmp_path / "kept")  # by the same job, for its other option
    assert os.listdir(tmp_path / "kept") == ["rank-0.txt"]


@pytest.mark.parametrize("words", ["run -n 2 x.py", "status"])
def test_no_folder_for_temporary_files(words, monkeypatch, capsys):
    """As in a container whose file systems are read-only."""

    def refuse():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    assert status(words.split()) == 2
    reports = capsys.readouterr().err
    assert reports.endswith(": no folder for temporary files, such as /tmp, is writable: set TMPDIR to one that is\n")


def test_several_numbers_of_ranks_are_compared_on_this_machine_alone(monkeypatch, capsys):
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    assert status(["run", "--compare", "1,2", "x.py"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "malt run: --compare measures on this machine only: run it on one host of the batch system"
    )
    monkeypatch.setenv("MALT_SURVIVE", "1")
    assert status(["run", "--compare", "1,2", "x.py"]) == 2
    assert "--compare cannot be combined with --survive" in capsys.readouterr().err


def test_version(capsys):
    assert status(["--version"]) == 0
    assert capsys.readouterr().out == f"malt {malt.__version__}\n"


@pytest.mark.parametrize(
    ("environment", "option", "asked"),
    [("1", [], "1"), ("0", [], None), ("", [], None), ("best-effort", [], "best-effort"), ("0", ["--survive"], "1"),
     ("1", ["--survive=best-effort"], "best-effort"), ("yes", ["--survive"], "1")],
)  # fmt: skip
def test_survive_may_be_asked_for_by_the_environment(environment, option, asked, monkeypatch):
    seen = []
    monkeypatch.setattr(job, "run", lambda line, environ, *rest: seen.append((line, environ)) or End(0))
    monkeypatch.setenv("MALT_SURVIVE", environment)
    assert status(["run", "-n", "2", *option, "x.py"]) == 0
    ((line, environ),) = seen
    assert {**environ, **line.settings}.get("MALT_SURVIVE") == asked
    assert line.survives == (asked is not None)


def test_metrics_go_where_the_option_says(tmp_path, monkeypatch, capsys, dry_run):
    monkeypatch.setenv("MALT_METRICS", "elsewhere")
    monkeypatch.setattr(run_command, "find_spec", lambda name: None)
    assert f"MALT_METRICS={tmp_path / 'a.jsonl'}" in dry_run(["-n", "2", "--metrics", "a.jsonl", "x.py"])
    assert status(["run", "-n", "2", "--metrics", "events", "x.py"]) == 2
    assert "--metrics events: event files need tensorboard or tensorboardX" in capsys.readouterr().err
    monkeypatch.setattr(run_command, "find_spec", lambda name: name == "tensorboardX" or None)
    assert f"MALT_METRICS={tmp_path / 'events'}" in dry_run(["-n", "2", "--metrics", "events", "x.py"])


def test_ranks_that_may_fail_need_no_mpi(monkeypatch, capsys):
    unknown = contextlib.nullcontext(lambda: pytest.fail("it is asked for"))
    monkeypatch.setattr(command_line, "looking_for_library", lambda begins: pytest.fail("begun") if begins else unknown)
    assert status(["run", "--dry-run", "--survive", "-n", "2", "x.py"]) == 0
    assert capsys.readouterr().out.endswith("starter.py 0,1 2 x.py\n")
    monkeypatch.setenv(SURVIVE, "1")
    assert status(["run", "--dry-run", "-n", "2", "x.py"]) == 0


def test_survive_in_the_environment_is_checked(monkeypatch, capsys):
    monkeypatch.setenv("MALT_SURVIVE", "yes")
    assert status(["run", "-n", "2", "x.py"]) == 2
    assert "MALT_SURVIVE must be 1, 0 or best-effort, got 'yes'" in capsys.readouterr().err


def test_ends_with_the_status_of_the_job(monkeypatch):
    seen = []

    def run(line, environ, grace_s, remote):
        seen.append((line, grace_s))
        return End(7)

    monkeypatch.setattr(job, "run", run)
    assert status(["run", "-n", "3", "--hosts", "localhost:1,127.0.0.1", "--grace", "0.5", "x.py", "--dry-run"]) == 7
    ((line, grace_s),) = seen
    assert grace_s == 0.5
    assert isinstance(line, Line) and line.job.program == ("x.py", "--dry-run")
    assert f"{Host('localhost', 1)},{Host('127.0.0.1', 2)}" in line.arguments
