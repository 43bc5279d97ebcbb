"""The picture of a job as bytes for a terminal, in the colours that rich finds it to have."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from malt.watch.picture import Line

_STYLES = {
    "title": "bold", "heading": "dim", "failed": "bold red", "slow": "yellow", "waiting": "cyan", "finished": "green",
}  # fmt: skip
"""The style of each kind of line. A rank that works has none."""


def rendered(picture: Sequence[Line], columns: int) -> list[bytes]:
    """The rows of `picture`, each shorter than `columns`, where a character may take two of them. Local."""
    file = io.StringIO()
    console = Console(file=file, width=columns - 1, force_terminal=True, highlight=False, markup=False, emoji=False)
    texts = [Text(line.text, _STYLES.get(line.kind, ""), no_wrap=True, overflow="crop") for line in picture]
    console.print(Text("\n", no_wrap=True, overflow="crop").join(texts))
    return file.getvalue().encode(errors="replace").splitlines()
