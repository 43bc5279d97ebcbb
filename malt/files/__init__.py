"""Whole files, written complete or not at all, and arrays in them.

    malt.files.write("costs.txt", lambda file: file.write(b"0.1904"))
    malt.files.save_npz("model.npz", w=w, intercept=b)
    model = malt.files.load_npz("model.npz")
    model["w"], float(model["intercept"])

A file is written by one rank: `if malt.lowest(): ...`. *Local.*
"""

from malt.files.atomic import write
from malt.files.npz import load_npz, save_npz

__all__ = ["load_npz", "save_npz", "write"]
