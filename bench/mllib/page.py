"""The page of the measurements: docs/mllib.md, and its pictures, from the JSON beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bench.mllib import ways
from bench.mllib.gantt import Lanes, picture

Measured = Mapping[str, Any]
"""What `python -m bench.mllib` writes as JSON."""
AXIS = 1.5
"""The picture of time ends so many times after the last run but that of SendGradient."""
PAGE = """# MLlib, MLlib\\*, parameter servers and MALT: who sends what, and how often

Zhang et al., *MLlib\\*: Fast Training of GLMs using Spark MLlib* (ICDE 2019), find two slow things in MLlib: a step of
communication is one step of the model (SendGradient), and all passes through one place. Here are their experiments on
ranks of MALT: the same linear SVM (hinge, l2 {l2:g}), and every way to send at its own best setting. It is made by

    python -m bench.mllib --write docs/mllib.md

## Steps and bytes to an objective

{rows:,} rows of {nonzeros} columns out of {features:,}, as popular as words of text, made of a seed. k = {ranks}
simulated ranks have a part each. A training ends at {above:g} above the optimum, as in the paper. A *step* is a step of
communication: of asp, an exchange of rank 0, whose model counts. *m* is {m:,} bytes, the model. A rank *moves* what it
sends and receives. Counts are of a simulation: the same in each run. Seconds are virtual, on a network of 1 Gbit/s and
100 us, where a rank visits ten rows a microsecond.

![Steps of communication to the objective](pictures/mllib.svg)

![MB that the hottest rank moves until then](pictures/mllib-bytes.svg)

{counts}

- SendModel takes {fewer:.0f} times fewer steps than SendGradient. Its ranks visit all their rows between two steps.
- The hottest rank moves {hot_scatter:.1f} m a step by reduce-scatter, {hot_star:.1f} m through rank 0,
  {hot_tree:.1f} m along a tree. All ranks together send 14 m in each of these.
- Ranks that own a part of the weights each, as the servers of Petuum and Angel do, move as much as in reduce-scatter.
  Their local steps are not here. With an L2 term Petuum makes one gradient step of a batch, and adds up those of all
  workers: steps of SendGradient, sent in another way. Angel descends along the gradient of each batch, and sends after
  an epoch. Here ranks visit their rows one by one between two exchanges, as those of MLlib\\* do.
- Under asp nobody waits; a rank averages what has come. Each model goes whole to 7 peers on the graph "all", to 3 along
  "exponential". Where all ranks are as fast as here, nothing is gained by that, and reduce-scatter sends less.
- The dual needs the fewest steps. It sends float64, and 8 bytes a row.

Settings are those of the fewest steps in a grid of step sizes, powers of 2 divided by the mean |x|^2, and of epochs
between two steps. SendGradient: 2^4 to 2^12, divided by the root of the number of the step; 1, 0.1 and 0.01 epochs.
Models: 2^-6 to 2^6, which fall as by Bottou; 1, 0.1 and 0.01 epochs, means at owners an epoch. Sums of batches: 2^-9
to 1; 0.1 and 0.01 epochs. The dual has no step size; 1, 0.3 and 0.1 epochs. SendGradient and sums of batches may take
{most:,} steps, others a tenth of that.

## Sums and means

Petuum adds up what all workers send; MLlib\\* averages the models. Steps to the objective with an exchange each
epoch, by the step size: sums / means. The rows: a9a, where each row has a tenth of all features; those above; {rows:,}
rows of {rare_features:,} features that are all alike, so that two rows have few in common.

{sums}

Where ranks change the same weights, the sum goes up to {ranks} times too far: on a9a it diverges at all these steps.
Where they change different weights the mean goes an eighth of the way, and at small steps the sum is faster by far.
Means make up for that by larger steps, and diverge nowhere.

## Time

SendGradient by tree, SendModel by tree and by reduce-scatter on 4 real ranks of this machine of 2 cores, at the best
settings for 4 ranks, on one axis, from traces (`malt run --trace`). SendGradient goes on beyond the axis.

![What each rank does when](pictures/mllib-gantt.svg)

