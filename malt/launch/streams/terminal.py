"""A terminal: what ranks print, and a picture below it that is drawn again and again. Pure: bytes to be written.

The cursor stays where the text ends. The picture is drawn from the next row on, and nothing else is ever cleared. So
what others write there is safe, too: the answer that a user types behind an incomplete line, a line of another process.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Final

_INDEX: Final = b"\x1bD"
"""Move the cursor one row down, in the same column. The last row makes the screen scroll."""
_UP: Final = b"\x1b[%dA"
_SAVE: Final = b"\x1b7"
_RESTORE: Final = b"\x1b8"
"""Move the cursor to where it was at _SAVE."""
_PLAIN: Final = b"\x1b[m"
"""No colours from here on: a rank may have set some. _RESTORE brings them back."""
_CLEAR: Final = b"\x1b[J"
"""Clear all from the cursor on."""


class Terminal:
    """The terminal that one file descriptor writes to."""

    def __init__(self) -> None:
        self._picture: Sequence[bytes] = ()
        self._columns = 1
        self._is_drawn = False
        """Whether the picture is on the screen."""
        self._length = 0
        """The characters of the incomplete line at the end of the text, as far as it is seen."""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def text(self, data: bytes) -> bytes:
        """Return the bytes that write `data` below the text so far, and the picture below it."""
        clear = self._clear()
        part = data.rpartition(b"\n")[2].rpartition(b"\r")[2]
        if len(part) < len(data):
            self.end_line()
        self._length += len(self._decoder.decode(part))
        return clear + data + self._draw()

    def end_line(self) -> bytes:
        """Note that others have ended the incomplete line: a user has typed an answer behind it."""
        self._length = 0
        self._decoder.reset()
        return b""

    def show(self, picture: Sequence[bytes], columns: int) -> bytes:
        """Return the bytes that draw `picture`, by rows of less than `columns` characters, over the one before."""
        clear, self._picture, self._columns = self._clear(), tuple(picture), columns
        return clear + self._draw()

    def close(self, picture: Sequence[bytes]) -> bytes:
        """Return the bytes that make `picture` part of the text, as its last lines."""
        hide = self.show((), 1)
        end = (b"\n" if self._length else b"") + _PLAIN if picture else b""
        return hide + end + b"".join(row + b"\n" for row in picture)

    def _clear(self) -> bytes:
        was_drawn, self._is_drawn = self._is_drawn, False
        return _CLEAR if was_drawn else b""

    def _draw(self) -> bytes:
        count = len(self._picture)
        is_at_end = self._length > 0 and self._length % self._columns == 0  # the cursor may be on the last character
        if not count or is_at_end:
            return b""
        self._is_drawn = True
        rows = b"".join(b"\r\n" + row for row in self._picture)
        return _INDEX * count + _UP % count + _SAVE + _PLAIN + rows + _RESTORE
