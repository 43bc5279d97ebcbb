"""A page of docs/ that a command writes of its figures: these lie beside it as JSON, and tables of it are drawn."""

from __future__ import annotations

import argparse
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import bars

Measured = Mapping[str, Any]
"""What is written as JSON."""


def command(
    program: str, summary: str, measured: Callable[[Namespace], Measured], text: Callable[[Measured], str],
    charts: Sequence[str], add_options: Callable[[ArgumentParser], object] = lambda _: None,
) -> None:  # fmt: skip
    """Run the command line of `program`: measure, print the page, and write it where that is asked for.

    `charts`: which of `bars.CHARTS` are drawn of it. `summary`: what its help begins with.
    """
    form = argparse.RawDescriptionHelpFormatter
    parser = ArgumentParser(prog=f"python -m {program}", description=summary, formatter_class=form)
    add_options(parser)
    parser.add_argument("--quick", action="store_true", help="smaller problems; the same mechanism")
    add_write(parser)
    options = parser.parse_args()
    found = json.loads(json.dumps(measured(options)))
    print(text(found))
    if options.write:
        write(options.write, found, text, charts)


def add_write(parser: ArgumentParser) -> None:
    """Add --write."""
    parser.add_argument(
        "--write", type=new_file, metavar="FILE", help="write the page there, and JSON and pictures beside"
    )


def new_file(text: str) -> Path:
    """The file that an option names, to be written in the end: its folder is there. argparse.ArgumentTypeError."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path


def write(path: Path, found: Measured, text: Callable[[Measured], str], charts: Sequence[str]) -> None:
    """Write the page to `path`, the JSON beside it, and the pictures of both."""
    path.with_suffix(".json").write_text(json.dumps(found) + "\n", encoding="utf-8")
    path.write_text(text(found), encoding="utf-8")
    pictures = path.parent / "pictures"
    pictures.mkdir(exist_ok=True)
    for name in charts:
        (pictures / f"{name}.svg").write_text(bars.CHARTS[name].draw(path.parent), encoding="utf-8")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown. Pure."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def say(what: str) -> None:
    """Show how far the measurement is."""
    print(f"... {what}", file=sys.stderr, flush=True)
