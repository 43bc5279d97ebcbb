"""The programs that README.md and the pages of docs/guide show."""

from __future__ import annotations

import re

from programs import ROOT

DOCUMENTS = {file: file.read_text() for file in (ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md")))}
_EXAMPLE = re.compile(r"<!-- example: (\S+) -->\n```python\n(.*?)```", re.DOTALL)
EXAMPLES = {name: text for document in DOCUMENTS.values() for name, text in _EXAMPLE.findall(document)}


def small(program: str) -> str:
    """The first program of README with 8,000 rows of a million, 3 epochs, and an exchange every 100 examples.

    On simulated ranks, where work takes no time, it would exchange after each.
    """
    assert program.count("1_000_000") == program.count("range(4)") == 1
    cut = program.replace("1_000_000", "8000").replace("range(4)", "range(3)")
    return cut.replace("malt.Replica(w)", "malt.Replica(w, every=100)")
