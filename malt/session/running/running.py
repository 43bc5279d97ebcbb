"""`malt.run`: a function called on ranks, from a plain program, an interactive session or a notebook.

The ranks are a job of `malt run`, in a process of its own: its signals, its children and its standard streams are not
those of the caller. What it prints itself goes to a file, apart from what the ranks print: the text of an error.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from dstorm.membership import children
from dstorm.words import named, shown
from malt.files.refusals import refusal
from malt.files.values import Packed, joined, pack, parted
from malt.runner import function as runner
from malt.runner.program import encoding_of_lines
from malt.runner.reporting import survive_of
from malt.session import session
from malt.session.opening import started
from malt.session.running.functions import Sent, sent
from malt.session.running.returned import check_returned
from vol import arguments

_LAUNCHER: Final = """
import json, os, runpy, shutil, sys
folder, caller = sys.argv.pop(1), os.getppid()
with open(f"{folder}/call.json", encoding="utf-8") as file:
    sys.path[:] = json.load(file)["path"]
from malt.launch.processes.parent import end_with_parent
end_with_parent()
sys.stderr = open(f"{folder}/words.txt", "w", 1, encoding="utf-8", errors="backslashreplace")
try:
    runpy.run_module("malt", run_name="__main__", alter_sys=True)
finally:
    if os.getppid() != caller:  # which was killed
        shutil.rmtree(folder, ignore_errors=True)
"""
"""The program of the launcher's process: `malt run`, whose own words go to a file."""

_WORDS: Final = "words.txt"
_PIECE_NBYTES: Final = 1 << 16
_LOOK_S: Final = 0.25
"""How long a wait for the job lasts. A signal that came just before it is seen at its end."""


def run(
    function: Callable[..., Any], n: int = 4, args: Sequence[Any] = (), *, survive: bool | str = False,
    label: bool = False,
) -> list[Any]:  # fmt: skip
    """Call function(*args) on `n` new ranks, and return the results by rank. Local.

    It starts a job as `malt run -n N` does, and waits for its end. The output of the ranks appears here as they print
    it, also in a notebook cell. They read no standard input. Ctrl-C ends them, and raises KeyboardInterrupt.

    `args` and results are None, truth values, numbers, strings, arrays, sparse matrices in CSR form, malt.Dataset,
    malt.Ratings; data frames and series of pandas, as an array or a few per column; estimators of
    scikit-learn and malt.sklearn, as the arrays and numbers that they hold; lists, tuples, and dicts with strings as
    keys of these. Nothing is pickled. Arrays are copies, which can be written to.

    Ranks import `function` from its module. If it is defined in the program itself, ranks run the program's file first,
    except for the block under `if __name__ == "__main__":`, where the call must be. In a notebook or an interactive
    session its source code is sent, with everything it uses: imported modules, other functions and classes of the
    notebook, and values as above.

    `survive`: True or "best-effort", as for `malt run --survive`. The result of a failed rank is None, and so is that
    of a rank that ends with sys.exit(0). `label`: start each line of output with its rank.

    TypeError, before a rank is started: `function` cannot be found by ranks, or uses what cannot be sent; an argument
    cannot be sent; its text shows that a result cannot be: an object that it makes of a class, and returns. The message
    names what it is, and what to send in its place. NameError: it uses a name that is not defined. ValueError: `n` is
    not an integer of at least 1. RuntimeError: the call is made in a rank; a rank has failed, and the message has its
    traceback; without `survive` one has ended by os._exit; the job cannot be started.
    """
    _check_is_no_rank()
    ranks = arguments.whole("n", n, 1)
    if survive not in (False, True, "best-effort"):
        raise ValueError(f'survive must be True, False or "best-effort", got {shown(survive)}')
    options = ["-n", str(ranks), *([f"--survive={'1' if survive is True else survive}"] if survive else [])]
    found, packed = sent(function), _packed(args)
    check_returned(function)
    with tempfile.TemporaryDirectory(prefix="malt-") as name:
        folder = Path(name)
        _write(folder, found, packed)
        _run_job(folder, [*options, *(["--label"] if label else []), runner.FILE, name])
        files = [folder / runner.RESULT.format(rank) for rank in range(ranks)]
        silent = [rank for rank, file in enumerate(files) if not file.exists()]
        if silent and not (survive or survive_of(os.environ)):
            raise RuntimeError(f"malt.run: {named(silent)} ended before {found.name} had returned, as by os._exit")
        return [_result(file) for file in files]


