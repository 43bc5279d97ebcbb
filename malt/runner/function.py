"""The program of a rank that calls a function for `malt.run`: finds it, calls it, and writes its result to a file.

    python malt/runner/program.py malt/runner/function.py FOLDER

FOLDER is that of the call. It holds call.json, what malt/session/running/functions.py says of the function, and
`sent`, the values. A rank writes its result to result-<rank>. This file is started by its path. It imports malt after
the user's module, whose first line may still set what numpy reads when it is imported.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)  # the folder of this file: no import may find its modules

import functools
import json
import linecache
import os
import runpy
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

CALL, SENT, RESULT = "call.json", "sent", "result-{}"
"""The files in the folder of a call."""
FILE = os.path.abspath(__file__)


def main(folder: str) -> None:
    """Call the function of `folder`, and write its result. What it raises ends the job."""
    with open(os.path.join(folder, CALL), encoding="utf-8") as file:
        call = json.load(file)
    sys.path[:], sys.argv[:] = call["path"], call["argv"]
    program = sys.modules["malt.runner.program"]
    if program.JOB_DIR not in os.environ:
        sys.excepthook = lambda *error: None  # the traceback is in the error that malt.run raises
    name, module = call["name"], _module(call)
    if module is not None:
        function = _attribute(module, name)
    from malt.files import values

    args, names = values.parted(read(os.path.join(folder, SENT)), writable=True)
    if module is None:
        function = _attribute(_made(call, names), name)
    try:
        result = function(*args)
    except SystemExit as error:
        if program.exit_hooks.status_of(error) != 0:
            raise RuntimeError(f"{name} ended by sys.exit({error.code!r})") from error
        result = None
    try:
        packed = values.pack(result)
    except (TypeError, RecursionError):
        from malt.files.refusals import refusal

        raise TypeError(f"malt.run: {refusal(result, f'the result of {name}')}") from None
    values.joined([packed]).tofile(os.path.join(folder, RESULT.format(program.reporting.rank())))


def read(path: str) -> Any:
    """The bytes of a file, mapped into memory: they can be written to, and the file stays as it is. Local."""
    import numpy as np

    return np.asarray(np.memmap(path, np.uint8, mode="c"))


def _module(call: Mapping[str, Any]) -> ModuleType | None:
    """The module that has the function. None: its source text was sent."""
    if call["module"] is not None:
        sys.path += [call["folder"]] if call["folder"] and call["folder"] not in sys.path else []
        __import__(call["module"])
        return sys.modules[call["module"]]
    if call["sources"]:
        return None
    main = _main()
    if call["main_module"] is not None:
        vars(main).update(runpy.run_module(call["main_module"], run_name=main.__name__, alter_sys=True))
    else:
        vars(main).update(runpy.run_path(call["main_file"], run_name=main.__name__))
    return main


def _main() -> ModuleType:
    """A new main module, under the name that multiprocessing gives it in a new process."""
    main = ModuleType("__mp_main__")
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    return main


def _attribute(module: ModuleType, name: str) -> Callable[..., Any]:
    try:
        return functools.reduce(getattr, name.split("."), module)  # type: ignore[return-value]
    except AttributeError:
        pass
    raise AttributeError(f'malt.run: ranks find no {name}: define it outside of `if __name__ == "__main__"`')


def _made(call: Mapping[str, Any], values: Mapping[str, Any]) -> ModuleType:
    """A main module that has what a notebook has sent."""
    main = _main()
    for name, module in call["modules"].items():
        __import__(module)
        setattr(main, name, sys.modules[module])
    for name, (module, own) in call["objects"].items():
        __import__(module)
        setattr(main, name, _attribute(sys.modules[module], own))
    vars(main).update(values)
    for name, text in call["sources"].items():
        place = f"<{name}>"
        linecache.cache[place] = len(text), None, text.splitlines(keepends=True), place
        exec(compile(text, place, "exec", dont_inherit=True), vars(main))
    return main


if __name__ == "__main__":
    main(sys.argv[1])
