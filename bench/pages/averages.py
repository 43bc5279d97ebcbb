"""Compares what ranks can exchange: models, changes of models, gradients; all weights, or those that were touched.

    python -m bench.pages.averages [--ranks 4] [--write docs/averages.md]

It runs apps.svm on rcv1-ccat, or on the embedded data if that is missing. Under bsp every run has the same results.
"""

from __future__ import annotations

import argparse

from bench import jobs
from bench.document import new_file
from bench.svm.task import L2, RCV1

EPOCHS = (1, 2, 5, 10)
PAGE = """# What to exchange

apps.svm on {data}, hinge loss, l2 {l2:g}, {ranks} ranks, bsp, an exchange every 1000 examples. The table shows
the objective of rank 0's model after each number of epochs, that of the final model, and the bytes that all ranks sent
in ten epochs. It is made by

    python -m bench.pages.averages --write docs/averages.md

{table}

- *model*: every rank trains on its own, and ranks average their models.
- *delta*: ranks average the changes since the last exchange, and add the mean to the model of then. Under bsp on the
  graph "all" this is the same sum, and results differ by rounding. Under asp a late model is still a model to average,
  but an overwritten change is never made up for: average models.
- *gradient*: ranks take one step along the mean subgradient of their examples (malt.MEAN). It takes fewer steps, and so
  learns more slowly by the example. It is for models that cannot be averaged.
- *sparse* sends only the weights of features in the rows since the last exchange; of gradients those that are not zero.
  The result is the same, for fewer bytes if there are many features and rows are short.
"""


def measure(average: str, vector: str, ranks: int) -> jobs.Report:
    """The report of a run of apps.svm."""
    data = [RCV1, "--no-intercept"] if RCV1.exists() else []
    return jobs.report(
        ranks, "apps.svm", *data, "--average", average, "--vector", vector, "--sync", "bsp", "--l2", L2
    )  # fmt: skip


def table(ranks: int) -> str:
    """A table in Markdown, with a line per run."""
    titles = [f"{epoch} epoch{'s'[: epoch > 1]}" for epoch in EPOCHS]
    lines = [
        "| exchanged | vector | " + " | ".join(titles) + " | final | bytes sent |", "|---|---|" + "---|" * 6
    ]  # fmt: skip
    for average in ("model", "delta", "gradient"):
        for vector in ("dense", "sparse"):
            report = measure(average, vector, ranks)
            objectives = [report["epochs"][epoch - 1]["objective"] for epoch in EPOCHS]
            shown = " | ".join(f"{one:.4f}" for one in [*objectives, report["final"]["objective"]])
            lines.append(f"| {average} | {vector} | {shown} | {report['epochs'][-1]['bytes_sent']:,} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pages.averages", description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4, metavar="N")
    parser.add_argument("--write", type=new_file, metavar="FILE", help="write the page there")
    options = parser.parse_args()
    data = "rcv1-ccat (no intercept)" if RCV1.exists() else "the embedded data, a9a"
    page = PAGE.format(data=data, l2=L2, ranks=options.ranks, table=table(options.ranks))
    print(page)
    if options.write:
        options.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
