"""The run of a program: from its arguments to its report, and the exit of the process."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

import malt
from apps.harness import memory, newcomers
from apps.harness.agreement import common_hash, on_lowest_rank, print_once
from apps.harness.checkpoints import Checkpoints, check_checkpoint
from apps.harness.errors import BadInput, HelpGiven, StaysOut, user_errors
from apps.harness.marks import Mark, over_ranks
from apps.harness.options import Parser
from apps.harness.outputs import check_outputs
from apps.harness.program import Measured, Measures, Problem, Program
from apps.harness.report import Report, header
from apps.harness.training import Training
from malt.models import by_rank

_NO_CHECKPOINT: Final = "its part of the model is lost with it; with --checkpoint FILE the others continue from that"


def parser(program: Program) -> Parser:
    """The parser of the program's command line. Local."""
    made = Parser(prog=f"python -m {program.name}", description=program.summary)
    program.add_options(made)
    return made


def run(program: Program, arguments: Sequence[str]) -> None:
    """Run the program on every rank. Collective.

    BadInput: an option or a file is wrong. FloatingPointError: training diverged on this rank.
    """
    options = parser(program).parse_args(arguments)
    with user_errors():
        if graph := getattr(options, "graph", None):
            malt.graph(graph, malt.size(), options.degree)
        check_outputs(options, program.inputs(options))
        check_checkpoint(options)
        problem = program.load(options)
        if isinstance(problem, Measured):
            return _report_measured(program, options, problem)
        newcomers.check(problem.takes_newcomers)
        memory.check(problem.memory())
        checkpoints = Checkpoints(options, program.name + problem.variant, problem.match(), problem.tolerance)
    shares = problem.shares()
    training = Training(problem, checkpoints, shares)
    while not _has_trained(program, problem, checkpoints, training):
        if checkpoints.is_on:
            with user_errors():
                checkpoints.load()
            training = Training(problem, checkpoints, shares)


def _has_trained(program: Program, problem: Problem, checkpoints: Checkpoints, training: Training) -> bool:
    """Train and report. Collective.

    Return False if a rank has failed with its part, and a checkpoint may replace it, or the live ranks rebuild it.
    PeerLost: a rank has failed with what the others cannot do without.
    """
    try:
        _train(program, problem, checkpoints, training)
    except malt.PeerLost as error:
        if training.can_begin_again():
            return False
        if not malt.init().sharded:
            raise
        if not checkpoints.is_on:
            raise malt.PeerLost(error.rank, _NO_CHECKPOINT) from error
        return False
    return True


def _train(program: Program, problem: Problem, checkpoints: Checkpoints, training: Training) -> None:
    heading = header(program.name, problem.reported())
    if training.begin() and not training.is_newcomer:
        print_once(_introduction(heading, problem, training, checkpoints))
    training.train()
    training.finish()
    marks = over_ranks(training.marks, checkpoints.before)
    measures = training.trainer.measures_of_all() if training.trainer.measures_together else None
    digest = common_hash(list(training.trainer.model().values()))
    report = Report(
        heading, program.measures, program.traffic, resumed_from=checkpoints.epoch, before=checkpoints.before,
        lost_ranks=training.shares.failures.entries,
    )  # fmt: skip
    ending = Ending(program, problem.options, training, report, marks, digest)
    on_lowest_rank(lambda: ending.report(measures), training.is_newcomer)


def _introduction(heading: dict[str, Any], problem: Problem, training: Training, checkpoints: Checkpoints) -> str:
    common = [f"{name} {heading[name]}" for name in ("graph", "sync", "seed") if heading[name] is not None]
    most = "at most " if problem.tolerance else ""
    return (
        f"{heading['program']} {heading['version']}: {heading['mpi']}, {heading['ranks']} ranks, {', '.join(common)}\n"
        f"{problem.introduction(training.trainer)}, {most}{problem.options.epochs} epochs{checkpoints}\n"
    )


class Ending:
    """The end of a run on the lowest rank: measure, print, write. Local."""

    def __init__(
        self, program: Program, options: Namespace, training: Training, report: Report, marks: Sequence[Mark],
        digest: str,
    ) -> None:  # fmt: skip
        self._program, self._options, self._report = program, options, report
        self._trainer, self._snapshots, self._marks, self._digest = (
            training.trainer, training.snapshots, marks, digest
        )  # fmt: skip

    def report(self, measures: Sequence[Measures] | None) -> None:
        """Print the table and write the files. `measures`: those of each epoch and of the final model, if known."""
        report, trainer = self._report, self._trainer
        *epochs, final = measures or self._measured()
        for epoch, found in zip(self._marks, epochs, strict=True):
            report.add_epoch(epoch, **found, **self._program.rates(epoch))
        report.conclude(self._marks, self._digest, **final)
        print(report.table())
        if text := trainer.conclusion():
            print(text)
        if warning := trainer.warning(report):
            print(f"warning: {warning}", file=sys.stderr)
        if self._options.save:
            trainer.save(self._options.save)
        if picture := getattr(self._options, "picture", None):
            trainer.draw(picture)
        if self._options.json:
            report.write(self._options.json)
        print(report.last_line(), flush=True)

    def _measured(self) -> list[Measures]:
        """The measures of each snapshot and of the final model."""
        found: list[Measures] = []
        unknown: Measures = {column.key: None for column in self._program.measures}
        for model in [*self._snapshots, self._trainer.model()]:
            malt.heartbeat()  # the other ranks wait: this rank is alive
            found.append(unknown if model is None else self._trainer.measures(model))
        return found


def _report_measured(program: Program, options: Namespace, measured: Measured) -> None:
    """Report how good a saved model is, without training. Collective."""
    digest = common_hash(measured.model)
    report = Report(header(program.name, vars(options)), program.measures)
    report.final = {**measured.measures, "model_sha256": digest}

    def announce() -> None:
        if options.json:
            report.write(options.json)
        print(report.last_line(), flush=True)

    on_lowest_rank(announce)


def main(program: str, work: Callable[[Sequence[str]], None] | None = None) -> None:
    """Call work(arguments) on all ranks, and end the process: with status 0, or with one line of error and status 2.

    Status 1 where a rank has failed with what the others cannot do without. `work`: `run` of the program's own module,
    unless it is given.
    """
    lack = ""
    try:
        with user_errors():
            work = work or import_module(f"{program}.program").run
    except BadInput as error:
        lack = str(error)
    malt.init()
    try:
        if lacks := [one for one in by_rank(lack).values() if one]:
            raise BadInput(lacks[0])
        assert work is not None
        work(sys.argv[1:])
    except BadInput as error:
        if malt.lowest() or malt.init().is_outside:
            print(f"{program}: error: {error}", file=sys.stderr)
        malt.finalize()
        sys.exit(2)
    except StaysOut as error:
        print(f"{program}: rank {malt.rank()} stays out: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
    except FloatingPointError as error:
        print(f"{program}: error: rank {malt.rank()}: {error}", file=sys.stderr)
        sys.exit(2)
    except malt.PeerLost as error:
        if malt.lowest():
            print(f"{program}: error: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
    except HelpGiven:
        pass
    malt.finalize()
