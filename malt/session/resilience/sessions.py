"""The sessions of a job, as ranks have published them: the newest, and whether it is over."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence

from malt.runner import leaving, reporting

OVER = "{}-over"
"""What a rank reports of a session that has ended for it, as for all others: that no rank can come back to it."""
_BEGUN, _OVER = re.compile(r"session-(\d+)-(?:members|published-.*)"), re.compile(r"session-(\d+)-over")


def newest_session() -> int:
    """The number of the newest session that ranks have begun; 0: none; the next one where that is over. Local."""
    found = names()
    begun, over = (max((int(one[1]) for name in found if (one := form.fullmatch(name))), default=0)
                   for form in (_BEGUN, _OVER))  # fmt: skip
    return begun + 1 if 0 < begun <= over else begun


def is_over(session: str) -> bool:
    """Return whether the session of that name is over. Local."""
    folder, name = reporting.folder(), OVER.format(session)
    return name in leaving.published() if folder is None else os.path.exists(os.path.join(folder, name))


def names() -> Sequence[str]:
    """The names of what ranks have published by the launcher."""
    folder = reporting.folder()
    if folder is None:
        return list(leaving.published())
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []
