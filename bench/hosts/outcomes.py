"""Sections of docs/hosts.md: how jobs start, end, fail and go on across hosts, and what programs reach there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.document import table
from bench.hosts import failures as cases
from bench.hosts.trials import middle_and_worst

Runs = Sequence[Mapping[str, Any]]
ByMpi = Mapping[str, Any]
"""What a part has found, by the name of the MPI."""
_ENDINGS = {
    "well": "ends well, from its start", "early": "a rank raises before malt.init", "raises": "a rank raises",
    "killed": "a rank is killed", "deadline": "a rank does not come, from the deadline on",
}  # fmt: skip

STARTS = """## Starts

{count} starts of jobs without `--survive`, whose ranks exchange in lockstep a few times: {hung}. Two jobs run at once.
Seconds from the failure of a rank, or from the deadline of the others, until `malt run` has ended. What is left is
looked for at that moment on all hosts: processes, files in /dev/shm and /tmp, ports.

{table}"""
FAILURES = """## Failures

4 ranks exchange in lockstep on hosts a and b, 2 on each; `malt run` is on a. Then something fails: rank 3 itself, or
host b. {runs} runs of each, {at_once} at once. Seconds from the failure until `malt run` has ended, and what is left
then, on all hosts that are there.

{table}

If a link goes down, neither the host nor its network answers: `malt run` ends the job after 6 s of that. What it has
started there waits 30 s for the launcher, and then ends by itself."""
SURVIVAL = """## Failures that ranks outlive

The same with `--survive=best-effort`. No rank uses MPI there. Seconds from the failure until the others have exchanged
again, and until `malt run` has ended, which they do after some seconds of training.

{table}

{notes}"""
SURVIVAL_NOTES = """\
- A cut link is noticed after 10 s of silence. The ranks of the smaller part then end.
- A killed rank is restarted after 5 s. All ranks then continue with it, in lockstep, to the end.
- Where `malt run` is on the smaller side, it says where the others continue and print, and how to end them.
  Their output stays there.
- Three hosts of a rank each that all lose each other have no majority: all ranks end. What was started elsewhere for
  `malt run` waits for 30 s until it is heard again."""
PROGRAMS = """## Programs

4 ranks on one host, and 2 on each of two. MB are those that cross the bridge while a program trains, with all headers,
and those that MALT counts (`bytes_across` of `--json`).

{table}

An iteration of L-BFGS on sharded weights moves 1.4 MB of rows, beside which headers of TCP and acknowledgements take
1.4 %. Ranks come together four times meanwhile, in a barrier and for scalars. Each costs 4 to 5 KB on the way, and
nothing, or some bytes, in MALT's count.

Under asp the ten epochs of a rank are over in 0.1 s, on its own rows alone where few models have come by then. Which
come is a matter of chance: these are medians of nine runs, with the least and the most. With MPICH about three fifths
as much comes as with Open MPI."""


def starts(found: ByMpi) -> str:
    """The section on starts."""
    everything = [run for by_shape in found.values() for runs in by_shape.values() for run in runs]
    hung = sum(run["status"] is None for run in everything)
    shapes = list(next(iter(found.values())))
    rows = []
    for shape in shapes:
        for ending, words in _ENDINGS.items():
            by_mpi = [[run for run in one[shape] if run["ending"] == ending] for one in found.values()]
            if all(by_mpi):
                rows.append([f"{shape}: {words}", *(cell for runs in by_mpi for cell in _ended(runs, "seconds"))])
    titles = ["", *(title for mpi in found for title in (f"{mpi}, as expected", "median, worst", "left"))]
    hung_words = "none hung" if not hung else f"{hung} hung"
    return STARTS.format(count=len(everything), hung=hung_words, table=table(titles, rows))


def failures(found: ByMpi) -> str:
    """The section on failures without --survive."""
    names = list(next(iter(found.values())))
    rows = [[name, *(cell for one in found.values() for cell in _ended(one[name], "ended_s"))] for name in names]
    titles = ["", *(title for mpi in found for title in (f"{mpi}, ends", "median, worst", "left"))]
    runs = max(len(runs) for one in found.values() for runs in one.values())
    return FAILURES.format(runs=runs, at_once=cases.AT_ONCE, table=table(titles, rows))


def survival(found: ByMpi) -> str:
    """The section on failures that ranks outlive. No rank uses MPI: all runs count together."""
    names = list(next(iter(found.values())))
    rows = []
    for name in names:
        runs = [run for one in found.values() for run in one[name]]
        pauses = [run["pause_s"] for run in runs if "pause_s" in run and run["expected"]]
        as_said, ended, rest = _ended(runs, "ended_s")
        rows.append([name, as_said, _times(pauses) if pauses else "-", ended, rest])
    titles = ["", "as promised", "they go on after", "`malt run` ends", "left"]
    return SURVIVAL.format(table=table(titles, rows), notes=SURVIVAL_NOTES)


def _ended(runs: Runs, key: str) -> tuple[str, str, str]:
    """How many runs have come to what was expected, their seconds, and what was left."""
    as_said = f"{sum(run['expected'] for run in runs)} of {len(runs)}"
    return as_said, _times([run[key] for run in runs]), _left(runs)


def _times(seconds: Sequence[float]) -> str:
    middle, worst = middle_and_worst(seconds)
    return f"{middle:.1f}, {worst:.1f} s"


def _left(runs: Runs) -> str:
    """What was left on hosts that were there: nothing, or for how long, or what stays."""
    if stays := sum(run["clean_s"] is None for run in runs):
        return f"in {stays} runs something stays"
    hosts = sorted({host for run in runs for host in run["left"]})
    if not hosts:
        return "nothing"
    return f"on {', '.join(hosts)} nothing after {max(run['clean_s'] for run in runs):.0f} s more"


def programs(found: ByMpi) -> str:
    """The section on programs."""
    names = list(next(iter(found.values())))
    rows = []
    for name in names:
        for mpi, one in found.items():
            run = one[name]
            share = f"{run['bytes_wire'] / run['bytes_across'] - 1:+.1%}" if run["is_even"] else ""
            rows.append([
                f"{name}, {mpi}", run["measure"].replace("_", " "), f"{run['least']:.4f}",
                f"{run['alone']:.4f}", f"{run['across']:.4f}{_range(run['reached'])}",
                f"{run['bytes_wire'] / 1e6:.1f}", f"{run['bytes_across'] / 1e6:.1f}", share,
            ])  # fmt: skip
    titles = ["", "", "at most", "one host", "two hosts", "MB on the bridge", "MB by MALT", ""]
    return PROGRAMS.format(table=table(titles, rows))


def _range(reached: Sequence[float]) -> str:
    """The least and the most of several runs, behind their median; "" of one."""
    return f" ({min(reached):.4f} to {max(reached):.4f})" if len(reached) > 1 else ""


SECTIONS = {"programs": programs, "starts": starts, "failures": failures, "survival": survival}
"""By part, in the order of the page."""
