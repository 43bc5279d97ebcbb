"""What ranks may exchange, compared: models, their changes, gradients; all weights, or those that were touched.

    python -m bench.averages [--ranks 4] [--write docs/averages.md]

apps.svm on rcv1-ccat, or on the embedded data where that is not at hand, under bsp: the same every time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.training import DATA, L2

EPOCHS = (1, 2, 5, 10)
PAGE = """# What to exchange

apps.svm on {data}, hinge loss, l2 {l2:g}, {ranks} ranks, bsp, an exchange every 1000 examples: the objective of
rank 0's model after so many epochs, of the final model, and the bytes that all ranks sent in ten epochs. Made by

    python -m bench.averages --write docs/averages.md

{table}

- *model*: every rank descends on its own, and models are averaged. *delta*: the same with the changes since the last
  exchange, added to what was then; under bsp on the graph "all" it is the same sum, and its results differ by rounding.
  Under asp a model that comes late is one more opinion, while a change that is lost is lost for good: average models.
- *gradient*: one step along the mean subgradient of the examples of all ranks. Steps are few, so it learns more slowly
  by the example; it is what to take where a model cannot be averaged.
- *sparse* sends the weights of features that were in the rows since the last exchange: the same result, for fewer bytes
  where features are many and rows short.
"""


def measure(average: str, vector: str, ranks: int) -> dict[str, Any]:
    """The report of a run."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        data = [str(DATA), "--no-intercept"] if DATA.exists() else []
        options = ["--average", average, "--vector", vector, "--sync", "bsp", "--l2", str(L2), "--json", str(file)]
        command = [sys.executable, "-m", "malt", "run", "-n", str(ranks), "-m", "apps.svm", *data, *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        report: dict[str, Any] = json.loads(file.read_text())
        return report


def table(ranks: int) -> str:
    """A line a run, as Markdown."""
    titles = [f"{epoch} epoch{'s'[: epoch > 1]}" for epoch in EPOCHS]
    lines = [
        "| exchanged | vector | " + " | ".join(titles) + " | final | bytes sent |", "|---|---|" + "---|" * 6
    ]  # fmt: skip
    for average in ("model", "delta", "gradient"):
        for vector in ("dense", "sparse"):
            report = measure(average, vector, ranks)
            objectives = [report["epochs"][epoch - 1]["objective"] for epoch in EPOCHS]
            reports = " | ".join(f"{one:.4f}" for one in [*objectives, report["final"]["objective"]])
            lines.append(f"| {average} | {vector} | {reports} | {report['epochs'][-1]['bytes_sent']:,} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.averages", description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4, metavar="N")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there")
    options = parser.parse_args()
    data = "rcv1-ccat (no intercept)" if DATA.exists() else "the embedded data, a9a"
    page = PAGE.format(data=data, l2=L2, ranks=options.ranks, table=table(options.ranks))
    print(page)
    if options.write:
        options.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
