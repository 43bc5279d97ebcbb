"""The command line of a measurement: it prints tables, and writes what was found as JSON, of which a page is filled."""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Measured = Mapping[str, Any]
"""What is written as JSON."""
Table = Sequence[Sequence[str]]
"""The headings, and the rows."""
Tables = Mapping[str, "Table | str"]
"""By name. Text stands as it is."""
Part = Callable[[Namespace, Measured], Measured]
"""Of the options, and of what is found so far, what can be measured by itself."""
_NONE: Mapping[str, Part] = {}


def measure(
    program: str, summary: str, measured: Callable[[Namespace], Measured],
    tables: Callable[[Measured], Tables] = lambda found: found["tables"],
    add_options: Callable[[ArgumentParser], object] = lambda _: None, parts: Mapping[str, Part] = _NONE,
    scales: tuple[Any, Any] | None = None, are_apart: bool = False,
) -> None:  # fmt: skip
    """Run the command line of `program`: measure, print the tables, and write the JSON where that is asked for.

    The figures are those of `measured`, and then those of each of `parts`, or of those of them that are wanted: the
    others are as the file has them, without which only parts that `are_apart` can be wanted. `summary`: what the help
    begins with. Options have besides those of `add_options` `scratch`, a folder until the end, and where there are
    `scales` of them `scale`: the first, with --quick the second.
    """
    form = argparse.RawDescriptionHelpFormatter
    parser = ArgumentParser(prog=f"python -m {program}", description=summary, formatter_class=form)
    add_options(parser)
    if scales:
        parser.add_argument("--quick", dest="scale", action="store_const", const=scales[1], default=scales[0],
                            help="smaller problems; the same mechanism")  # fmt: skip
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures there: of docs/NAME.json "
                        "`python -m bench.fill` fills docs/NAME.md")  # fmt: skip
    if parts:
        parser.add_argument("--only", nargs="+", choices=parts, help="measure this anew; the rest is read from --json")
    options = parser.parse_args()
    only = options.only if parts else None
    if only and not options.json and not are_apart:
        parser.error("--only needs --json: the rest is read from that file")
    is_there = parts and options.json and options.json.exists()
    found = json.loads(options.json.read_text(encoding="utf-8")) if is_there else {}
    with tempfile.TemporaryDirectory() as folder:
        options.scratch = Path(folder)
        found |= measured(options)
        for name in only or parts:
            found |= parts[name](options, found)
    found = json.loads(json.dumps(found))
    for name, table in tables(found).items():
        print(f"{name}\n\n{as_markdown(table)}\n")
    if options.json:
        options.json.write_text(json.dumps(found) + "\n", encoding="utf-8")


def new_file(text: str) -> Path:
    """The file that an option names, to be written in the end: its folder is there. argparse.ArgumentTypeError."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path


def as_markdown(table: Table | str) -> str:
    """A table in Markdown. Text stays as it is. Pure."""
    if isinstance(table, str):
        return table
    lines = [table[0], ["---"] * len(table[0]), *table[1:]]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def one_of(rows: Iterable[Measured], **wanted: object) -> Measured:
    """The first row that has these values. Pure. StopIteration: none has."""
    return next(row for row in rows if wanted.items() <= row.items())


def reached(value: float, form: str = ".2f") -> str:
    """A number, or that there is none: infinity is what was not reached. Pure."""
    return format(value, form) if math.isfinite(value) else "not reached"


def say(what: str) -> None:
    """Show how far the measurement is."""
    print(f"... {what}", file=sys.stderr, flush=True)
