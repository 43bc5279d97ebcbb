"""What the programs of apps/ share: common options, how they start, and how they end when something is wrong."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

import malt
from malt.files import atomic
from malt.session.session import is_lowest
from malt.world.agreement import exchange, succeed


class BadInput(Exception):
    """What the user passed is wrong; raised alike on all ranks. Printed as one line; the status is 2."""


class Parser(argparse.ArgumentParser):
    """Raises BadInput where argparse would exit: only one rank must tell."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message} (see --help)")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise _Help

    def print_help(self, file: Any = None) -> None:
        if malt.rank() == 0:
            super().print_help(file)


class _Help(Exception):
    """--help was asked for, and given."""


def add_common_options(
    parser: Parser, *, epochs: int, exchange_every: int, graph: str, sync: str, unit: str = "examples"
) -> None:
    """The options that every program has, with its defaults. `unit`: what --exchange-every counts."""
    add = parser.add_argument
    add("--epochs", type=whole_number(0), default=epochs, metavar="N", help="passes over the rows (%(default)s)")
    add("--exchange-every", type=whole_number(1), default=exchange_every, metavar="N",
        help=f"{unit} that a rank trains on between two exchanges (%(default)s)")  # fmt: skip
    add("--graph", default=graph, help="along which updates travel: all, ring, chord, auto... (%(default)s)")
    add("--sync", default=sync, help="asp, bsp, ssp:S or notify-ack (%(default)s)")
    add("--seed", type=whole_number(0), default=0, metavar="N", help="of all that is random (%(default)s)")
    add("--save", metavar="FILE", help="write the final model there, as .npz")
    add("--checkpoint", metavar="FILE", help="keep there what a run that died goes on from, at the end of epochs")
    add("--checkpoint-every", type=real_number(0), default=60.0, metavar="SECONDS",
        help="write it when so many have passed; 0: after every epoch (%(default)g)")  # fmt: skip
    add("--resume", action="store_true",
        help="go on from the --checkpoint FILE, on any number of ranks; where there is none, begin")  # fmt: skip
    add("--json", metavar="FILE", help="write a report there")


def whole_number(least: int) -> Callable[[str], int]:
    """For argparse: a whole number from `least` up."""

    def parse(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} up, got {text}")
        return number

    parse.__name__ = "whole number"
    return parse


def real_number(least: float) -> Callable[[str], float]:
    """For argparse: a finite number from `least` up."""

    def parse(text: str) -> float:
        number = float(text)
        if not least <= number < float("inf"):
            raise argparse.ArgumentTypeError(f"must be a number from {least:g} up, got {text}")
        return number

    parse.__name__ = "number"
    return parse


def positive_number(text: str) -> float:
    """For argparse: a finite number above 0."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text}")
    return number


@contextlib.contextmanager
def user_errors() -> Any:
    """Where the user's files and options are looked at, alike on all ranks: what is wrong with them is BadInput, also
    where it shows only in a model that is not finite."""
    try:
        yield
    except OSError as error:
        raise BadInput(
            f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        ) from None
    except (ValueError, TypeError, MemoryError, FloatingPointError) as error:
        raise BadInput(str(error)) from None


def keeps_snapshots() -> bool:
    """Whether this rank may be the one that measures in the end: where ranks may die, each. Local."""
    return malt.rank() == 0 or malt.init().transport.mortal


def compile_first(kernels: Callable[[], Any]) -> None:
    """kernels() on one rank of each host, which compiles into numba's cache, then on the others. Collective."""
    transport = malt.init().transport
    is_first = transport.hosts.index(transport.hosts[transport.rank]) == transport.rank
    for turn in (True, False):
        if is_first == turn:
            kernels()
        malt.barrier()


def on_lowest_rank(work: Callable[[], object]) -> None:
    """work() on the lowest rank, while the others wait; where it dies over it, on the next. Collective.

    BadInput, on all: its file cannot be written, or what it has to tell is not finite."""
    transport = malt.init().transport
    with user_errors():
        while True:
            one = min(exchange(transport, None))
            succeed(transport, work if malt.rank() == one else lambda: None)
            if one in exchange(transport, None):
                return


def save_npz(path: str, **arrays: Any) -> None:
    """Write a model as .npz, complete or not at all. OSError, of `path`: nothing of it is left, `path` is as before."""
    atomic.write(path, lambda file: np.savez(file, **arrays))


def header(program: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What the report begins with."""
    world = malt.init()
    common = {name: options[name] for name in ("graph", "sync", "seed")}
    rest = {name: value for name, value in options.items() if name not in common}
    return {
        "program": program,
        "version": malt.__version__,
        "mpi": world.library,
        "ranks": world.size,
        **common,
        "options": rest,
    }


def say(text: str) -> None:
    """Print on the lowest rank."""
    if is_lowest():
        print(text, flush=True)


def common_hash(arrays: Sequence[np.ndarray[Any, Any]]) -> str:
    """SHA-256 of the final model; every rank's is printed. Collective. RuntimeError: they differ."""
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    digests = exchange(malt.init().transport, digest)
    say("\n".join(f"model on rank {rank}: {text}" for rank, text in digests.items()))
    if len(set(digests.values())) > 1:
        raise RuntimeError("the ranks ended with different models")
    return digest


def main(program: str, run: Callable[[Sequence[str]], None]) -> None:
    """run(arguments) on all ranks, then the end of the process: status 0, or 2 with one line of what is wrong."""
    malt.init()
    try:
        run(sys.argv[1:])
    except BadInput as error:
        if is_lowest():
            print(f"{program}: error: {error}", file=sys.stderr)
        malt.finalize()
        sys.exit(2)
    except FloatingPointError as error:
        print(f"{program}: error: rank {malt.rank()}: {error}", file=sys.stderr)
        sys.exit(2)
    except _Help:
        pass
    malt.finalize()
