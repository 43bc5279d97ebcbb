"""The run of a program: from its arguments to its report, and the exit of the process."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

import malt
from apps.harness import memory, newcomers
from apps.harness.agreement import common_hash, on_lowest_rank, print_once
from apps.harness.checkpoints import Checkpoints, check_checkpoint
from apps.harness.errors import BadInput, HelpGiven, StaysOut, is_of_output, user_errors
from apps.harness.marks import Mark, over_ranks
from apps.harness.options import Parser, add_common_options
from apps.harness.outputs import Report, check_outputs, header, save_model
from apps.harness.program import Measured, Measures, Parts, Problem, Program, Replicas, Trainer
from apps.harness.training import Training

_NO_CHECKPOINT: Final = "its part of the model is lost with it; with --checkpoint FILE the others continue from that"


def parser(program: Program) -> Parser:
    """The parser of the program's command line. Local."""
    made = Parser(prog=f"python -m {program.name}", description=program.summary)
    program.add_options(made)
    add_common_options(made)
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
        if problem.tolerance or not issubclass(problem.trains, Replicas):  # ranks come together in each epoch
            newcomers.refuse()
        memory.check(problem.memory())
        checkpoints = Checkpoints(options, program.name + problem.variant, problem.match(), problem.tolerance)
    shares = problem.shares()
    training = Training(problem, checkpoints, shares)
    attempts = 1
    while True:
        try:
            return _train(program, problem, checkpoints, training)
        except malt.PeerLost as error:  # on all ranks: one has failed with what the others cannot do without
            rebuilds, is_sharded = issubclass(problem.trains, Parts), bool(malt.init().sharded)
            if is_sharded and not (checkpoints.is_on or rebuilds):
                raise malt.PeerLost(error.rank, _NO_CHECKPOINT) from None
            # Each rank can fail once: more errors than ranks have another reason.
            if not (is_sharded if checkpoints.is_on else rebuilds and attempts < malt.size()):
                raise
        attempts += 1
        if checkpoints.is_on:
            with user_errors():
                checkpoints.load()
            training = Training(problem, checkpoints, shares)
        else:
            training.must_rebuild = True


def _train(program: Program, problem: Problem, checkpoints: Checkpoints, training: Training) -> None:
    heading = header(program.name, vars(problem.options))
    if training.begin() and not training.is_newcomer:
        print_once(_introduction(heading, problem, training, checkpoints))
    training.train()
    training.end()
    marks = over_ranks(training.marks, checkpoints.before)
    measured = training.trainer.measured(range(checkpoints.epoch + 1, checkpoints.epoch + 1 + len(marks)))
    digest = common_hash(list(training.trainer.model().values()))
    report = Report(
        heading, program.measures, program.traffic, resumed_from=checkpoints.epoch, before=checkpoints.before,
        lost_ranks=training.shares.failures.entries,
    )  # fmt: skip

    def conclude() -> None:
        """Measure, print, write."""
        _fill(report, program, marks, measured(), digest)
        _publish(report, problem.options, training.trainer)

    on_lowest_rank(conclude, training.is_newcomer)


def _introduction(heading: dict[str, Any], problem: Problem, training: Training, checkpoints: Checkpoints) -> str:
    common = [f"{name} {heading[name]}" for name in ("graph", "sync", "seed") if heading[name] is not None]
    most = "at most " if problem.tolerance else ""
    return (
        f"{heading['program']} {heading['version']}: {heading['mpi']}, {_many(heading['ranks'], 'rank')}, "
        f"{', '.join(common)}\n"
        f"{problem.introduction(training.trainer)}, {most}{_many(problem.options.epochs, 'epoch')}{checkpoints}\n"
    )


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _fill(
    report: Report, program: Program, marks: Sequence[Mark], measures: Sequence[Measures], digest: str
) -> None:  # fmt: skip
    """Add all epochs and the end to `report`. `measures`: those of each epoch and of the final model. Local."""
    unknown: Measures = {column.key: None for column in program.measures}
    *epochs, final = measures
    for epoch, found in zip(marks, epochs, strict=True):
        rate = epoch.examples / epoch.seconds if epoch.seconds else None
        rated: Measures = {program.rate: rate} if program.rate else {}
        report.add_epoch(epoch, **(found or unknown), **rated)
    report.conclude(marks, digest, **final)


def _publish(report: Report, options: Namespace, trainer: Trainer) -> None:
    """Print the table, and write the files. Local."""
    print(report.table())
    if text := trainer.conclusion():
        print(text)
    if warning := trainer.warning(report):
        print(f"warning: {warning}", file=sys.stderr)
    if options.save:
        save_model(options.save, report.header["program"], **trainer.saved())
    if picture := getattr(options, "picture", None):
        trainer.draw(picture)
    if options.json:
        report.write(options.json)
    print(report.last_line(), flush=True)


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

    Status 1 where a rank has failed with what the others cannot do without, and where the disk of the output is full.
    That of SIGPIPE, and no line, where nobody reads what is printed. `work`: `run` of the program's own module, unless
    it is given.
    """
    work = work or import_module(f"{program}.program").run
    malt.init()
    try:
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
    except OSError as error:
        if not is_of_output(error):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python says what it could not write
        lost = f"{program}: error: the output cannot be written: {error.strerror}"
        sys.exit(128 + signal.SIGPIPE if isinstance(error, BrokenPipeError) else lost)
    except HelpGiven:
        pass
    malt.finalize()
