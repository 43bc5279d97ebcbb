"""Agreement between ranks: all of them go on, or all of them raise the same error.

If one rank raised alone, the others would wait for it in the next collective call.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from dstorm import PeerLost, Transport

Result = TypeVar("Result")
Checked = TypeVar("Checked")
Description = Mapping[str, Any]

_RENAMED: Final = {
    "ExceptionGroup", "StopAsyncIteration", "StopIteration", "UnicodeDecodeError", "UnicodeEncodeError",
    "UnicodeTranslateError",
}  # fmt: skip
"""Built-in exceptions that are made from more than a message, or would end a loop of the caller's."""
_KINDS: Final[Mapping[str, type[Exception]]] = {
    kind.__name__: kind
    for kind in vars(builtins).values()
    if isinstance(kind, type) and issubclass(kind, Exception) and kind.__name__ not in _RENAMED
}
"""The other ones, by name."""
_END: Final = b"\n"
"""What ends a text in JSON, before the bytes that are sent along."""


def exchange(transport: Transport, value: Any, *, shared: bool = False) -> dict[int, Any]:
    """The value of each live rank, by rank in ascending order. Collective.

    `value`: anything that JSON can express. `shared`: equal values are decoded once, and are one object. The caller
    must not change it.
    """
    everyone = transport.allgather(json.dumps(value).encode())
    if not shared:
        return {rank: json.loads(one) for rank, one in enumerate(everyone) if one}
    return _decoded(everyone)


def _decoded(everyone: Sequence[bytes]) -> dict[int, Any]:
    """The values of live ranks, by rank. Equal ones are one object."""
    decoded = {one: json.loads(one) for one in set(everyone) if one}
    return {rank: decoded[one] for rank, one in enumerate(everyone) if one}


def agree(
    transport: Transport, what: str, check: Callable[[], tuple[Checked, Description]]
) -> tuple[Checked, dict[int, dict[str, Any]]]:
    """The first result of check() on this rank, and the descriptions of all live ranks, by rank. Collective.

    check() checks the arguments of this rank. Its second result describes them, as anything that JSON can express.
    Descriptions must be the same on all ranks; values of keys with a leading underscore may differ. `what`: the call,
    for messages.

    ValueError, the same on all ranks: check() raised on one of them, or descriptions differ. The message names the type
    of an error other than ValueError, TypeError and MemoryError; such an error is the cause on its rank. MemoryError,
    on all: check() raised that.
    """
    checked, reports, _ = agree_and_send(transport, what, check, lambda _: b"")
    return checked, reports


def agree_and_send(
    transport: Transport, what: str, check: Callable[[], tuple[Checked, Description]], data: Callable[[Checked], bytes]
) -> tuple[Checked, dict[int, dict[str, Any]], dict[int, bytes]]:
    """Agree on check(), and exchange the bytes that each live rank sends along in the same exchange. Collective.

    `data`: the function of the first result of check() that returns what this rank sends. Returned are that result, and
    the descriptions and the bytes of all live ranks, by rank.
    """
    checked: Checked | None = None
    sent = b""
    unforeseen: Exception | None = None
    try:
        checked, description = check()
        mine, sent = json.dumps(description), data(checked)
    except (ValueError, TypeError, MemoryError) as error:
        mine = json.dumps({"_error": str(error), "_memory": isinstance(error, MemoryError)})
    except Exception as error:  # of any type: the others must raise too
        unforeseen = error
        mine = json.dumps({"_error": f"{type(error).__name__}: {error}", "_memory": False})
    with transport.calling(what):
        everyone = [one.partition(_END) for one in transport.allgather(mine.encode() + _END + sent)]
    reports: dict[int, dict[str, Any]] = _decoded([text for text, _, _ in everyone])
    problem, kind = _first_error(reports) or (difference(reports), ValueError)
    if problem or checked is None:
        raise kind(f"{what}: {problem}") from unforeseen
    return checked, reports, {rank: everyone[rank][2] for rank in reports}


def _first_error(reports: Mapping[int, dict[str, Any]]) -> tuple[str, type[Exception]] | None:
    """The message of the lowest rank whose check failed, and the type to raise. None: no check failed."""
    errors = [(rank, one["_error"]) for rank, one in reports.items() if "_error" in one]
    if not errors:
        return None
    rank, error = errors[0]
    everywhere = len(errors) == len(reports) and len({text for _, text in errors}) == 1
    return error if everywhere else f"on rank {rank}: {error}", MemoryError if reports[rank]["_memory"] else ValueError


def difference(reports: Mapping[int, Mapping[str, Any]]) -> str:
    """Return what ranks disagree on, in words, or "". Pure.

    `reports`: the descriptions by rank. Values of keys with a leading underscore may differ.
    """
    lowest = min(reports)
    others: dict[int, tuple[int, Mapping[str, Any]]] = {}
    for rank, one in reports.items():
        others.setdefault(id(one), (rank, one))  # the lowest rank of those that share it
    for key, value in reports[lowest].items():
        for rank, other in others.values():
            if not key.startswith("_") and other.get(key) != value:
                return f"ranks disagree on {key}: rank {lowest} has {value}, rank {rank} has {other.get(key)}"
    return ""


def succeed(transport: Transport, work: Callable[[], Result], what: str = "malt.together") -> Result:
    """The result of work() on this rank, once it has returned on all ranks. Collective; work() itself is local.

    Where work() raises on some ranks, all ranks raise the error of the lowest of them. An OSError keeps its errno and
    file name, and names the host if there are several. Other built-in exceptions keep type and message. Any other
    error becomes a RuntimeError. On a rank where work() raised, its own error is that error, or its cause.
    """
    results: list[Result] = []
    error: Exception | None = None
    try:
        results.append(work())
    except Exception as raised:  # of any type: the others must raise too
        error = raised
    with transport.calling(what):
        reports = exchange(transport, None if error is None else described(error))
    for rank, report in reports.items():
        if report is not None:
            problem = rebuilt(report, _place(transport, rank))
            if error is not None and (type(error), str(error)) == (type(problem), str(problem)):
                raise error  # with its own traceback
            raise problem from error
    return results[0]


def described(error: Exception) -> list[Any]:
    """`error` as a report that JSON can express: its type, message and rank if any; or errno, message, file name."""
    if isinstance(error, PeerLost):
        return ["PeerLost", str(error), error.rank]
    if isinstance(error, OSError) and isinstance(error.strerror, str):
        return [error.errno, error.strerror, None if error.filename is None else str(error.filename)]
    kind = MemoryError if isinstance(error, MemoryError) else type(error)  # NumPy raises a subclass of the same name
    if _KINDS.get(kind.__name__) is kind:
        is_key = isinstance(error, KeyError) and error.args and isinstance(error.args[0], str)  # whose str is its repr
        return [kind.__name__, error.args[0] if is_key else str(error)]
    return ["RuntimeError", f"{type(error).__name__}: {error}"]


def rebuilt(report: list[Any], place: str) -> Exception:
    """The error of a report. `place`: as by `_place`."""
    if report[0] == "PeerLost":
        return PeerLost(report[2], report[1].removeprefix(f"rank {report[2]} is lost: "))
    if len(report) == 3:
        number, text, filename = report
        return OSError(number, text + place, filename)
    kind, text = report
    return _KINDS[kind](text)


def _place(transport: Transport, rank: int) -> str:
    """The host of `rank`, in words. "": there is only one host, so all ranks see the same files."""
    return f" on host {transport.hosts[rank].partition('/')[0]}" if len(set(transport.hosts)) > 1 else ""
