"""Explains in one line why a value cannot be sent: which part of it, of what type, and what can be sent instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from malt.files import objects, values

_REMEDIES: Final[dict[str, str]] = {
    "torch.nn.modules.module.Module":
        "make the module in the function, and send {name: t.numpy() for name, t in module.state_dict().items()}",
    "torch.Tensor": "send tensor.numpy()",
    "malt.session.replica.replica.Replica": "send the arrays that it exchanges",
    "polars.dataframe.frame.DataFrame": "to_pandas() makes a frame of it that can be sent",
    "polars.series.series.Series": "send series.to_numpy()",
    "pyarrow.lib.Table": "to_pandas() makes a frame of it",
    "scipy.sparse._base._spbase": "tocsr() makes a matrix of it that can be sent",
    "builtins.bytes": "send numpy.frombuffer(data, numpy.uint8)",
    "builtins.bytearray": "send numpy.frombuffer(data, numpy.uint8)",
    "pathlib.PurePath": "send str(path)",
    "datetime.date": "send numpy.datetime64(value), or value.isoformat()",
    "_io._IOBase": "open the file in the function, by its path",
    "numpy.random._generator.Generator": "send a seed, and make it in the function",
    **dict.fromkeys(
        ("builtins.set", "builtins.frozenset", "builtins.range", "builtins.map", "builtins.zip", "builtins.filter",
         "builtins.generator"), "list() makes a list of it"),
    **dict.fromkeys(
        ("builtins.function", "builtins.builtin_function_or_method", "builtins.method"),
        "import it in the function, where it is called"),
}  # fmt: skip
"""What to send in the place of objects of a class, by its module and name."""
_SENT: Final = ("builtins.list", "builtins.tuple", "builtins.dict", "numpy.ndarray", "scipy.sparse._csr._csr_base")
"""Classes that are sent, whatever else they are."""
_UNSENT: Final = {
    "Birch", "Isomap", "KNeighborsMixin", "RadiusNeighborsMixin", "KernelDensity", "LocallyLinearEmbedding",
    "SplineTransformer",
}  # fmt: skip
"""Estimators of scikit-learn that cannot be sent once they are fitted: they hold trees of neighbours, or splines."""
_FITTED: Final = (
    "return its predictions, or write it to a file in the function with joblib.dump, and return the path; "
    "unfitted ones can be sent"
)
_OTHERWISE: Final = "create it in the function, from values that can be sent"


def refusal(value: Any, name: str) -> str:
    """The line about the first part of `value`, which is called `name`, that cannot be sent. Local. "": it can be."""
    try:
        values.pack(value)
        return ""
    except (TypeError, RecursionError) as error:
        is_nested, why = isinstance(error, RecursionError), str(error)
    if not is_nested or not objects.is_estimator(type(value)):
        for part, place in _parts(value, name):
            if found := refusal(part, place):
                return found
    return f"{name} {_why(value, 'it holds itself, or is nested too deeply' if is_nested else why)}"


def _why(value: Any, why: str) -> str:
    """Return the message on a value that cannot be sent. `why`: the reason found when it was tried."""
    kind = type(value)
    if objects.is_estimator(kind):
        return f"is a fitted {kind.__name__}, which cannot be sent: {why}: {remedy(kind)}"
    if "exchanged" not in why:  # of a frame, or nested too deeply
        return f"cannot be sent: {why}"
    if isinstance(value, Mapping):
        return "is a dict with keys that are neither text nor numbers, which cannot be sent: make them text"
    return f"is of type {kind.__name__}, which cannot be sent: {remedy(kind)}"


def refusal_of_class(kind: type) -> str:
    """Return a remedy if an object of this class is known not to be sendable, else "". Local."""
    names = list(_names(kind))
    if any(name in _SENT for name in names):
        return ""
    is_own = objects.is_estimator(kind) and not objects.is_sendable(kind)
    is_known = any(name in _REMEDIES or name.rpartition(".")[2] in _UNSENT for name in names)
    return remedy(kind) if is_own or is_known else ""


def remedy(kind: type) -> str:
    """Return advice on what to send instead of an object of this class. Local."""
    if objects.is_estimator(kind):
        return _FITTED
    return next((_REMEDIES[name] for name in _names(kind) if name in _REMEDIES), _OTHERWISE)


def _names(kind: type) -> Iterator[str]:
    for one in kind.__mro__:
        yield f"{one.__module__}.{one.__qualname__}"


def _parts(value: Any, name: str) -> Iterator[tuple[Any, str]]:
    """The values in a list, a tuple or a dict, and how they are called."""
    if isinstance(value, (list, tuple)):
        yield from ((one, f"{name}[{place}]") for place, one in enumerate(value))
    if isinstance(value, Mapping):
        for key, one in value.items():
            if isinstance(key, (str, int)):
                yield one, f"{name}[{key!r}]"
