"""The harness of training programs: options, epochs, clock, snapshots, checkpoints, failures, report."""

from apps.harness import exchanges, memory
from apps.harness.agreement import Array, common_hash, on_lowest_rank
from apps.harness.checkpoints import fingerprint
from apps.harness.errors import BadInput, user_errors
from apps.harness.job import main, run
from apps.harness.marks import Mark
from apps.harness.memory import Need
from apps.harness.options import (
    AUTO,
    Parser,
    add_common_options,
    add_exchange_every,
    add_graph,
    add_tolerance,
    graph_of,
    often,
    positive_number,
    real_number,
    settle_exchange_every,
    sharing_of,
    whole_number,
)
from apps.harness.program import Measured, Measures, Path, Problem, Program, Replicas, Start, Trainer
from apps.harness.report import TRAFFIC, Column, Report
from apps.harness.shares import CommonShares, Shares
from apps.harness.training import Training
from malt.models import (
    Counted,
    Sharing,
    Sums,
    by_rank,
    common_mean,
    moved,
    of_lowest,
    same_start,
    sum_statistics,
)

__all__ = [
    "AUTO",
    "TRAFFIC",
    "Array",
    "BadInput",
    "Column",
    "CommonShares",
    "Counted",
    "Mark",
    "Measured",
    "Measures",
    "Need",
    "Parser",
    "Path",
    "Problem",
    "Program",
    "Replicas",
    "Report",
    "Shares",
    "Sharing",
    "Start",
    "Sums",
    "Trainer",
    "Training",
    "add_common_options",
    "add_exchange_every",
    "add_graph",
    "add_tolerance",
    "by_rank",
    "common_hash",
    "common_mean",
    "exchanges",
    "fingerprint",
    "graph_of",
    "main",
    "memory",
    "moved",
    "of_lowest",
    "often",
    "on_lowest_rank",
    "positive_number",
    "real_number",
    "run",
    "same_start",
    "settle_exchange_every",
    "sharing_of",
    "sum_statistics",
    "user_errors",
    "whole_number",
]
