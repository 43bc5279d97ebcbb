"""Agreement between ranks: all of them go on, or all of them raise the same error.

A rank that raised alone would leave the others waiting in the next collective call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from dstorm import Transport

Result = TypeVar("Result")
Checked = TypeVar("Checked")
Description = Mapping[str, Any]

_KINDS: Final = {
    kind.__name__: kind
    for kind in (
        ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, FloatingPointError, ImportError,
        IndexError, KeyError, LookupError, MemoryError, ModuleNotFoundError, NameError, NotImplementedError, OSError,
        OverflowError, RecursionError, RuntimeError, TypeError, ValueError, ZeroDivisionError,
    )
}  # fmt: skip
"""Python's own errors that a message alone makes, by name."""


def exchange(transport: Transport, value: Any, *, shared: bool = False) -> dict[int, Any]:
    """What every rank that lives gave, by rank, ascending: anything that JSON can say. Collective.

    `shared`: ranks that gave the same have one object, which must not change; it is decoded once.
    """
    return _exchanged(transport, json.dumps(value), shared)


def _exchanged(transport: Transport, text: str, shared: bool) -> dict[int, Any]:
    everyone = transport.allgather(text.encode())
    if not shared:
        return {rank: json.loads(one) for rank, one in enumerate(everyone) if one}
    decoded = {one: json.loads(one) for one in set(everyone) if one}
    return {rank: decoded[one] for rank, one in enumerate(everyone) if one}


def agree(
    transport: Transport, what: str, check: Callable[[], tuple[Checked, Description]]
) -> tuple[Checked, dict[int, dict[str, Any]]]:
    """check()'s first result, and what the living said of theirs, by rank. Collective.

    check() looks at this rank's arguments and describes those that must be the same everywhere, in JSON; keys with
    a leading underscore may differ. The same on all ranks: ValueError, where a rank's check failed or two ranks
    differ (it names the kind of an error that is none of an argument's, and has it as its cause); MemoryError, where
    a check raised that.
    """
    checked: Checked | None = None
    unforeseen: Exception | None = None
    try:
        checked, description = check()
        mine = json.dumps(description)
    except (ValueError, TypeError, MemoryError) as error:
        mine = json.dumps({"_error": str(error), "_memory": isinstance(error, MemoryError)})
    except Exception as error:  # whatever it is, the others must hear of it
        unforeseen = error
        mine = json.dumps({"_error": f"{type(error).__name__}: {error}", "_memory": False})
    with transport.calling(what):
        reports: dict[int, dict[str, Any]] = _exchanged(transport, mine, shared=True)
    problem, kind = _first_error(reports) or (_difference(reports), ValueError)
    if problem or checked is None:
        raise kind(f"{what}: {problem}") from unforeseen
    return checked, reports


def _first_error(reports: Mapping[int, dict[str, Any]]) -> tuple[str, type[Exception]] | None:
    """What failed first, by rank, and the kind of error that it is told as; None: nothing did."""
    errors = [(rank, one["_error"]) for rank, one in reports.items() if "_error" in one]
    if not errors:
        return None
    rank, error = errors[0]
    everywhere = len(errors) == len(reports) and len({text for _, text in errors}) == 1
    return error if everywhere else f"on rank {rank}: {error}", MemoryError if reports[rank]["_memory"] else ValueError


def _difference(reports: Mapping[int, dict[str, Any]]) -> str:
    lowest = min(reports)
    others: dict[int, tuple[int, dict[str, Any]]] = {}
    for rank, one in reports.items():
        others.setdefault(id(one), (rank, one))  # the lowest rank of those that share it
    for key, value in reports[lowest].items():
        for rank, other in others.values():
            if not key.startswith("_") and other.get(key) != value:
                return f"ranks disagree on {key}: rank {lowest} has {value}, rank {rank} has {other.get(key)}"
    return ""


def succeed(transport: Transport, work: Callable[[], Result], what: str = "malt.together") -> Result:
    """What work() returned here, where it returned on every rank. Collective; work() itself is local.

    Where it raised on some, all ranks raise the error of the lowest of them: an OSError with its errno and file
    (and the host, where there are several), another error of Python's own with its message; anything else as
    RuntimeError. On a rank where work() raised, its own error is that error, or its cause.
    """
    results: list[Result] = []
    error: Exception | None = None
    try:
        results.append(work())
    except Exception as raised:  # whatever it is, the others must hear of it
        error = raised
    with transport.calling(what):
        reported_by = exchange(transport, None if error is None else _notified(error))
    for rank, reports in reported_by.items():
        if reports is not None:
            problem = _rebuilt(reports, _place(transport, rank))
            if error is not None and (type(error), str(error)) == (type(problem), str(problem)):
                raise error  # with its own traceback
            raise problem from error
    return results[0]


def _notified(error: Exception) -> list[Any]:
    if isinstance(error, OSError) and error.errno is not None:
        return [error.errno, error.strerror, None if error.filename is None else str(error.filename)]
    if type(error).__name__ in _KINDS and type(error) is _KINDS[type(error).__name__]:
        is_key = isinstance(error, KeyError) and error.args and isinstance(error.args[0], str)  # whose str is its repr
        return [type(error).__name__, error.args[0] if is_key else str(error)]
    return ["RuntimeError", f"{type(error).__name__}: {error}"]


def _rebuilt(reports: list[Any], place: str) -> Exception:
    if len(reports) == 3:
        number, text, filename = reports
        return OSError(number, text + place, filename)
    kind, text = reports
    return _KINDS[kind](text)


def _place(transport: Transport, rank: int) -> str:
    """Which host it happened on, where files may differ between hosts."""
    return f" on host {transport.hosts[rank]}" if len(set(transport.hosts)) > 1 else ""
