"""`malt report`: a page about a trace of `malt run --trace`, or about two beside each other; trace.json of each."""

from __future__ import annotations

from pathlib import Path

from malt.launch.machine.mpi_library import LaunchError
from malt.watch.trace import files
from malt.watch.trace.reading import TraceError, read

MOST_RUNS = 2


def main(folders: list[Path], output: Path | None) -> int:
    """Write the report of the traces in `folders`, and trace.json into each of them; say in a few lines what they show.
    Returns 0. Local.

    LaunchError: a folder has no trace, or the file cannot be written.
    """
    if len(folders) > MOST_RUNS:
        raise LaunchError(f"one folder, or two to compare, not {len(folders)}")
    path = output or folders[0] / files.REPORT
    try:
        traces = [read(folder) for folder in folders]
    except TraceError as error:
        raise LaunchError(str(error)) from None
    from malt.watch.trace import perfetto
    from malt.watch.trace.advice import advice
    from malt.watch.trace.page import page, runs_of
    from malt.watch.trace.reported import outcome

    runs = runs_of(traces)
    try:
        path.write_text(page(runs), encoding="utf-8", errors="replace")  # a path may be no UTF-8
        for trace in traces:
            perfetto.write(trace, trace.folder / files.TIMELINE)
    except OSError as error:
        raise LaunchError(f"{error.filename or path}: {error.strerror}") from None
    for *_, trace, found in runs:
        head = f"{trace.folder}: " if len(traces) > 1 else ""
        lines = [outcome(trace, found.failures), *advice(trace, found)]
        print(*(f"{head}{line}" for line in lines), sep="\n")
    print(path, *(trace.folder / files.TIMELINE for trace in traces), sep="\n")
    return 0
