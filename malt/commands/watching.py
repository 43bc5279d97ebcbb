"""`malt status` and `malt stacks`: a running job of this user, seen from another terminal."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from malt.launch.machine.mpi_library import LaunchError
from malt.watch.jobs import RunningJob, age_s, chosen, title
from malt.watch.ranks import Shown, look_anew
from malt.watch.stacks import printed, stacks
from malt.watch.table import lines, rows

_PATIENCE_S = 1.0
"""How long ranks may take to answer."""


def status(number: int | None, as_json: bool) -> int:
    """Print a line per rank of the job `number`, or its records as JSON. Returns 0. Local. LaunchError: there is none.

    `number`: None: of the only job that runs.
    """
    job = _chosen(number)
    found = look_anew(job.folder, job.ranks, _PATIENCE_S)
    if as_json:
        about = {"job": job.number, "seconds": round(age_s(job), 3), "program": job.program}
        print(json.dumps({**about, "ranks": [_facts(one) for one in found]}))
        return 0
    print(title(job.number, age_s(job), len(found), job.program))
    print(lines(rows(found)), end="")
    return 0


def _facts(one: Shown) -> dict[str, Any]:
    """The known facts of a rank, as JSON can express them: null for those that are not known, or not finite. Pure."""
    record = {} if one.record is None else asdict(one.record)
    state = one.state or ("starting" if one.record is None else "running")
    facts = {"rank": one.rank, "state": state, "why": one.why or None, "failed_s": one.failed_s}
    return {**facts, "age_s": None if one.record is None else one.age_s, **_finite(record)}


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _finite(one) if isinstance(one, dict)
        else None if isinstance(one, float) and not math.isfinite(one) else one
        for name, one in values.items()
    }  # fmt: skip


def print_stacks(number: int | None) -> int:
    """Print the stacks of all ranks of the job `number`. Returns 0. Local. LaunchError: as `status`."""
    job = _chosen(number)
    print(printed(stacks(job.folder, range(job.ranks))), end="")
    return 0


def _chosen(number: int | None) -> RunningJob:
    try:
        return chosen(number)
    except LookupError as error:
        raise LaunchError(str(error)) from None
