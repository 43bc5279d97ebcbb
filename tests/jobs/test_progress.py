"""A scatter over TCP arrives while its receiver computes.

The jobs here use TCP on this one machine, and MPI reports that their ranks share no memory: under MPICH by a setting,
under Open MPI by two network namespaces, which vanish with their last process.
"""

import json
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest
from two_hosts import APART, NAMESPACES, TOGETHER, need_namespaces

from dstorm.transports import progress
from dstorm.transports.progress import LONGEST_NAP_S, OPENMPI_THREAD, OPENMPI_YIELD, SHORTEST_NAP_S, Helper, Naps
from malt.launch.machine.mpi_library import bound_library, find_mpiexec

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.serial

SILENT_S, BUSY_S = 5e-6, 60e-6


# -- the naps ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def naps():
    """Those of a thread that knows the cost of a poll that finds nothing."""
    naps = Naps()
    for _ in range(100):
        assert naps.nap_s(SILENT_S) == LONGEST_NAP_S
    return naps


def test_polls_are_frequent_after_a_busy_one(naps):
    assert naps.nap_s(BUSY_S) == SHORTEST_NAP_S
    naps_s = [naps.nap_s(SILENT_S) for _ in range(8)]
    assert naps_s == sorted(naps_s) and naps_s[-1] == LONGEST_NAP_S
    assert 4e-3 < sum(naps_s[:6]) < 10e-3


def test_polls_are_frequent_as_long_as_bytes_stream(naps):
    assert {naps.nap_s(BUSY_S) for _ in range(3000)} == {SHORTEST_NAP_S}


def test_what_stays_is_not_traffic(naps):
    for _ in range(20_000):
        naps.nap_s(BUSY_S)
    assert naps.nap_s(BUSY_S) > SHORTEST_NAP_S


def test_cheap_polls_in_quick_succession_do_not_make_the_next_cold_one_look_busy(naps):
    for _ in range(1000):
        naps.nap_s(BUSY_S)
        for _ in range(4):
            naps.nap_s(SILENT_S / 4)
    while naps.nap_s(SILENT_S / 4) < LONGEST_NAP_S:
        pass
    assert naps.nap_s(SILENT_S) == LONGEST_NAP_S


def test_expensive_polls_are_rarer():
    naps = Naps()
    for _ in range(100):
        nap_s = naps.nap_s(1e-4)
    assert nap_s == pytest.approx(100 * 1e-4)


def test_traffic_is_known_again_soon_after_polls_had_to_wait(naps):
    """They wait for another thread inside the library, and cost more and more: 1, 2, 4, 8 and 16 times as much."""
    for doubled in range(5):
        for _ in range(2000):
            naps.nap_s(SILENT_S * 2**doubled)
    assert naps.nap_s(BUSY_S) > SHORTEST_NAP_S
    for _ in range(30):
        naps.nap_s(SILENT_S)
        naps.nap_s(BUSY_S)
    naps.nap_s(SILENT_S)
    assert naps.nap_s(BUSY_S) == SHORTEST_NAP_S


# -- who needs help, who gives it -------------------------------------------------------------------------------------


def test_ranks_that_share_memory_need_no_help():
    assert not progress.spans_hosts(["a/0", "a/0"])
    assert progress.spans_hosts(["a/0", "a/0", "b/2"])


@pytest.mark.parametrize(
    "library, value, helps",
    [("Open MPI 5.0.11", "1", True), ("Open MPI 5.0.11", "0", False), ("Open MPI 5.0.11", None, False),
     ("Open MPI 5.0.11", "", False), ("MPICH 5.0.2", "1", False)],
)  # fmt: skip
def test_a_library_that_helps_itself(library, value, helps):
    assert progress.library_helps(library, {} if value is None else {OPENMPI_THREAD: value}) == helps


def test_a_library_that_spins():
    assert progress.spins("MPICH 5.0.2", {OPENMPI_YIELD: "1"}) and progress.spins("Open MPI 5.0.11", {})
    assert not progress.spins("Open MPI 5.0.11", {OPENMPI_YIELD: "1"})


# -- the thread -------------------------------------------------------------------------------------------------------


def test_the_helper_leaves_polls_to_a_thread_that_makes_them(monkeypatch):
    polls, naps, made, enough = [], [], [], threading.Event()
    is_made = threading.Event()

    def sleep(seconds):
        """Of the helper's thread. In each of 20 naps another thread polls."""
        is_made.wait(10)
        naps.append((seconds, len(polls)))
        made[0].is_relieved = len(naps) <= 20
        if len(polls) == 3:
            enough.set()
        time.sleep(1e-4)

    monkeypatch.setattr(progress, "time", types.SimpleNamespace(sleep=sleep, thread_time=time.thread_time))
    made.append(Helper(lambda: polls.append(None)))
    is_made.set()
    assert enough.wait(10)
    made[0].stop()
    assert naps[1:21] == [(progress._RELIEVED_S, 1)] * 20
    assert naps[21][1] == 2


def test_the_helper_polls_until_it_is_stopped():
    polls, enough = [], threading.Event()

    def poll():
        polls.append(threading.current_thread())
        if len(polls) == 3:
            enough.set()

    helper = Helper(poll)
    assert enough.wait(10)
    helper.stop()
    helper.stop()
    count = len(polls)
    assert polls[0].daemon and not polls[0].is_alive()
    assert len(polls) == count


def test_the_helper_runs_at_once(monkeypatch):
    called = []
    monkeypatch.setattr(progress, "run_at_once", lambda: called.append(threading.current_thread()))
    helper = Helper(lambda: None)
    helper.stop()
    assert called == [helper._thread]


def test_the_helper_does_not_hold_up_the_end(job_environment):
    """It is stopped before the interpreter ends, and so before MPI is finalized."""
    program = (
        "import atexit; from dstorm.transports.progress import Helper; polls = [];"
        "atexit.register(lambda: print(helper._thread.is_alive()));"
        "helper = Helper(lambda: polls.append(1))"
    )
    environment = job_environment | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def is_held(lock):
    """Whether another thread is kept from calling MPI."""
    got = []
    thread = threading.Thread(target=progress.unless_held(lock, lambda: got.append(True)))
    thread.start()
    thread.join()
    return not got


def test_calls_are_serialized():
    lock = threading.RLock()
    window = types.SimpleNamespace(model=7, Put=lambda *args, **kwargs: (is_held(lock), args, kwargs))
    serialized = progress.Serialized(window, lock)
    assert serialized.Put(1, 2, clear=3) == (True, (1, 2), {"clear": 3})
    assert serialized.model == 7
    assert not is_held(lock)


# -- over TCP ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library():
    pytest.importorskip("mpi4py")
    return bound_library()


