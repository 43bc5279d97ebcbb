"""What MPI prints when a job ends is recognized by its form."""

import pytest

from malt.launch.streams.banners import Banners

DASHES, EQUALS = "-" * 74 + "\n", "=" * 83 + "\n"
RECORDED = {
    "Open MPI 5.0.11, an exception": f"""{DASHES}MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD
  Proc: [[51777,1],1]
  Errorcode: 1

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
You may or may not see output from other processes, depending on
exactly when Open MPI kills them.
{DASHES}{DASHES}prterun has exited due to process rank 1 with PID 0 on node vm calling
"abort". This may have caused other processes in the application to be
terminated by signals sent by prterun (as reported here).
{DASHES}""",
    "Open MPI 5.0.11, early": f"""{DASHES}prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-12836@1,0]
   Exit code:    1
{DASHES}""",
    "Open MPI 5.0.11, os._exit": f"""{DASHES}prterun has exited due to process rank 1 with PID 7912 on node vm exiting
improperly. There are three reasons this could occur:

1. this process did not call "init" before exiting, but others in the
job did. This can cause a job to hang indefinitely while it waits for
all processes to call "init". By rule, if one process calls "init",
then ALL processes must call "init" prior to termination.

2. this process called "init", but exited without calling "finalize".
By rule, all processes that call "init" MUST call "finalize" prior to
exiting or it will be considered an "abnormal termination"

3. this process called "MPI_Abort" or "prte_abort" and the mca
parameter prte_create_session_dirs is set to false. In this case, the
run-time cannot detect that the abort call was an abnormal
termination. Hence, the only error message you will receive is this
one.

This may have caused other processes in the application to be
terminated by signals sent by prterun (as reported here).

You can avoid this message by specifying -quiet on the prterun command
line.
{DASHES}""",
    "Open MPI 5.0.11, prterun fails at its end, now and then": (
        "prterun: pthread_mutex_lock.c:450: __pthread_mutex_lock_full: Assertion `e != ESRCH || !robust' failed.\n"
    ),
    "the same, on its way to another lock": (
        "prterun: tpp.c:83: __pthread_tpp_change_priority: Assertion `new_prio == -1 || (new_prio >= fifo_min_prio && "
        "new_prio <= fifo_max_prio)' failed.\n"
    ),
    "MPICH 5.0.2, an exception": (
        "Abort(1) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 1\n"
    ),
    "MPICH 5.0.2, a rank was killed": f"""
{EQUALS}=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 12976 RUNNING AT vm
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
{EQUALS}YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
This typically refers to a problem with your application.
Please see the FAQ page for debugging suggestions
""",
}
NOISE = {
    # a rank that exits before MPI_Init is answered by it alone, now and then: the job then ends without a word
    "unreachable": "[vm:27903] PMIX ERROR: PMIX_ERR_UNREACH in file /openmpi-5.0.11/3rd-party/openpmix/src/mca/ptl/"
    "base/ptl_base_connection_hdlr.c at line 121\n",
    # a job on several hosts, now and then
    "group": "[a:02668] plm:ssh: Warning: setpgid(2675,2675) failed in parent with errno=Permission denied(13)\n",
}
KILLED = f"""{DASHES}prterun noticed that process rank 1 with PID 12452 on node vm exited on
signal 9 (Killed).
{DASHES}"""


def passed(banners, text):
    lines = text.encode().splitlines(keepends=True)
    return b"".join(map(banners.pass_on, lines)).decode()


@pytest.mark.parametrize("text", RECORDED.values(), ids=RECORDED)
def test_recorded_banners_are_removed(text):
    banners = Banners()
    assert passed(banners, f"before\n\n{text}after\n{DASHES}1 2\n") == f"before\n\nafter\n{DASHES}1 2\n"
    assert banners.found.decode() == text and not banners.holds()


@pytest.mark.parametrize("text", RECORDED.values(), ids=RECORDED)
def test_what_is_almost_a_banner_passes(text):
    """With one line more, or one less, nothing is lost or out of order."""
    lines = text.splitlines(keepends=True)
    for place in range(1, len(lines)):
        for changed in ([*lines[:place], "a rank's\n", *lines[place:]], lines[:place]):
            banners = Banners()
            reports = passed(banners, "".join(changed)) + banners.release().decode()
            rest = iter(reports.splitlines(keepends=True))
            kept = [line for line in changed if line not in banners.found.decode().splitlines(keepends=True)]
            assert all(line in rest for line in kept)
            assert len(reports) + len(banners.found) == len("".join(changed))


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_noise_is_removed_and_explains_nothing(noise):
    banners = Banners()
    aborted = RECORDED["MPICH 5.0.2, an exception"]
    assert passed(banners, f"before\n{noise}{aborted}{noise}after\n") == "before\nafter\n"
    assert banners.found.decode() == aborted and not banners.holds()


def test_other_output_of_mpi_passes():
    banners = Banners()
    assert passed(banners, KILLED) + banners.release().decode() == KILLED and banners.found == b""
