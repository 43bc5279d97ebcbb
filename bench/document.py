"""The command line of a measurement: it prints tables, and writes what was found as JSON, of which a page is filled."""

from __future__ import annotations

import argparse
import json
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

Measured = Mapping[str, Any]
"""What is written as JSON."""
Table = Sequence[Sequence[str]]
"""The headings, and the rows."""
Tables = Mapping[str, "Table | str"]
"""By name. Text stands as it is."""


def measure(
    program: str, summary: str, measured: Callable[[Namespace], Measured],
    tables: Callable[[Measured], Tables] = lambda found: found["tables"],
    add_options: Callable[[ArgumentParser], object] = lambda _: None, parts: Collection[str] = (),
) -> None:  # fmt: skip
    """Run the command line of `program`: measure, print the tables, and write the JSON where that is asked for.

    `measured` finds in its options: `quick`; `only`, which of `parts` are wanted; and `before`, what the
    file has already. `summary`: what the help begins with.
    """
    form = argparse.RawDescriptionHelpFormatter
    parser = ArgumentParser(prog=f"python -m {program}", description=summary, formatter_class=form)
    add_options(parser)
    parser.add_argument("--quick", action="store_true", help="smaller problems; the same mechanism")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures there: of docs/NAME.json "
                        "`python -m bench.fill` fills docs/NAME.md")  # fmt: skip
    if parts:
        parser.add_argument("--only", nargs="+", choices=parts, help="measure this anew; the rest is read from --json")
    options = parser.parse_args()
    if parts and options.only and not options.json:
        parser.error("--only needs --json: the rest is read from that file")
    is_there = parts and options.json and options.json.exists()
    options.before = json.loads(options.json.read_text(encoding="utf-8")) if is_there else {}
    found = json.loads(json.dumps(measured(options)))
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


def reached(value: float, form: str = ".2f") -> str:
    """A number, or that there is none: infinity is what was not reached. Pure."""
    return format(value, form) if math.isfinite(value) else "not reached"


def say(what: str) -> None:
    """Show how far the measurement is."""
    print(f"... {what}", file=sys.stderr, flush=True)
