"""The sessions of a job, as ranks have published them: the newest, and whether it is over."""

from __future__ import annotations

import re

from malt.runner import departure

OVER = "{}-over"
"""What a rank reports of a session that has ended for it, as for all others: that no rank can come back to it."""
_BEGUN, _OVER = re.compile(r"session-(\d+)-(?:members|published-.*)"), re.compile(r"session-(\d+)-over")


def newest_session() -> int:
    """The number of the newest session that ranks have begun; 0: none; the next one where that is over. Local."""
    found = departure.publications()
    begun, over = (max((int(one[1]) for name in found if (one := form.fullmatch(name))), default=0)
                   for form in (_BEGUN, _OVER))  # fmt: skip
    return begun + 1 if 0 < begun <= over else begun


def is_over(session: str) -> bool:
    """Return whether the session of that name is over. Local."""
    return departure.published(OVER.format(session)) is not None
