"""Ranks that exchange in lockstep, until one of them ends as it is told, or all do.

    malt run -n 4 --hosts a:2,b:2 -m bench.hosts.lockstep STEPS ENDING RANK

ENDING: `well`, `early` (it raises before malt.init), `raises`, `killed`, or `deadline`: it does not come, while the
others wait. Each rank prints lines of JSON: as it begins; before it fails; and at the end, with the live ranks and the
longest pauses between two of its exchanges. Times are those of the clock that all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import NoReturn

import malt
from malt.runner import reporting

STEP_S = 0.05
"""Between two exchanges."""
DEADLINE_S, PATIENT_S = 4.0, 300.0
"""The deadline of a job in which a rank does not come, and of others."""
KEPT = 3
"""Pauses that a rank prints."""
_NEVER_S = 600.0


def say(**what: object) -> None:
    """Print a line of JSON."""
    print(json.dumps({"rank": int(reporting.rank()), **what}), flush=True)


def end_as(ending: str) -> NoReturn:
    """End this rank, which first says when."""
    say(failed=time.monotonic())
    if ending == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if ending == "deadline":
        time.sleep(_NEVER_S)
    raise RuntimeError("as it was told")


def main() -> None:
    steps, ending = int(sys.argv[1]), sys.argv[2]
    is_told = ending != "well" and reporting.rank() == sys.argv[3]
    if is_told and ending == "early":
        end_as(ending)
    malt.init(deadline_s=DEADLINE_S if ending == "deadline" else PATIENT_S)
    vector = malt.vector(1000, sync="bsp")
    if not malt.rejoined():  # else the others are past it
        malt.barrier()
    say(begun=time.monotonic(), host=os.uname().nodename)
    pauses, last = [], time.monotonic()
    for step in range(vector.step, steps):
        if is_told and step == steps // 2:
            end_as(ending)
        vector.array += 1
        vector.scatter()
        vector.gather()
        now = time.monotonic()
        pauses, last = sorted([*pauses, (last - now, last, now)])[:KEPT], now
        time.sleep(STEP_S)
    malt.barrier()
    say(ended=time.monotonic(), alive=malt.alive(), pauses=[pause[1:] for pause in pauses])


if __name__ == "__main__":
    main()