@pytest.fixture
def job(library, tmp_path, job_environment):
    """job(program, **environment): the JSON that two ranks print, by rank, and the stderr of the job."""
    mpiexec = find_mpiexec(library, job_environment)

    def run(program, apart=True, **environment):
        (tmp_path / "program.py").write_text(program)
        words = [mpiexec, "-n", "2"]
        if library.family == "openmpi":
            words += ["--bind-to", "none"]
            if apart:
                need_namespaces(tmp_path)
                words = [*NAMESPACES, *words, "--host", "here:1,10.77.0.2:1"]
        environment = job_environment | TOGETHER | (APART if apart else {}) | {"PYTHONPATH": str(ROOT)} | environment
        done = subprocess.run(
            [*words, sys.executable, "program.py"],
            cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        # Open MPI complains where a daemon's process comes to set its group before its parent does.
        stderr = [line for line in done.stderr.splitlines(keepends=True) if "setpgid(" not in line]
        return sorted(answers, key=lambda answer: answer["rank"]), "".join(stderr)

    return run


COMPUTING = """
import hashlib, json, sys, threading, time
import malt

def compute():  # in C, without the GIL
    start, cpu = time.perf_counter(), time.process_time() - time.thread_time()
    while time.perf_counter() - start < {seconds}:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 50_000)
    seconds = time.perf_counter() - start
    return start + seconds, seconds, (time.process_time() - time.thread_time() - cpu) / seconds

v = malt.vector(2**18)  # 1 MB
v.scatter()
answer = dict(rank=malt.rank(), hosts=len(set(malt.init().transport.hosts)), computed_s=[], scattered_s=[], merged=[])
ends = []  # of computations and scatters: both ranks have one clock
answer["threads"] = [thread.name for thread in threading.enumerate()]
for repeat in range({repeats}):
    malt.barrier()
    v.gather()
    if malt.rank() == 0:
        end, seconds, _ = compute()
        ends.append(end)
        answer["computed_s"].append(seconds)
        answer["merged"].append(v.gather().count)
    else:
        time.sleep(0.1)
        start = time.perf_counter()
        v.scatter()
        if malt.init().transport.carrier is not None:  # the scatter does not wait until its message is there
            malt.init().transport.carrier.drain("scatter")
        ends.append(time.perf_counter())
        answer["scattered_s"].append(ends[-1] - start)
answer["ends"] = ends
malt.barrier()
if malt.rank() == 0:
    answer["shares"] = [compute()[2] for _ in range(3)]
malt.barrier()
sys.stdout.write(json.dumps(answer) + "\\n")
"""
ALONE = "from dstorm.transports import progress\nprogress.Helper = lambda poll: None\n"
HELPER = "malt progress"


def median(numbers):
    return sorted(numbers)[len(numbers) // 2]


@pytest.mark.thorough
def test_without_help_a_scatter_ends_after_its_receiver_has_computed(job):
    """Otherwise the other tests would prove nothing."""
    (computing, scattering), _ = job(ALONE + COMPUTING.format(repeats=3, seconds=0.5))
    assert computing["hosts"] == 2 and HELPER not in computing["threads"]
    assert all(scattered > computed for scattered, computed in zip(scattering["ends"], computing["ends"], strict=True))


def test_a_scatter_arrives_while_its_receiver_computes(job):
    (computing, scattering), stderr = job(COMPUTING.format(repeats=3, seconds=1.0))
    print(f"median {1e3 * median(scattering['scattered_s']):.1f} ms, thread {100 * min(computing['shares']):.1f} %")
    assert computing["hosts"] == 2 and HELPER in computing["threads"]
    assert median(scattering["scattered_s"]) < 0.5 * min(computing["computed_s"])
    assert computing["merged"] == [1] * 3  # it was there when the computation ended
    assert min(computing["shares"]) < 0.05  # without traffic; a thread costs more where others use its caches, too
    assert stderr == ""


WAITING = """
import hashlib, json, sys, time
import malt

v = malt.vector(2**18)  # 1 MB
malt.barrier()
busy_s = 0.0
if malt.rank() == 0:
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000)
else:
    time.sleep(0.1)
    v.scatter()
    start, cpu = time.perf_counter(), time.process_time()
    time.sleep(0.4)
    busy_s = time.process_time() - cpu
malt.barrier()
sys.stdout.write(json.dumps(dict(rank=malt.rank(), busy_s=busy_s, merged=v.gather().count)) + "\\n")
"""


def test_a_transfer_thread_that_waits_leaves_its_core_to_others(job, library):
    (computing, waiting), _ = job(ALONE + WAITING, **{OPENMPI_YIELD: "0"})
    print(f"{1e3 * waiting['busy_s']:.0f} ms of 400")
    assert waiting["busy_s"] < 0.1 and computing["merged"] == 1


@pytest.mark.thorough
def test_the_librarys_own_thread(job, library):
    if library.family != "openmpi":
        pytest.skip(f"{library} has no progress thread that is worth its cost")
    (computing, scattering), _ = job(COMPUTING.format(repeats=3, seconds=0.5), **{OPENMPI_THREAD: "1"})
    print(f"median {1e3 * median(scattering['scattered_s']):.1f} ms")
    assert computing["hosts"] == 2 and HELPER not in computing["threads"] + scattering["threads"]
    assert median(scattering["scattered_s"]) < 0.5 * min(computing["computed_s"])


@pytest.mark.thorough
def test_serialized_calls_take_turns_with_the_helper(job):
    (computing, scattering), stderr = job(COMPUTING.format(repeats=3, seconds=0.5), MPI4PY_RC_THREAD_LEVEL="serialized")
    assert HELPER in computing["threads"]
    assert median(scattering["scattered_s"]) < 0.5 * min(computing["computed_s"])
    assert stderr == progress.ADVICE[True] + "\n"


LOCKSTEP = """
import json, sys, threading
import malt
v = malt.vector(2**18, sync="bsp")
merged = 0
for step in range(10):
    v.array[:] = step
    v.scatter()
    merged += v.gather(malt.SUM).count
malt.barrier()
answer = dict(rank=malt.rank(), hosts=len(set(malt.init().transport.hosts)), merged=merged, last=float(v.array[0]))
answer["threads"] = [thread.name for thread in threading.enumerate()]
sys.stdout.write(json.dumps(answer) + "\\n")
"""


def test_a_thread_level_that_allows_no_helper(job):
    """Every wait of dstorm makes progress."""
    answers, stderr = job(LOCKSTEP, MPI4PY_RC_THREAD_LEVEL="funneled")
    assert [answer["hosts"] for answer in answers] == [2, 2]
    assert [(answer["merged"], answer["last"]) for answer in answers] == [(10, 18.0)] * 2
    assert HELPER not in answers[0]["threads"]
    assert stderr == progress.ADVICE[False] + "\n"


def test_one_host_gets_no_thread(job):
    answers, stderr = job(LOCKSTEP, apart=False, MPI4PY_RC_THREAD_LEVEL="serialized")
    assert [answer["hosts"] for answer in answers] == [1, 1]
    assert not any(HELPER in answer["threads"] for answer in answers)
    assert stderr == ""


def test_threads_that_move_bytes_ask_for_little_time_at_once():
    """In this thread of a process of its own: sched_getattr says for how much."""
    source = (
        "import ctypes, os, struct\n"
        "from dstorm.transports import progress\n"
        "progress.run_at_once()\n"
        "number = {'x86_64': 315, 'aarch64': 275}.get(os.uname().machine)\n"
        "found = ctypes.create_string_buffer(56)\n"
        "assert number is None or ctypes.CDLL(None).syscall(number, 0, found, 56, 0) == 0\n"
        "print(os.uname().release, struct.unpack_from('=IIQiIQ', found.raw)[-1] if number else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, cwd=ROOT)
    release, nanoseconds = done.stdout.split()
    if tuple(map(int, release.split(".")[:2])) < (6, 12):
        pytest.skip(f"Linux {release} knows no such thing")
    assert int(nanoseconds) == progress._SLICE_NS
