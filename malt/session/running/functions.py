"""A function as the ranks of `malt.run` find it: by module and name, by the file of the program, or by its source text.

A notebook or an interactive session has no file. So the text of the function is sent, with what it uses: functions and
classes of the notebook as text, too; modules and what comes from them by name; arrays and JSON-like values as values.
malt/runner/function.py makes the function of this on each rank.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import inspect
import linecache
import os
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MethodType, ModuleType
from typing import Any

from dstorm.words import shown
from malt.files.values import pack
from malt.runner import main_file

_NO_TEXT = "has no source text of its own: write it to a file, and import it from there"


@dataclass
class Sent:
    """A function as ranks find it."""

    name: str
    """Its qualified name in its module."""
    module: str | None = None
    """The module that ranks import."""
    folder: str | None = None
    """The folder in which that module was found."""
    main_file: str | None = None
    """The program: a file, folder or archive, which ranks run under the name __mp_main__, as multiprocessing does."""
    main_module: str | None = None
    """The same for a program that is a module, as of python -m."""
    modules: dict[str, str] = field(default_factory=dict)
    """By the names that the source texts use: modules."""
    objects: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The same: what a module has, by module and qualified name."""
    values: dict[str, Any] = field(default_factory=dict)
    """The same: values that are sent."""
    sources: dict[str, str] = field(default_factory=dict)
    """The same: source texts, each after those that it needs. Empty: the function is found in a module or file."""


def sent(function: Callable[..., Any]) -> Sent:
    """`function` as ranks find it. Local.

    TypeError: it has no name by which it could be found, or uses what cannot be sent. NameError: it uses a name that is
    not defined. The message is one line.
    """
    if not callable(function):
        raise TypeError(f"malt.run takes a function, got {shown(function)}")
    _check_has_name(function, repr(function))
    module, name = function.__module__, function.__qualname__
    if module != "__main__":
        if _found(module, name) is not function:
            raise _refusal(f"{module}.{name} has been replaced by another object, which ranks would find")
        return Sent(name, module, _folder(module))
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if file is not None and _is_of_file(function, file):
        if spec is not None and spec.name != "__main__":
            return Sent(name, main_module=spec.name)
        return Sent(name, main_file=_again(name, file if spec is None else os.path.dirname(file)))
    made = Sent(name)
    _add_text(made, name, function, [])
    return made


def _check_has_name(value: Any, said: str) -> None:
    """Raise TypeError if there is no module or text in which `value` could be found by name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, MethodType):
        raise _refusal(f"{said} is a method of an object, which cannot be sent: use a function that creates the object")
    if not (isinstance(module, str) and isinstance(name, str)):
        raise _refusal(f"{said} has no name in a module: call it in a function that has one, by def")
    if "<" in name:
        what = "a lambda" if name.endswith("<lambda>") else "defined within a function"
        raise _refusal(f"{said} is {what}, which has no name: use def at the top level, and pass what it needs in args")


def _refusal(why: str) -> TypeError:
    return TypeError(f"malt.run: {why}")


def _found(module: str, name: str) -> Any:
    """Return the object that `module` has under this qualified name, or None."""
    try:
        return functools.reduce(getattr, name.split("."), sys.modules[module])
    except (KeyError, AttributeError):
        return None


def _folder(module: str) -> str | None:
    """The folder from which the package or module was imported: sys.path may name it relative to another folder."""
    root = sys.modules[module.partition(".")[0]]
    file = getattr(root, "__file__", None)
    above = 2 if hasattr(root, "__path__") else 1
    return file and functools.reduce(lambda path, _: os.path.dirname(path), range(above), os.path.abspath(file))


def _is_of_file(function: Any, file: str | None) -> bool:
    """Return whether a function, or class, of the main module comes from `file`: a session may outlast its program."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is None or code.co_filename == file


def _again(name: str, program: str) -> str:
    """The path by which ranks can run the program of this process, too. TypeError: it is gone, or was read from a pipe.

    `program`: a file, or the folder or archive whose __main__ it is. `name`: a function of it.
    """
    is_open_here = program.startswith(("/dev/", "/proc/"))  # as /dev/stdin: other processes have another file there
    path = os.path.realpath(program) if is_open_here else program
    if main_file.refusal(path):
        raise _refusal(f"{name} {_NO_TEXT}")
    return path