def _check_is_no_rank() -> None:
    if session.in_simulation():
        raise RuntimeError("malt.run cannot be called inside a simulated rank")
    if any(variable in os.environ for variable in children.RANKS) or started() is not None:
        raise RuntimeError(
            "malt.run starts ranks, and cannot be called in one: call it in a program started without mpiexec, "
            'malt run and torchrun; in a file, under `if __name__ == "__main__":`, as ranks run what is outside of it'
        )


def _packed(args: Sequence[Any]) -> Packed:
    if not isinstance(args, (list, tuple)):
        raise TypeError(f"args must be a tuple or list of arguments, got {shown(args)}")
    try:
        return pack(list(args))
    except (TypeError, RecursionError):
        raise TypeError(f"malt.run: {refusal(list(args), 'args')}") from None


def _write(folder: Path, found: Sent, packed: Packed) -> None:
    """Write the files that the launcher and the ranks read."""
    path = [one for one in sys.path if isinstance(one, str)]  # as imports do: a pathlib.Path there is ignored
    call = {**asdict(found), "path": path, "argv": sys.argv}
    del call["values"]
    (folder / runner.CALL).write_text(json.dumps(call), encoding="utf-8")
    joined([packed, pack(found.values)]).tofile(folder / runner.SENT)


def _run_job(folder: Path, words: list[str]) -> None:
    """Run the job, and print what it prints. RuntimeError: it has failed. KeyboardInterrupt: Ctrl-C has ended it."""
    own_words, is_interrupted = folder / _WORDS, False
    command = [sys.executable, "-c", _LAUNCHER, str(folder), "run", *words]
    # env: the environment as Python knows it, without what an MPI library has added in this process
    with subprocess.Popen(
        command, env=dict(os.environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as launcher:
        output = _Output(launcher)
        while True:
            try:
                output.pass_on()
                status = _status(launcher)
                break
            except KeyboardInterrupt:
                is_interrupted = True
                launcher.send_signal(signal.SIGINT)
            except BaseException:  # output cannot be written
                launcher.terminate()
                raise
    text = own_words.read_text(encoding="utf-8").strip() if own_words.exists() else ""
    if is_interrupted:
        raise KeyboardInterrupt(text)
    if status != 0:
        raise RuntimeError(text or f"malt.run: the job ended with status {status}, as printed above")
    if text:
        print(text, file=sys.stderr)


def _status(launcher: subprocess.Popen[bytes]) -> int:
    """The status of the launcher, once it has ended."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return launcher.wait(_LOOK_S)


class _Output:
    """The output of a job, on its way to sys.stdout and sys.stderr, which in a notebook are those of the cell."""

    def __init__(self, launcher: subprocess.Popen[bytes]) -> None:
        self._selector = selectors.DefaultSelector()
        for pipe, stream in ((launcher.stdout, sys.stdout), (launcher.stderr, sys.stderr)):
            assert pipe is not None
            encoding = encoding_of_lines(getattr(stream, "encoding", None) or "utf-8")
            decoder = codecs.getincrementaldecoder(encoding)("backslashreplace")
            self._selector.register(pipe, selectors.EVENT_READ, (stream, decoder))

    def pass_on(self) -> None:
        """Print until the job has closed both streams. It can be called again after an interruption."""
        while self._selector.get_map():
            for key, _ in self._selector.select(_LOOK_S):
                stream, decoder = key.data
                data = os.read(key.fd, _PIECE_NBYTES)
                if not data:
                    self._selector.unregister(key.fileobj)
                stream.write(decoder.decode(data, final=not data))
                stream.flush()
        self._selector.close()


def _result(path: Path) -> Any:
    """The result in a file. None: there is no such file."""
    if not path.exists():
        return None
    [result] = parted(runner.read(str(path)), writable=True)
    return result
