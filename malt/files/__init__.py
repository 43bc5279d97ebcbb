"""Files that are written complete or not at all, and .npz files of arrays.

    malt.files.write("costs.txt", lambda file: file.write(b"0.1904"))
    malt.files.save_npz("model.npz", w=w, intercept=b)
    model = malt.files.load_npz("model.npz")
    model["w"], float(model["intercept"])

All calls are local. One rank writes a file: `if malt.lowest(): ...`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstorm.lazy_imports import at_first_use
from malt.files.atomic import write

if TYPE_CHECKING:
    from malt.files.npz import load_npz, save_npz

__all__ = ["load_npz", "save_npz", "write"]

__getattr__, __dir__ = at_first_use(__name__, dict.fromkeys(("load_npz", "save_npz"), "malt.files.npz"))
