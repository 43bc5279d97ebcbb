"""Functions as ranks find them: by module, by file, or from a notebook by their source texts."""

import json
import linecache
import math
import os
import sys
from dataclasses import asdict
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest

from malt.files.values import joined, pack, parted
from malt.runner import function as runner
from malt.session.running.functions import sent

CELL = """
import functools, math
import numpy as np
from functools import reduce
from numpy import sqrt
RATE, table = 0.5, {"a": np.arange(3)}
rng = np.random.default_rng(0)

def half(v):
    return sqrt(v) * RATE
other = half
class Base:
    step = 2
class Net(Base):
    @property
    def wide(self):
        return reduce(lambda a, b: a + b, [one for one in table["a"]], self.step)
def marked(function):
    @functools.wraps(function)
    def call(*args):
        return ["marked", function(*args)]
    return call
@marked
def train(x: np.ndarray = table["a"], *, last=RATE):
    def inner():
        return other(x) + last
    return float(inner()[1]), Net().wide, math.pi, even(4)
def even(n):
    return n == 0 or odd(n - 1)
def odd(n):
    return n > 0 and even(n - 1)
def sets():
    global counter
    counter = len(__name__)
    return counter

class Plain: pass
def makes(): return Plain()
def draws(): return rng.normal()
def outer(): return draws()
def lacks(): return half(missing)
def wraps(): return wrapped()
def wrapped(): return 1
wrapped = functools.lru_cache(wrapped)
old = wrapped.__wrapped__
nameless = lambda: 1
def calls(): return nameless()
def nested():
    def within(): return 1
    return within
within = nested()
wide = Net().none
def binds(): return wide()
"""


@pytest.fixture
def notebook(monkeypatch):
    """The names of a notebook with this cell, which are those of the main module."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    # Python 3.13 finds classes by their lines, earlier ones by those of their methods
    text = CELL.replace("class Base:\n", "class Base:\n    def none(self): pass\n")
    monkeypatch.setitem(linecache.cache, "<cell>", (len(text), None, text.splitlines(keepends=True), "<cell>"))
    exec(compile(text, "<cell>", "exec"), vars(main))
    return vars(main)


def call(function):
    """What a rank calls, which has nothing but what was sent."""
    found = sent(function)
    values = found.values
    record = {name: one for name, one in asdict(found).items() if name != "values"}
    assert record["module"] is record["main_file"] is record["main_module"] is None
    [names] = parted(joined([pack(values)]))
    made = runner._made(json.loads(json.dumps(record)), names)
    assert getattr(made, "rng", None) is None
    return getattr(made, found.name)


def test_a_function_of_a_notebook(notebook):
    expected = notebook["train"]()
    assert call(notebook["train"])() == expected == ["marked", (1.0, 5, math.pi, True)]


def test_names_that_a_function_sets_are_not_sent(notebook):
    assert call(notebook["sets"])() == len("__mp_main__")


@pytest.mark.parametrize("name, message", [
    ("outer", "outer uses draws, which uses rng, which is of type Generator, which cannot be sent: create it in draws"),
    ("makes", "makes uses Plain, which has no source text of its own"),
    ("lacks", "lacks uses missing, which is not defined"),
    ("wraps", "wraps uses wrapped, which has no source text of its own"),
    ("old", "wrapped is not what wrapped is at the top level"),
    ("calls", "calls uses nameless, which is a lambda"),
    ("within", "is defined within a function"),
    ("binds", "binds uses wide, which is a method of an object"),
])  # fmt: skip
def test_what_cannot_be_sent_is_named(notebook, name, message):
    with pytest.raises((TypeError, NameError)) as raised:
        sent(notebook[name])
    assert message in str(raised.value) and "\n" not in str(raised.value)


def main_module(monkeypatch, file, spec=None):
    """The main module of a program `file`, which has a function f."""
    main = ModuleType("__main__")
    main.__file__, main.__spec__ = str(file), spec
    for name in ("__main__", "__mp_main__"):
        monkeypatch.setitem(sys.modules, name, main)
    exec(compile("def f(): return __name__", str(file), "exec"), vars(main))
    return main


@pytest.mark.parametrize("file", ["<stdin>", "pipe", "gone.py"])
def test_a_program_that_ranks_cannot_run_again(file, monkeypatch, tmp_path):
    """It was read from a pipe, say. What is sent of it is text, as of a notebook, and there is none."""
    if file == "pipe":
        file = tmp_path / file
        os.mkfifo(file)
    with pytest.raises(TypeError, match="^malt.run: f has no source text of its own: write it to a file"):
        sent(main_module(monkeypatch, file).f)


def test_a_program_in_a_folder_is_run_as_a_whole(monkeypatch, tmp_path):
    """So it is in an archive, where __main__.py is no file."""
    (tmp_path / "app").mkdir()
    file = tmp_path / "app" / "__main__.py"
    file.write_text("import beside\nf = beside.f")
    (tmp_path / "app" / "beside.py").write_text("def f(): return 5")
    found = sent(main_module(monkeypatch, file, ModuleSpec("__main__", None)).f)
    assert found.main_file == str(tmp_path / "app")
    assert runner._module(asdict(found)).f() == 5


def test_functions_of_modules_are_named():
    found = sent(sent)
    assert (found.name, found.module) == ("sent", "malt.session.running.functions")
    assert found.folder in sys.path
    assert sent(np.linalg.norm).module == "numpy.linalg"


@pytest.mark.parametrize("function, message", [
    (lambda: 1, "is a lambda"), ([].append, "has no name in a module"), (3, "takes a function"),
])  # fmt: skip
def test_functions_without_a_name(function, message):
    with pytest.raises(TypeError, match=message):
        sent(function)
