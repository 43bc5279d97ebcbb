"""The folder of a trace: what lies in it, and who writes that.

job.json         what ran, where and how: the launcher, before the ranks start, and again at the end
rank-0.trace     the events of a rank (layout.py): that rank, from malt.init on
rank-0.1.trace   those of its first new start, where it had failed (malt run --rejoin)
metrics.jsonl    each malt.report, as by --metrics: all ranks
report.html      malt report
trace.json       all ranks for Perfetto (perfetto.py): malt report
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from malt.files import atomic, folders

VERSION = 1
"""Of job.json."""
JOB, METRICS, TIMELINE, REPORT = "job.json", "metrics.jsonl", "trace.json", "report.html"
_LOG = re.compile(r"rank-(\d+)(?:\.(\d+))?\.trace")


def log_of(folder: str | Path, rank: int, incarnation: int = 0) -> str:
    """The file of a rank's events."""
    return os.path.join(folder, f"rank-{rank}{f'.{incarnation}' if incarnation else ''}.trace")


def logs(folder: Path) -> list[Path]:
    """The files of events that there are, by rank and incarnation. Local."""
    found = {path: match for path in folder.iterdir() if (match := _LOG.fullmatch(path.name)) is not None}
    return sorted(found, key=lambda path: (int(found[path][1]), int(found[path][2] or 0)))


def prepare(folder: Path, facts: Mapping[str, Any]) -> None:
    """Make the folder for a run of which `facts` are known, and remove what an earlier one has left. Local.

    OSError: another job writes there, say.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folders.hold(folder)
    for path in (*logs(folder), *(folder / name for name in (METRICS, TIMELINE, REPORT))):
        path.unlink(missing_ok=True)
    note(folder, facts)


def note(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write down what is known of the run, whole or not at all. Local. OSError."""
    text = json.dumps({"version": VERSION, **facts}, indent=1)
    atomic.write(folder / JOB, lambda file: file.write(f"{text}\n".encode()))
