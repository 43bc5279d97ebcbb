"""The harness of training programs: options, epochs, clock, snapshots, checkpoints, failures, report."""

from apps.harness import exchanges, memory
from apps.harness.agreement import Array
from apps.harness.checkpoints import fingerprint
from apps.harness.errors import BadInput
from apps.harness.job import main, run
from apps.harness.memory import Need
from apps.harness.options import (
    AUTO,
    Parser,
    add_common_options,
    add_exchange_every,
    add_graph,
    number,
    number_from,
    often,
    positive_number,
    settle_exchange_every,
    share_below_1,
    sharing_of,
    whole_number,
)
from apps.harness.outputs import TRAFFIC, Column, Report, load_model, save_model
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
    "add_common_options",
    "add_exchange_every",
    "add_graph",
    "by_rank",
    "exchanges",
    "fingerprint",
    "load_model",
    "main",
    "memory",
    "number",
    "number_from",
    "of_lowest",
    "often",
    "positive_number",
    "run",
    "same_start",
    "save_model",
    "settle_exchange_every",
    "share_below_1",
    "sharing_of",
    "whole_number",
]
