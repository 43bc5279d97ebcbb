"""The options of the commands of `malt`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from malt import __version__
from malt.launch.hosts.allocation import MOST_RANKS, hosts
from malt.launch.machine.mpi_library import NAMES
from malt.runner.departure import GRACE_S
from malt.runner.reporting import BEST_EFFORT

ROUNDS = 3
"""How often malt run --compare runs each number of ranks, by default."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    @property
    def commands(self) -> Mapping[str, argparse.ArgumentParser]:
        """The parsers of the commands of `malt`, by name."""
        [found] = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        return found.choices

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with status 2. argparse would print the usage above it."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser(command: str = "") -> Parser:
    """The parser of the command line of malt: with the options of `command`, or of all where that is none of them.

    So the start of a job loads nothing of the other commands.
    """
    malt = Parser(prog="malt", description="Data-parallel training for existing programs.", allow_abbrev=False)
    malt.add_argument("--version", action="version", version=f"malt {__version__}")
    commands = malt.add_subparsers(dest="command", metavar="COMMAND", required=True)
    is_alone = command in _COMMANDS and command != "completion"
    for name, (text, add) in _COMMANDS.items():
        made = commands.add_parser(name, help=text, allow_abbrev=False)
        if name == command or not is_alone:
            add(made)
    return malt


def split(words: list[str], parser: Parser) -> tuple[list[str], list[str]]:
    """Split `words` into what `parser` is to read, and PROGRAM ARGS... of `malt run` or `malt plan`, which it would."""
    if words[:1] not in (["run"], ["plan"]):
        return words, []
    actions = parser.commands[words[0]]._actions
    with_value = {option for action in actions if action.nargs is None for option in action.option_strings}
    end = 1
    while end < len(words) and words[end].startswith("-") and words[end] not in ("-", "--", "-c"):
        end += 2 if words[end] in with_value else 1
    return words[:end], words[end + 1 :] if words[end : end + 1] == ["--"] else words[end:]


_EXAMPLES = """examples:
  malt run train.py --epochs 3               one rank per core
  malt run -n 4 --survive -m apps.svm        if a rank fails the others continue
  malt run -n 16 --hosts a:8,b:8 train.py    on two hosts
"""


def _add_run(run: argparse.ArgumentParser) -> None:
    run.usage = "malt run [-n N] [OPTIONS] [-m] PROGRAM ARGS...   (or -c CODE ARGS...)"
    run.description = "Run a Python program on N ranks, with the mpiexec that belongs to this Python's MPI."
    run.formatter_class, run.epilog = argparse.RawDescriptionHelpFormatter, _EXAMPLES
    number = run.add_mutually_exclusive_group()
    number.add_argument("-n", "-np", "--np", dest="n", type=_number_of_ranks, metavar="N",
                        help="number of ranks (default: slots of the hosts or batch system, else cores)")  # fmt: skip
    number.add_argument("--nproc-per-node", "--nproc_per_node", type=_number_of_ranks, metavar="N",
                        help="the same as -n, on one host")  # fmt: skip
    number.add_argument("--compare", type=_compared, metavar="N,N...",
                        help="run on each of these numbers of ranks, and compare the times")  # fmt: skip
    run.add_argument("--rounds", type=_number_of("rounds", 1), metavar="K",
                     help=f"with --compare: runs of each number of ranks (default: {ROUNDS})")  # fmt: skip
    run.add_argument("--restarts", type=_number_of("restarts", 0), default=0, metavar="K",
                     help="run a failed job again, up to K times, with MALT_RESTART set (default: 0)")  # fmt: skip
    to_leave = _between("the time to leave", "seconds", 0.0, math.inf)
    run.add_argument("--grace", type=to_leave, default=GRACE_S, metavar="SECONDS",
                     help="how long ranks may take to exit after Ctrl-C or SIGTERM (default: 10)")  # fmt: skip
    run.add_argument("--mpi", choices=("auto", *NAMES), default="auto", help="refuse to run with another MPI")
    run.add_argument("--hosts", type=_hosts, default=(), metavar="H1,H2:SLOTS", help="hosts on which to start ranks")
    run.add_argument("--hostfile", type=_name_of("a file"), metavar="FILE",
                     help="a file with one line per host: host:2 or host slots=2")  # fmt: skip
    run.add_argument("--bootstrap", action="store_true",
                     help="first copy this environment and the program to hosts that only have python3")  # fmt: skip
    run.add_argument("--need", action="append", default=[], metavar="FILE",
                     help="refuse to start if a host lacks this file; may be repeated")  # fmt: skip
    run.add_argument("--survive", nargs="?", const="1", choices=("1", BEST_EFFORT), metavar="best-effort",
        help="if a rank fails the others continue; best-effort: also on several hosts")  # fmt: skip
    run.add_argument("--rejoin", action="store_true",
                     help="with --survive: restart a failed rank, at most every 5 s")  # fmt: skip
    run.add_argument("--elastic", type=_bounds, metavar="MIN:MAX",
                     help="let malt scale change the number of ranks; implies --survive --rejoin")
    run.add_argument("--inject", action="append", default=[], metavar="FAULTS",
                     help="with commas: kill:30s kills a random rank of this host every 30 s on average; stop:30s "
                     "stops one for up to 4 s; slow:2x4 slows rank 2 down 4 times; seed:7 repeats a run")  # fmt: skip
    _add_output(run)
    run.add_argument("--dry-run", action="store_true", help="print the command that would be run, and exit")
    run.add_argument("-m", action="store_true", dest="module", help="PROGRAM is a module, as with python -m")
    run.add_argument("-c", metavar="CODE", help="run this code, as python -c does; the rest are its arguments")


