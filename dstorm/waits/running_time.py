"""The time in which a loop polls: deadlines count no other. Pure: no clock.

A deadline says for how long a rank that is waited for may give no sign of life. While the one who waits is stopped
itself (SIGSTOP, Ctrl-Z, Slurm's suspend, a frozen container, a virtual machine that is paused) it hears nothing, and
most likely the others are stopped, too. So that time must not count.

No clock of the system leaves it out. CLOCK_MONOTONIC goes on while a process is stopped. Processor time leaves out
sleep, too. SIGCONT comes after some kinds of stop alone, and its handler is the program's. /proc says whether a process
is stopped, but not for how long it was. So each loop that waits finds out for itself: it polls at least every
`longest_step_s`, and a longer time between two of its polls was not spent listening. It counts as `longest_step_s`.

- That is the loop's own time, and not the process's. A rank that computes for long between two calls of malt is not
  stopped, and polls nothing: no deadline runs, as a wait counts from its first poll. What another thread has polled
  meanwhile does not help either: where C code holds the interpreter for seconds, nothing that has come was read.
- The process monitor (dstorm/membership/processes.py) polls in calls of malt, and so between two computations. It says
  how much processor time has been used since: for as long the process has certainly run.
- One rank that is stopped alone does not hear of it. For the others the time counts: they evict it, or name it.
- A loop that gets its core less often than every `longest_step_s`, on a machine with far too many processes, counts
  slower than the clock. Each poll counts, so no wait is without end.
- CLOCK_MONOTONIC, which Python's time.monotonic and time.perf_counter read, stands still while the whole machine is
  suspended (a laptop's lid): nothing is to be left out then. What others have promised for some time needs
  CLOCK_BOOTTIME, which goes on (`uptime_s`, dstorm/waits/stopwatch.py).
- Time in which others are suspended, and this one is not, counts: the hosts of a job may be suspended some seconds
  apart.

Where times are noted, as when a rank was heard of last, they are those of the clock. What was left out is subtracted
where two of them are compared (`since`).
"""

from __future__ import annotations

_MOST_GAPS = 100
"""How many gaps are kept: a wait that was stopped more often may end early."""


class RunningTime:
    """The time in which a loop polls, from `now` on. `now`: seconds of one clock, in all calls. Local.

    `longest_step_s`: the longest time between two polls of a loop that runs.
    """

    def __init__(self, now: float, longest_step_s: float) -> None:
        self._longest_step_s, self._began_at, self._polled_at, self._lost_s = longest_step_s, now, now, 0.0
        self._gaps: tuple[tuple[float, float], ...] = ()
        """When each gap ended, and how many seconds of it do not count. Another thread may read it."""

    def poll(self, now: float, used_s: float = 0.0) -> None:
        """Note a poll.

        `used_s`: the processor time that this process has used since the last one, where the loop may have computed
        meanwhile.
        """
        passed_s, self._polled_at = now - self._polled_at, now
        if passed_s > self._longest_step_s:
            lost_s = passed_s - min(passed_s, max(self._longest_step_s, used_s))
            self._lost_s += lost_s
            self._gaps = (*self._gaps[1 - _MOST_GAPS :], (now, lost_s))

    @property
    def seconds(self) -> float:
        """The seconds in which it has polled so far."""
        return self._polled_at - self._began_at - self._lost_s

    def since(self, moment: float) -> float:
        """The seconds from `moment` to the last poll, without gaps. Negative where it is later than that."""
        lost_s = sum(min(seconds, end - moment) for end, seconds in self._gaps if end > moment) if self._gaps else 0.0
        return self._polled_at - moment - lost_s