def _add_text(made: Sent, name: str, value: Any, users: list[str]) -> None:
    """Add the source text of a function or class to `made`, after all that it uses. `users`: what uses it."""
    _check_has_name(value, _chain([*users, name]))
    own, users = value.__name__, [*users, name]
    if own in users[:-1]:  # it calls itself, or is called by what it calls
        return
    names = getattr(inspect.unwrap(value), "__globals__", vars(sys.modules["__main__"]))
    if names.get(own) is not value:
        raise _refusal(f"{_chain(users)} is not what {own} is at the top level: define it there again")
    text = _text(value, users)
    for used in sorted(_used(text, own)):
        _add(made, used, names, users)
    made.sources.setdefault(own, text)
    if name != own:
        made.sources.setdefault(name, f"{name} = {own}\n")


def _add(made: Sent, name: str, names: Mapping[str, Any], users: list[str]) -> None:
    """Add what is called `name` to `made`. `names`: the names of the notebook."""
    if name not in names:
        if hasattr(builtins, name):
            return
        raise NameError(f"malt.run: {_chain([*users, name])} is not defined", name=name)
    value = names[name]
    if isinstance(value, ModuleType):
        made.modules[name] = value.__name__
    elif getattr(value, "__module__", None) == "__main__" and hasattr(value, "__qualname__"):
        _add_text(made, name, value, users)
    elif _is_value(value):
        made.values[name] = value
    elif home := _home(value, name):
        made.objects[name] = home
    else:
        raise _refusal(
            f"{_chain([*users, name])} is of type {type(value).__name__}, which cannot be sent: create it in "
            f"{users[-1]}, or pass in args what it is made of"
        )


def _chain(users: list[str]) -> str:
    """The last of `users`, and by what it came to be used, in words."""
    return users[0] if len(users) == 1 else f"{users[0]} uses {', which uses '.join(users[1:])}, which"


def _is_value(value: Any) -> bool:
    try:
        pack(value)
    except TypeError:
        return False
    return True


def _home(value: Any, name: str) -> tuple[str, str] | None:
    """The module that has `value`, and its qualified name there, or None."""
    module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(module, str) and isinstance(own, str) and _found(module, own) is value:
        return module, own
    for module, one in list(sys.modules.items()):
        if module != "__main__" and getattr(one, "__dict__", {}).get(name) is value:
            return module, name
    return None


def _text(value: Any, users: list[str]) -> str:
    """The source text of a function or class, without indentation."""
    text = ""
    if isinstance(inspect.unwrap(value), FunctionType):
        with contextlib.suppress(OSError):
            text = textwrap.dedent(inspect.getsource(value))
        if hasattr(value, "__wrapped__") and not text.startswith("@"):  # by a call, which the text lacks
            text = ""
    elif isinstance(value, type):
        text = _text_of_class(value)
    if text.startswith(("def ", "async def ", "class ", "@")):
        return text
    raise _refusal(f"{_chain(users)} {_NO_TEXT}")


def _text_of_class(value: type) -> str:
    """The source text of a class, or "". In a notebook inspect does not find it up to Python 3.12."""
    for text in _cells(value):
        nodes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
        for node in nodes[::-1]:
            if node.name == value.__qualname__:
                start = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                return "".join(text.splitlines(keepends=True)[start - 1 : node.end_lineno]) + "\n"
    return ""


def _cells(value: type) -> Iterator[str]:
    """The texts in which methods of a class were written."""
    for one in vars(value).values():
        function = getattr(one, "__func__", getattr(one, "fget", one))  # of a static method, class method or property
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None:
            yield "".join(linecache.getlines(code.co_filename))


def _used(text: str, own: str) -> set[str]:
    """The global names that a source text uses, without those that it sets. `own`: the name that it defines."""
    top = symtable.symtable(text, own, "exec")
    used: set[str] = set()
    assigned = set(vars(ModuleType(own)))
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table is top or symbol.is_global():
                (assigned if symbol.is_assigned() or symbol.is_namespace() else used).add(symbol.get_name())
    return used - assigned
