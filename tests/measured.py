"""Measurements at their smallest: what they write as JSON, whose tables they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from programs import ROOT

from bench.harness.document import Tables, as_markdown


def quickly(
    program: str, folder: Path, tables: Callable[[Any], Tables], *options: str, **variables: str
) -> tuple[Any, str]:
    """What `python -m PROGRAM --quick OPTIONS` finds, and what it prints to stderr."""
    file = folder / "found.json"
    words = [sys.executable, "-m", program, "--quick", "--json", str(file), *options]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return printed(file, done.stdout, tables), done.stderr


def printed(file: Path, output: str, tables: Callable[[Any], Tables]) -> Any:
    """What a measurement has written to `file`, once its tables are in its output."""
    found = json.loads(file.read_text(encoding="utf-8"))
    for name, table in tables(found).items():
        assert f"{name}\n\n{as_markdown(table)}\n" in output
    return found


def kept(page: str) -> Any:
    """The JSON of a page of docs/."""
    return json.loads((ROOT / f"docs/{page}.json").read_text(encoding="utf-8"))