def _add_output(run: argparse.ArgumentParser) -> None:
    """Add the options of what a job shows and keeps."""
    run.add_argument("--label", action="store_true", help="start each line of output with its rank: [2]")
    run.add_argument("--filter", metavar="RANKS", help="only show the output of these ranks: 0,2-3")
    run.add_argument("--view", action=argparse.BooleanOptionalAction, default=False,
                     help="draw one line per rank below the output: its progress, and whom it waits for")  # fmt: skip
    run.add_argument("--output", type=_name_of("a folder"), metavar="DIR",
                     help="also save the output of each rank to a file: DIR/rank-0.txt")  # fmt: skip
    run.add_argument("--metrics", type=_name_of("a file or folder"), metavar="FILE.jsonl|DIR",
                     help="write each malt.report as a line of JSON, or as event files for TensorBoard")  # fmt: skip
    run.add_argument("--trace", type=_name_of("a folder"), metavar="DIR",
                     help="record each exchange of each rank, for malt report and Perfetto")  # fmt: skip


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.description = "Run a small job and report what works on this machine, with a remedy for what does not."
    parser.add_argument("-n", type=_number_of_ranks, default=2, metavar="N", help="number of ranks (default: 2)")
    parser.add_argument("--hosts", type=_hosts, default=(), metavar="H1,H2",
                        help="check these hosts, and the network between the first and each of the others")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the facts and findings as one JSON object")


def _add_graph(parser: argparse.ArgumentParser) -> None:
    from vol.graphs.builtin import NAMES

    parser.description = (
        "Print the degree of a graph, the messages of one exchange, the rounds after which an update has reached all "
        "ranks, and the spectral gap: the larger, the faster ranks agree."
    )
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("-n", type=_number_of_ranks, required=True, metavar="N", help="number of ranks")
    parser.add_argument("--degree", type=_number_of("peers", 1), metavar="K", help="maximum number of peers per rank")
    parser.add_argument("--seed", type=_number_of("seeds", 0), default=0, metavar="S",
        help="seed of random graphs (default: 0)")  # fmt: skip
    parser.add_argument("--hosts", type=_hosts, default=(), metavar="H1,H2:SLOTS",
                        help="hosts of the ranks, as for malt run, to count messages across hosts")  # fmt: skip
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the graph to a .png, .svg or .pdf file (needs matplotlib)"
    )
    parser.add_argument("--json", action="store_true", help="print the facts as one JSON object")


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write an HTML page about a run traced by malt run --trace DIR, or one that compares two runs: losses, a "
        "timeline, waits, bytes by edge, lag, overwritten messages, and what to do."
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="one folder of --trace, or two to compare")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.html", help="the page (default: DIR/report.html)")


def _add_plan(parser: argparse.ArgumentParser) -> None:
    from malt.commands.plan.prediction import RANKS

    parser.usage = "malt plan [OPTIONS] [-m] PROGRAM ARGS..."
    parser.description = (
        "Run a program that has a malt.Replica on one rank, and predict the seconds and bytes of an epoch on more "
        "ranks and on fast and slow networks, by graph, sync and interval; of a program on apps.harness the time to a "
        "loss."
    )
    parser.add_argument("--ranks", type=_ranks, default=RANKS, metavar="N,N...",
                        help=f"numbers of ranks (default: {','.join(map(str, RANKS))})")  # fmt: skip
    parser.add_argument("--slots", type=_number_of("ranks of a host", 1), default=1, metavar="K",
                        help="ranks per host (default: 1); with several, also try the graph hierarchical")  # fmt: skip
    parser.add_argument("--latency", type=_between("a latency", "seconds", 0.0, _LONGEST_S), metavar="SECONDS",
                        help="latency of your own network from host to host: half a round trip")  # fmt: skip
    parser.add_argument(
        "--bandwidth", type=_between("a bandwidth", "bytes a second", _SLOWEST, _FASTEST), metavar="BYTES_A_SECOND",
        help="bandwidth of a link of that network: 12.5e6 is 100 Mbit/s; malt doctor --hosts A,B measures both",
    )  # fmt: skip
    parser.add_argument(
        "--loss",
        type=_between("a loss", "", -math.inf, math.inf),
        metavar="X",
        help="the loss to reach (default: 2 %% above that of one rank)",
    )
    parser.add_argument("--json", action="store_true", help="print the measurements and all predictions as JSON")
    parser.add_argument("-m", action="store_true", dest="module", help="PROGRAM is a module, as with python -m")


