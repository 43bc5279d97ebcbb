"""Detects in the text of a function what it returns, so that a result that cannot be sent is refused in advance.

Detected are objects of a class that is called in the text: `model = KNeighborsClassifier()`, then `return model`, or
`return {"model": model.fit(X, y)}`; and the return annotation, `-> set`. Nothing is known of anything else.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, GeneratorType
from typing import Any, Final

from malt.files.refusals import refusal_of_class

_RETURN_SELF: Final = ("fit", "partial_fit", "set_params", "train", "eval", "to", "cpu", "double", "float")
"""Methods of estimators and modules that return the object itself."""
_LITERALS: Final[dict[type[ast.AST], tuple[str, type]]] = {
    ast.Set: ("a set", set), ast.SetComp: ("a set", set),
    ast.GeneratorExp: ("a generator", GeneratorType), ast.Lambda: ("a function", FunctionType),
}  # fmt: skip
_Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


def check_returned(function: Callable[..., Any]) -> None:
    """Raise TypeError if the text of `function` shows that it returns what cannot be sent. Local."""
    found = inspect.unwrap(function)
    node = _definition(found)
    if node is None:
        return
    returned = _Returned(node, getattr(found, "__globals__", {}))
    for expression in returned.expressions():
        for what, kind in returned.kinds(expression):
            if remedy := refusal_of_class(kind):
                raise TypeError(f"malt.run: {function.__name__} returns {what}, which cannot be sent: {remedy}")


def _definition(function: Any) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The definition of a function, or None."""
    try:
        [node] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    return node if isinstance(node, _Functions) else None


class _Returned:
    """The values that a function returns. `names`: the global names."""

    def __init__(self, node: ast.FunctionDef | ast.AsyncFunctionDef, names: Mapping[str, Any]) -> None:
        self._node, self._names = node, dict(names)
        self._own = set(_inner(node))
        self._assigned: dict[str, list[ast.expr | None]] = {}
        """What each name is assigned, at all places; None: what is not known."""
        self._note_assignments()

    def expressions(self) -> Iterator[ast.expr]:
        """Yield the expressions that it returns, at all places; first its return annotation."""
        if self._node.returns is not None:
            yield ast.Call(self._node.returns, [], [])
        for one in self._own:
            if isinstance(one, ast.Return) and one.value is not None:
                yield one.value

    def kinds(self, expression: ast.expr, name: str = "") -> Iterator[tuple[str, type]]:
        """The classes of the values in an expression that are known, with what to call the values. `name`: theirs."""
        if type(expression) in _LITERALS:
            what, kind = _LITERALS[type(expression)]
            yield name or what, kind
        elif isinstance(expression, (ast.Tuple, ast.List)):
            for one in expression.elts:
                yield from self.kinds(one)
        elif isinstance(expression, ast.Dict):
            for one in expression.values:
                yield from self.kinds(one)
        elif isinstance(expression, ast.Name) and len(self._assigned.get(expression.id, ())) == 1:
            [value] = self._assigned[expression.id]
            if value is not None and not name:
                yield from self.kinds(value, expression.id)
        elif isinstance(expression, ast.Call):
            yield from self._of_call(expression, name)

    def _of_call(self, call: ast.Call, name: str) -> Iterator[tuple[str, type]]:
        """The class of what a call returns, where it makes an object, or is a method that returns the object itself."""
        called = self._value(call.func)
        if isinstance(called, type) and type(called).__call__ is type.__call__:
            kind = called.__name__
            yield f"{name}, a {kind}" if name else f"a {kind}", called
        elif isinstance(call.func, ast.Attribute) and call.func.attr in _RETURN_SELF:
            yield from self.kinds(call.func.value, name)

    def _value(self, expression: ast.expr) -> Any:
        """Return the value of a global name, or of an attribute of one; None: it is not known."""
        if isinstance(expression, ast.Attribute):
            above = self._value(expression.value)
            return getattr(above, expression.attr, None) if inspect.ismodule(above) else None
        if isinstance(expression, ast.Name) and expression.id not in self._assigned:
            return self._names.get(expression.id, getattr(builtins, expression.id, None))
        return None

    def _note_assignments(self) -> None:
        arguments = self._node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        for argument in filter(None, every):
            self._assigned[argument.arg] = [None]
        values: dict[int, ast.expr | None] = {}
        for one in self._own:
            if isinstance(one, ast.Assign):
                values |= {id(target): one.value for target in one.targets}
            elif isinstance(one, (ast.AnnAssign, ast.NamedExpr)):
                values[id(one.target)] = one.value
        for one in self._own:
            if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
                self._assigned.setdefault(one.id, []).append(values.get(id(one)))
            elif isinstance(one, ast.Import):
                self._note_import({alias.asname or alias.name: _module(alias.name) for alias in one.names})
            elif isinstance(one, ast.ImportFrom):
                found, names = _module(one.module or ""), one.names
                self._note_import({alias.asname or alias.name: getattr(found, alias.name, None) for alias in names})

    def _note_import(self, found: Mapping[str, Any]) -> None:
        """Note what the function imports itself; None: it is not loaded here, and not known."""
        for name, value in found.items():
            if value is None or "." in name:
                self._assigned.setdefault(name.partition(".")[0], []).append(None)
            else:
                self._names[name] = value


def _module(name: str) -> Any:
    """A module that is loaded, or is one of scikit-learn. None: it is another one."""
    if name.startswith("sklearn."):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return sys.modules.get(name)


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes in a function, without those in functions and classes within it."""
    for one in ast.iter_child_nodes(node):
        yield one
        if not isinstance(one, (*_Functions, ast.Lambda, ast.ClassDef)):
            yield from _inner(one)
