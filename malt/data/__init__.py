"""Training data: files that all ranks parse once, together, and later map into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstorm.lazy_imports import at_first_use
from malt.data.shards import rows_of

if TYPE_CHECKING:
    from malt.data.dataset import Dataset, load_svmlight, open_svmlight
    from malt.data.dealing import deal
    from malt.data.ratings import Ratings, load_ratings, open_ratings, owners
    from malt.data.text.text_file import read_chunks

__all__ = [
    "Dataset",
    "Ratings",
    "deal",
    "load_ratings",
    "load_svmlight",
    "open_ratings",
    "open_svmlight",
    "owners",
    "read_chunks",
    "rows_of",
]

_LATER = {
    **dict.fromkeys(("Dataset", "load_svmlight", "open_svmlight"), "malt.data.dataset"),
    "deal": "malt.data.dealing",
    "read_chunks": "malt.data.text.text_file",
    **dict.fromkeys(("Ratings", "load_ratings", "open_ratings", "owners"), "malt.data.ratings"),
}
"""Names that are imported at their first use, and their modules: scipy.sparse takes longer to import than malt."""

__getattr__, __dir__ = at_first_use(__name__, _LATER)