def _add_status(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show one line per rank of a running job: progress, exchanges, and whom it waits for."
    _add_job(parser)
    parser.add_argument("--json", action="store_true", help="print all that ranks show as one line of JSON")


def _add_stacks(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print the Python stacks of all threads of all ranks of a job, even if they hang."
    _add_job(parser)


def _add_scale(parser: argparse.ArgumentParser) -> None:
    parser.usage = "malt scale [JOB] N"
    parser.description = (
        "Change the number of ranks of a job of malt run --elastic to N: it starts more, or some leave."
    )
    _add_job(parser)
    parser.add_argument("n", type=_number_of_ranks, metavar="N", help="number of ranks that the job should have")


def _add_completion(parser: argparse.ArgumentParser) -> None:
    from malt.commands.completion import SHELLS

    parser.description = 'Print a completion script. In ~/.bashrc, for example: eval "$(malt completion bash)".'
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=" or ".join(SHELLS))


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=_number_of("the process of malt run", 1), nargs="?", metavar="JOB",
                        help="process number of malt run; not needed if only one job runs")  # fmt: skip


_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "run": ("run a program on several ranks", _add_run),
    "doctor": ("report what works on this machine", _add_doctor),
    "graph": ("show the cost of a communication graph, or draw it", _add_graph),
    "report": ("make a page from a traced run", _add_report),
    "plan": ("predict the time of a program on a cluster", _add_plan),
    "status": ("show the progress of a running job", _add_status),
    "stacks": ("print the Python stacks of a running job", _add_stacks),
    "scale": ("change the number of ranks of a running job", _add_scale),
    "completion": ("print a script for shell completion", _add_completion),
}
"""The commands of malt: a line on each, and what adds its options to its parser."""


def _number_of(things: str, least: int, most: float = math.inf) -> Callable[[str], int]:
    """A type for argparse: an integer, from `least` to `most`."""
    bounds = f"{least} or more" if math.isinf(most) else f"from {least} to {most}"

    def parse(word: str) -> int:
        """The number. ArgumentTypeError."""
        if not (word.isdecimal() and least <= int(word) <= most):
            raise argparse.ArgumentTypeError(f"the number of {things} is {bounds}, not {word!r}")
        return int(word)

    return parse


_number_of_ranks = _number_of("ranks", 1, MOST_RANKS)


def _name_of(what: str) -> Callable[[str], str]:
    """A type for argparse: the name of a file or folder, which is not empty."""

    def parse(word: str) -> str:
        """The name. ArgumentTypeError."""
        if not word:
            raise argparse.ArgumentTypeError(f"it needs the name of {what}, not ''")
        return word

    return parse


_LONGEST_S, _SLOWEST, _FASTEST = 10.0, 1e3, 1e13
"""What a network of the user's own may be: its latency, and its bandwidth. Others are in milliseconds, or in Mbit/s."""


def _between(what: str, unit: str, least: float, most: float) -> Callable[[str], float]:
    """A type for argparse: a finite number, from `least` to `most`."""

    def parse(word: str) -> float:
        """The number. ArgumentTypeError."""
        try:
            number = float(word)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and least <= number <= most):
            bounds = f" from {least:g}" * (not math.isinf(least)) + f" to {most:g}" * (not math.isinf(most))
            kind = f"a number of {unit}" if unit else "a finite number"
            raise argparse.ArgumentTypeError(f"{what} is {kind}{bounds}, not {word!r}")
        return number

    return parse


def _ranks(word: str) -> tuple[int, ...]:
    """A type for argparse: numbers of ranks, between commas."""
    from malt.commands.plan.prediction import RANKS

    return tuple(sorted(_numbers(word, range(2, max(RANKS) + 1), f"from 2 to {max(RANKS)}")))


def _bounds(word: str) -> tuple[int, int]:
    """A type for argparse: the least and the largest number of ranks."""
    least, colon, most = word.partition(":")
    if not (colon and least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most) <= MOST_RANKS):
        raise argparse.ArgumentTypeError(
            f"the bounds of the number of ranks are MIN:MAX, as 1:4, up to {MOST_RANKS}, not {word!r}"
        )
    return int(least), int(most)


def _compared(word: str) -> tuple[int, ...]:
    """A type for argparse: two or more numbers of ranks, between commas, in their order."""
    numbers = _numbers(word, range(1, MOST_RANKS + 1), f"from 1 to {MOST_RANKS}")
    if len(numbers) < 2:
        raise argparse.ArgumentTypeError(f"two numbers of ranks or more are compared, as in 1,2, not {word!r}")
    return numbers


def _numbers(word: str, among: range, bounds: str) -> tuple[int, ...]:
    """Different numbers of ranks, between commas, in their order. ArgumentTypeError: one is not `among` the range."""
    counts = word.split(",")
    if not all(count.isdecimal() and int(count) in among for count in counts):
        raise argparse.ArgumentTypeError(f"numbers of ranks are {bounds}, separated by commas, not {word!r}")
    return tuple(dict.fromkeys(map(int, counts)))


def _hosts(word: str) -> object:
    try:
        return hosts(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