The waits within an exchange are drawn together, at its beginning. Four ranks share two cores, so a rank also waits for
a core. In the paper the driver updates the model alone while all others wait. Here all ranks take the step, and those
at the leaves of a tree wait for the sums.

## Model size

Seconds of an iteration of SendGradient on {real_ranks} real ranks, {size_rows:,} rows each, medians of {iterations}.
Each rank owns a part of the weights: it gives all its part (malt.allgather), finds a gradient, adds up its part of all
gradients (malt.reduce_rows), and steps along it. Beside that, malt.allreduce of the gradient by three algorithms.
Other programs had {others:.1%} of the cores meanwhile.

{sizes}

The more features, the more of an iteration is exchange. Two ranks move the same bytes by each algorithm, and inside a
host that is memory traffic: what is left of the hot rank is that it adds up alone, while by reduce-scatter both do. On
8 hosts it shows in full: see the virtual seconds above, and `malt plan` for networks of your own. malt.allgather takes
longer than the second half of an allreduce: it makes lists of new arrays.
"""


def text(measured: Measured) -> str:
    """The page in Markdown. Pure."""
    counts = {one["way"]: one for one in measured["counts"]}
    m = measured["model_nbytes"]
    hot = {name: one["hottest"] / m / one["steps"] for name, one in counts.items() if _is_number(one["steps"])}
    gradient, star = (counts[name]["steps"] for name in (ways.MLLIB.name, ways.MLLIB_STAR.name))
    return PAGE.format(
        **measured["about"], m=m, others=measured["others"], counts=_counts(measured), sums=_sums(measured),
        sizes=_sizes(measured["sizes"]), fewer=gradient / star, hot_scatter=hot[ways.MLLIB_STAR.name],
        hot_star=hot[ways.MODEL_STAR.name], hot_tree=hot[ways.MODEL_TREE.name],
    )  # fmt: skip


def gantt(measured: Measured) -> str:
    """The picture of the runs on one axis. Pure."""
    runs = [Lanes(*one) for one in measured["gantt"]]
    return picture(runs, AXIS * max(one.until for one in runs[1:]))


def _counts(measured: Measured) -> str:
    lines = ["| | steps | all ranks send, MB | hottest rank, MB | a step, in m | virtual s | step size | epochs |",
             "|---" * 8 + "|"]  # fmt: skip
    for one in measured["counts"]:
        if _is_number(one["steps"]):
            a_step = f"{one['hottest'] / one['steps'] / measured['model_nbytes']:.2f}"
            took = f"{one['bytes'] / 1e6:,.1f} | {one['hottest'] / 1e6:,.1f} | {a_step} | {one['seconds']:.3f}"
        else:
            took = "- | - | - | -"
        way = one["way"].replace("*", r"\*")
        lines.append(f"| {way} | {one['steps']} | {took} | {one['step']:g} | {one['share']:g} |")
    return "\n".join(lines)


def _sums(measured: Measured) -> str:
    steps = [f"{step:g}" for step in measured["sum_steps"]]
    lines = [f"| step size | {' | '.join(steps)} |", "|---" * (1 + len(steps)) + "|"]
    lines += [f"| {name} | {' | '.join(_pairs(pairs))} |" for name, pairs in measured["sums"].items()]
    return "\n".join(lines)


def _pairs(pairs: Iterable[Iterable[Any]]) -> list[str]:
    return [" / ".join(map(str, pair)) for pair in pairs]


def _sizes(rows: Iterable[Mapping[str, float]]) -> str:
    lines = ["| features | distribute | compute | aggregate | update | all | by reduce-scatter | by tree | by star |",
             "|---" * 9 + "|"]  # fmt: skip
    for row in rows:
        phases = [row[name] for name in ("distribute", "compute", "aggregate", "update")]
        others = [row[name] for name in ("reduce-scatter", "tree", "star")]
        cells = " | ".join(f"{1e3 * seconds:.2f} ms" for seconds in (*phases, sum(phases), *others))
        lines.append(f"| {int(row['features']):,} | {cells} |")
    return "\n".join(lines)


def _is_number(steps: object) -> bool:
    return isinstance(steps, int)
