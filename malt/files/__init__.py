"""Files that are written complete or not at all, and .npz files of arrays.

    malt.files.write("costs.txt", lambda file: file.write(b"0.1904"))
    malt.files.save_npz("model.npz", w=w, intercept=b)
    model = malt.files.load_npz("model.npz")
    model["w"], float(model["intercept"])

All calls are local. One rank writes a file: `if malt.lowest(): ...`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from malt.files.atomic import write

if TYPE_CHECKING:
    from malt.files.npz import load_npz, save_npz

__all__ = ["load_npz", "save_npz", "write"]


def __getattr__(name: str) -> Any:
    """Import what reads and writes arrays at its first use."""
    if name in __all__:
        from malt.files import npz

        return getattr(npz, name)
    raise AttributeError(f"module 'malt.files' has no attribute {name!r}")
