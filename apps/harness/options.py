"""The command line: the common options of all programs, and the types of their values."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

import malt
from apps.harness.errors import BadInput, HelpGiven
from malt.models import Sharing

AUTO: Final = "auto"
"""An interval between exchanges that follows what they cost (`malt.Exchanges`)."""


_MOST_SEED: Final = (1 << 128) - 1
_SHOWN: Final = " (default: %(default){})"


class Parser(argparse.ArgumentParser):
    """A parser that raises BadInput or HelpGiven where argparse would exit, so that only one rank prints."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message} (see --help)")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise HelpGiven

    def print_help(self, file: Any = None) -> None:
        if malt.lowest():
            print(self.format_help(), end="", file=file, flush=True)

    def whole(self, *names: str, default: int | None = None, text: str, least: int = 1, **more: Any) -> None:
        """Add an option that takes an integer of at least `least`. `text`: the help, which ends with the default."""
        kept = {"type": whole_number(least), "metavar": "N", **more}
        self.add_argument(*names, default=default, help=text + _SHOWN.format("s") * (default is not None), **kept)

    def real(
        self, name: str, default: float, text: str, parse: Callable[[str], float] | None = None, **more: Any
    ) -> None:  # fmt: skip
        """Add an option that takes a number of at least 0, or what `parse` takes. `text`: as of `whole`."""
        kept = {"type": parse or number, "metavar": "X", **more}
        self.add_argument(name, default=default, help=text + _SHOWN.format("g"), **kept)


def add_common_options(parser: Parser) -> None:
    """Add the options that all programs have."""
    add = parser.add_argument
    parser.whole("--seed", default=0, type=whole_number(0, _MOST_SEED), text="random seed")
    add("--save", metavar="FILE", help="write the final model to FILE, as .npz")
    add("--checkpoint", metavar="FILE", help="at the end of epochs, save a state from which --resume continues")
    add("--checkpoint-every", type=number, default=60.0, metavar="SECONDS",
        help="time between two checkpoints; 0: after every epoch (default: %(default)g)")  # fmt: skip
    add("--resume", action="store_true",
        help="continue from the --checkpoint FILE if it exists, on any number of ranks")  # fmt: skip
    add("--json", metavar="FILE", help="write a report to FILE")


def add_exchange_every(parser: Any, usual: int, unit: str, more: str = "") -> None:
    """Add --exchange-every to a parser or a group of one; `settle_exchange_every` gives it its default."""
    parser.add_argument(
        "--exchange-every", type=interval, metavar="N",
        help=f"{unit} a rank trains on between two exchanges; auto: an exchange costs a tenth of that "
        f"(default: auto; bsp, notify-ack: {usual}{more})",
    )  # fmt: skip


def settle_exchange_every(options: argparse.Namespace, usual: int, together: bool = False) -> None:
    """Let --exchange-every be a number, or AUTO where it may be: each rank has an interval of its own then. Local.

    `usual`: the number where it may not, and on one rank. `together`: all ranks make as many exchanges. ValueError:
    AUTO was given.
    """
    together = together or not str(options.sync).startswith(("asp", "ssp"))
    if malt.size() == 1 and options.exchange_every in (None, AUTO):
        options.exchange_every = usual  # so that a run repeats
    elif options.exchange_every is None:
        options.exchange_every = usual if together else AUTO
    elif options.exchange_every == AUTO and together:
        raise ValueError(f"--exchange-every auto: here ranks exchange together: give a number, {usual:,} say")


def often(options: argparse.Namespace, unit: str) -> str:
    """Return how often ranks exchange, in words, for the introduction."""
    return "as often as pays" if options.exchange_every == AUTO else f"every {options.exchange_every:,} {unit}"


def add_graph(parser: Any, graph: str, sync: str) -> None:
    """Add --graph, --degree and --sync to a parser or a group of one. What is not given is None; the help says this."""
    add = parser.add_argument
    add("--graph", help=f"graph along which updates are sent: all, ring, chord, auto... (default: {graph})")
    add("--degree", type=whole_number(1), metavar="N",
        help="maximum peers per rank: halton, chord, exponential, random, base (default: log2 of ranks)")  # fmt: skip
    add("--sync", help=f"who waits: asp, bsp, ssp:S or notify-ack (default: {sync})")


def sharing_of(options: argparse.Namespace) -> Sharing:
    """Return the way of exchanging that the options name. Local. ValueError: there is no such graph."""
    graph = options.graph if options.degree is None else malt.graph(options.graph, malt.size(), options.degree)
    return Sharing(graph, options.sync, options.exchange_every)


def interval(text: str) -> int | str:
    """A type for argparse: an integer of at least 1, or AUTO."""
    return AUTO if text == AUTO else whole_number(1)(text)


def whole_number(least: int, most: int = sys.maxsize) -> Callable[[str], int]:
    """A type for argparse: an integer from `least` to `most`."""

    def parse(text: str) -> int:
        found = int(text)
        if not least <= found <= most:
            span = f"of at least {least}" if found < least and most >= sys.maxsize else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"must be an integer {span}, got {text}")
        return found

    parse.__name__ = "integer"
    return parse


def real_number(span: str, is_in: Callable[[float], bool]) -> Callable[[str], float]:
    """A type for argparse: a number for which is_in() is true. `span`: the same in words."""

    def parse(text: str) -> float:
        found = float(text)
        if not is_in(found):
            raise argparse.ArgumentTypeError(f"must be a number {span}, got {text}")
        return found

    parse.__name__ = "number"
    return parse


number = real_number("of at least 0", lambda found: 0 <= found < math.inf)
positive_number = real_number("above 0", lambda found: 0 < found < math.inf)
share_below_1 = real_number("of at least 0 and below 1", lambda found: 0 <= found < 1)
