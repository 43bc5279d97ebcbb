"""Collectives around a training: work on the lowest rank, compare the hashes of models, print."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import malt
from apps.harness.errors import user_errors
from malt.models import by_rank

Array = np.ndarray[Any, Any]


def keeps_snapshots() -> bool:
    """Return whether this rank may be the one that measures in the end: any rank may, if ranks may fail. Local."""
    return malt.init().may_be_lowest


def copied(arrays: Mapping[str, Any]) -> dict[str, Array]:
    """Copies of `arrays`. Local."""
    return {name: np.copy(array) for name, array in arrays.items()}


def print_once(text: str) -> None:
    """Print `text` on the lowest live rank. A rank that comes back prints once the others have admitted it. Local."""
    if malt.lowest() and not malt.init().is_outside:
        print(text, flush=True)


def on_lowest_rank(work: Callable[[], object], came_late: bool = False) -> None:
    """Call work() on the lowest live rank, while the others wait. If it fails, the next one calls it. Collective.

    Ranks that `came_late`, and lack what was before, are asked last.

    BadInput, on all ranks: a file cannot be written, or a number to report is not finite.
    """
    with user_errors():
        while True:
            one = min((late, rank) for rank, late in by_rank(came_late).items())[1]
            malt.together(work if malt.rank() == one else lambda: None)
            if one in by_rank(None):
                return


def common_hash(arrays: Sequence[Array]) -> str:
    """The SHA-256 of the final model. Prints that of every rank. Collective. RuntimeError: they differ."""
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    digests = by_rank(digest)
    print_once("\n".join(f"model on rank {rank}: {text}" for rank, text in digests.items()))
    if len(set(digests.values())) > 1:
        raise RuntimeError("the ranks ended with different models")
    return digest
