"""The screen of a terminal, as far as the launcher writes to it: what is seen after some bytes."""

from __future__ import annotations

import re

_PIECE = re.compile(r"\x1b\[(\d*)([AJm])|\x1b\[[\d;]*m|\x1b([D78])|(.)", re.DOTALL)


class Screen:
    """A screen of so many columns and rows. It scrolls, and keeps what has left it."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.row = self.column = 0
        self.gone: list[str] = []
        """The lines that were scrolled out."""
        self._lines = [[" "] * columns for _ in range(rows)]
        self._saved = 0, 0

    def feed(self, data: bytes) -> None:
        """Show `data`, which a terminal gets with \\r before each \\n."""
        for piece in _PIECE.finditer(data.decode()):
            count, command, move, one = piece.groups()
            if command == "A":
                self.row = max(0, self.row - int(count or 1))
            elif command == "J":
                self._clear()
            elif move == "D":
                self._down()
            elif move == "7":
                self._saved = self.row, self.column
            elif move == "8":
                self.row, self.column = self._saved
            elif one is not None:
                self._write(one)

    def lines(self) -> list[str]:
        """All lines, also those that were scrolled out, without the empty ones at the end."""
        seen = [*self.gone, *("".join(line).rstrip() for line in self._lines)]
        while seen and not seen[-1]:
            seen.pop()
        return seen

    def _write(self, one: str) -> None:
        if one == "\r":
            self.column = 0
        elif one == "\n":
            self._down()
        else:
            assert one.isprintable(), f"{one!r} is not known"
            if self.column == self.columns:
                self._down()
                self.column = 0
            self._lines[self.row][self.column] = one
            self.column += 1

    def _down(self) -> None:
        if self.row < self.rows - 1:
            self.row += 1
            return
        self.gone.append("".join(self._lines.pop(0)).rstrip())
        self._lines.append([" "] * self.columns)

    def _clear(self) -> None:
        first = min(self.column, self.columns - 1)  # behind the last column the cursor is still on it
        self._lines[self.row][first:] = [" "] * (self.columns - first)
        for row in range(self.row + 1, self.rows):
            self._lines[row] = [" "] * self.columns
