"""The banners that an mpiexec and an MPI library print when a job is aborted, as patterns, line by line. Pure.

They are left out where malt prints the failure itself. All other output passes, also a text that differs from a banner:
one with a rank's lines in its midst, say.
"""

from __future__ import annotations

import re
from typing import Final

_DASHES, _EQUALS = "-" * 74, "=" * 83

_TEXTS: Final = (
    # Open MPI 5: MPI_Abort, and then prterun
    rf"""{_DASHES}
MPI_ABORT was invoked on rank \d+ in communicator .*
  Proc: \[\[\d+,\d+\],\d+\]
  Errorcode: -?\d+

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes\.
You may or may not see output from other processes, depending on
exactly when Open MPI kills them\.
{_DASHES}""",
    rf"""{_DASHES}
prterun has exited due to process rank \d+ with PID \d+ on node \S+ calling
"abort"\. This may have caused other processes in the application to be
terminated by signals sent by prterun \(as reported here\)\.
{_DASHES}""",
    # Open MPI 5: a rank ends before MPI_Init with a non-zero status
    rf"""{_DASHES}
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated\. The first process to do so was:

   Process name: \[.*\]
   Exit code:    -?\d+
{_DASHES}""",
    # Open MPI 5: a rank ends without MPI_Finalize
    rf"""{_DASHES}
prterun has exited due to process rank \d+ with PID \d+ on node \S+ exiting
improperly\. There are three reasons this could occur:

1\. this process did not call "init" before exiting, but others in the
job did\. This can cause a job to hang indefinitely while it waits for
all processes to call "init"\. By rule, if one process calls "init",
then ALL processes must call "init" prior to termination\.

2\. this process called "init", but exited without calling "finalize"\.
By rule, all processes that call "init" MUST call "finalize" prior to
exiting or it will be considered an "abnormal termination"

3\. this process called "MPI_Abort" or "prte_abort" and the mca
parameter prte_create_session_dirs is set to false\. In this case, the
run-time cannot detect that the abort call was an abnormal
termination\. Hence, the only error message you will receive is this
one\.

This may have caused other processes in the application to be
terminated by signals sent by prterun \(as reported here\)\.

You can avoid this message by specifying -quiet on the prterun command
line\.
{_DASHES}""",
    # Open MPI 5, now and then: prterun ends itself while ranks that it has ended hold its locks
    r"prterun: \w+\.c:\d+: __pthread_\w+: Assertion `.*' failed\.",
    # MPICH
    r"Abort\(\d+\) on node \d+ \(rank \d+ in comm \d+\): application called MPI_Abort\(.*\) - process \d+",
    rf"""
{_EQUALS}
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID \d+ RUNNING AT \S+
=   EXIT CODE: \d+
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
{_EQUALS}""",
    r"""YOUR APPLICATION TERMINATED WITH THE EXIT STRING: .*
This typically refers to a problem with your application\.
Please see the FAQ page for debugging suggestions""",
)

_NOISE: Final = (
    # Open MPI 5, now and then: its daemon answers a rank that has ended before or in MPI_Init
    r"\[\S+:\d+\] PMIX ERROR: PMIX_ERR_UNREACH in file \S+ at line \d+",
    # Open MPI 5, now and then: a daemon on another host has set its group before the process that starts it does
    r"\[\S+:\d+\] plm:ssh: Warning: setpgid\(\d+,\d+\) failed in parent with errno=Permission denied\(\d+\)",
)
"""Lines that name no reason why a job has ended."""

_BANNERS: Final = tuple([re.compile(line.encode()) for line in text.split("\n")] for text in (*_TEXTS, *_NOISE))
_NOISES: Final = _BANNERS[len(_TEXTS) :]
_FIRST: Final = re.compile(b"|".join(b"(?:" + banner[0].pattern + rb")\r?\n" for banner in _BANNERS))


class Banners:
    """A filter that removes the banners from the output of one source."""

    def __init__(self) -> None:
        self.found = b""
        """The banners that were removed and may say why the job has ended: the noise is not among them."""
        self._lines: list[bytes] = []
        """The lines held back: they may be the beginning of a banner."""

    def pass_on(self, line: bytes) -> bytes:
        """Take `line`, which ends with a newline, and return the lines that are now known to be of no banner."""
        if not self._lines and not _FIRST.fullmatch(line.lstrip(b"\0")):
            return line  # as is almost every line
        self._lines.append(line)
        passed = b""
        while self._lines:
            matching = [banner for banner in _BANNERS if self._matches(banner)]
            if found := [banner for banner in matching if len(banner) == len(self._lines)]:
                self.found += b"" if found[0] in _NOISES else b"".join(self._lines)
                self._lines.clear()
            elif matching:
                break
            else:
                passed += self._lines.pop(0)
        return passed

    def holds(self) -> bool:
        """Return whether lines are held back."""
        return bool(self._lines)

    def release(self) -> bytes:
        """Return the lines held back: the output has ended, or pauses."""
        passed = b"".join(self._lines)
        self._lines.clear()
        return passed

    def _matches(self, banner: list[re.Pattern[bytes]]) -> bool:
        lines = [line.rstrip(b"\r\n").lstrip(b"\0") for line in self._lines]
        return len(lines) <= len(banner) and all(map(re.Pattern.fullmatch, banner, lines))
