"""Ranks that exchange in lockstep to the end, whatever happens to others.

    malt run -n 4 --hosts a:2,b:2 --survive=best-effort -m bench.hosts.lockstep STEPS

Each rank prints lines of JSON: as it begins, and at the end, with the live ranks and the longest pauses between two of
its exchanges. Times are those of the clock that all processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import time

import malt

STEP_S = 0.05
"""Between two exchanges."""
KEPT = 3
"""Pauses that a rank prints."""


def say(**what: object) -> None:
    """Print a line of JSON."""
    print(json.dumps({"rank": malt.rank(), **what}), flush=True)


def main() -> None:
    malt.init()
    vector = malt.vector(1000, sync="bsp")
    if not malt.rejoined():  # else the others are past it
        malt.barrier()
    say(begun=time.monotonic())
    pauses, last = [], time.monotonic()
    for _ in range(vector.step, int(sys.argv[1])):
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
