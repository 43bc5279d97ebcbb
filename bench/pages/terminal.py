"""The screen of `malt run --view` while four ranks train, of which one is slow and one is killed: for a picture."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from html import escape

_LOOP = ("bench.pages.loop", "asp", "all", "0.02", "120")
"""The job."""
_COLUMNS, _ROWS = 118, 14
_SHOWN_S = 4.0
"""How long the screen is followed after the failure."""
_COLOURS = {
    "default": "#e6edf3", "red": "#ff7b72", "green": "#7ee787", "brown": "#e3b341", "yellow": "#e3b341",
    "blue": "#79c0ff", "cyan": "#76e3ea", "magenta": "#d2a8ff",
}  # fmt: skip
_PAGE = """<!DOCTYPE html><meta charset="utf-8"><style>
body { background: #0d1117; color: #e6edf3; margin: 16px } pre { font: 14px/1.35 monospace }
</style><pre>%s</pre>
"""


def page() -> str:
    """Run the job in a terminal, and return the screen as HTML, some seconds after a rank has failed. Local.

    OSError: no rank was seen to fail.
    """
    import pyte

    screen = pyte.Screen(_COLUMNS, _ROWS)
    stream = pyte.ByteStream(screen)
    own, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
    words = [sys.executable, "-m", "malt", "run", "--survive", "--view", "-n", "4", "-m", *_LOOP]
    job = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(theirs)
    end, failed_at = time.monotonic() + 60, None
    with contextlib.suppress(OSError):  # the job has ended
        while time.monotonic() < (end if failed_at is None else failed_at + _SHOWN_S):
            stream.feed(os.read(own, 1 << 16))
            if failed_at is None and any("failed" in line for line in screen.display):
                failed_at = time.monotonic()
    text = "\n".join(_line(screen.buffer[row]) for row in range(_ROWS)).rstrip()
    job.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):
        while os.read(own, 1 << 16):
            pass
    job.wait(30)
    os.close(own)
    if failed_at is None:
        raise OSError("no rank was seen to fail in the view")
    return _PAGE % text


def _line(cells: object) -> str:
    """A line of the screen as HTML."""
    parts = []
    for column in range(_COLUMNS):
        cell = cells[column]  # type: ignore[index]
        weight = ";font-weight:bold" if cell.bold else ""
        colour = _COLOURS.get(cell.fg, f"#{cell.fg}" if len(cell.fg) == 6 else _COLOURS["default"])
        parts.append(f'<span style="color:{colour}{weight}">{escape(cell.data)}</span>')
    return "".join(parts)
