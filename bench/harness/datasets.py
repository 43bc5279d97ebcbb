"""Data sets beside the project, in ../shared/data. They may not be there. Local."""

from __future__ import annotations

import sys
from pathlib import Path

DATA = Path(__file__).parents[3] / "shared" / "data"
RCV1, MNIST = DATA / "rcv1-ccat" / "train.svm.xz", DATA / "mnist"
NO_RCV1 = "it needs the data set rcv1-ccat in ../shared/data"


def need(*some: Path) -> None:
    """SystemExit: one of these data sets is not there."""
    if missing := [str(path) for path in some if not path.exists()]:
        sys.exit(f"this measurement needs {', '.join(missing)}")
