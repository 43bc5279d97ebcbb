"""The harness of training programs: options, epochs, clock, snapshots, checkpoints, failures, report."""

from apps.harness import memory
from apps.harness.agreement import Array
from apps.harness.checkpoints import as_often, fingerprint
from apps.harness.errors import BadInput
from apps.harness.job import main, run
from apps.harness.memory import Need
from apps.harness.options import (
    AUTO,
    Parser,
    add_exchange_every,
    add_graph,
    number,
    often,
    positive_number,
    real_number,
    settle_exchange_every,
    share_below_1,
    sharing_of,
    whole_number,
)
from apps.harness.outputs import TRAFFIC, Column, Report, load_model
from apps.harness.program import Measured, Measures, Parts, Path, Problem, Program, Replicas, Start, Together, Trainer
from apps.harness.shares import CommonShares, Shares
from apps.harness.training import Training
from malt.models import by_rank, of_lowest, same_start

__all__ = [
    "AUTO",
    "TRAFFIC",
    "Array",
    "BadInput",
    "Column",
    "CommonShares",
    "Measured",
    "Measures",
    "Need",
    "Parser",
    "Parts",
    "Path",
    "Problem",
    "Program",
    "Replicas",
    "Report",
    "Shares",
    "Start",
    "Together",
    "Trainer",
    "Training",
    "add_exchange_every",
    "add_graph",
    "as_often",
    "by_rank",
    "fingerprint",
    "load_model",
    "main",
    "memory",
    "number",
    "of_lowest",
    "often",
    "positive_number",
    "real_number",
    "run",
    "same_start",
    "settle_exchange_every",
    "share_below_1",
    "sharing_of",
    "whole_number",
]
