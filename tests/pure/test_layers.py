"""Imports point down, and what decides imports neither MPI nor a clock."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from sources import LAYERS, MODULES, ROOT, below, nodes, parsed, text, where

MOST_LINES = 190
"""Of a program, beside its data, kernels and model."""


@functools.cache
def imported(file: Path) -> frozenset[str]:
    names = set()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{file}: a relative import"
    return frozenset(names)


def test_imports_point_down():
    def above(file: Path) -> list[str]:
        layer = LAYERS.index(file.relative_to(ROOT).parts[0])
        return [name for name in imported(file) if name.split(".")[0] in LAYERS[layer + 1 :]]

    assert where(above) == {}


def rooms() -> dict[str, tuple[int, int]]:
    """The subpackages and modules of each layer, from left to right as in DESIGN.md: column, and place in it."""
    found = {}
    for layer in LAYERS:
        columns = re.search(rf"^    {layer}  +(.*<-.*)$", (ROOT / "DESIGN.md").read_text(), re.M)[1].split("<-")
        for column, subpackages in enumerate(columns):
            for place, names in enumerate(subpackages.split("|")):
                found |= {f"{layer}.{name.strip()}": (column, place) for name in names.split(",")}
    paths = {name: ROOT.joinpath(*name.split(".")) for name in found}
    assert [name for name, path in paths.items() if not (path.is_dir() or path.with_suffix(".py").is_file())] == []
    return found


ROOMS = rooms()


def test_imports_within_a_layer_point_left():
    def room(name: str) -> str:
        above = name.split(".")
        while len(above) > 2 and ".".join(above) not in ROOMS:
            del above[-1]
        return ".".join(above)

    def not_to_the_left(file: Path) -> list[str]:
        own = room(".".join(file.relative_to(ROOT).with_suffix("").parts))
        if file.name == "__init__.py" or own not in ROOMS:
            assert file.name in ("__init__.py", "__main__.py"), f"DESIGN.md has no place for {own}"
            return []
        column, place = ROOMS[own]
        others = {room(name) for name in imported(file) if name.split(".")[0] == own.split(".")[0]} & set(ROOMS) - {own}
        return [one for one in others if ROOMS[one][0] > column or (ROOMS[one][0] == column and ROOMS[one][1] != place)]

    assert where(not_to_the_left) == {}


NETWORKS = ("networks", "networks.sparse", "networks.touched")
MODELS = [f"malt.models.{name}" for name in ("factors", "linear", *NETWORKS, "trees")]
PUBLIC = {
    name: import_module(name)
    for name in ("malt", "malt.data", "malt.files", "malt.kernels", "malt.models", *MODELS, "malt.optim")
}


def internals(program: list[ast.AST]) -> list[str]:
    """What a program takes of malt, and of what malt is made of, that is not public."""
    found, bound = [], {"malt": PUBLIC["malt"]}
    for node in program:
        if isinstance(node, ast.Import):
            found += [one.name for one in node.names if one.name.split(".")[0] in LAYERS[:3] and one.name not in PUBLIC]
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in LAYERS[:3]:
            for one in node.names:
                if (name := f"{node.module}.{one.name}") in PUBLIC:
                    bound[one.asname or one.name] = PUBLIC[name]
                elif one.name not in getattr(PUBLIC.get(str(node.module)), "__all__", ()):
                    found.append(name)
    for node in program:
        if not isinstance(node, ast.Attribute):
            continue
        module = bound.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if module and node.attr not in (*module.__all__, "__version__") and f"malt.{node.attr}" not in PUBLIC:
            found.append(f"{module.__name__}.{node.attr}")
        if node.attr == "transport":
            found.append("transport")
    return found


def test_programs_use_what_is_public():
    assert where(lambda file: internals(nodes(file)), below("apps")) == {}


@pytest.mark.parametrize("program", [
    "import vol", "import malt.session.session", "from dstorm import Statistics", "from malt import session",
    "from malt.session.world.agreement import exchange", "from malt.files import npz",
    "import malt\nmalt.session.world()",
    "import malt\nmalt.init().transport.barrier()", "from malt import files\nfiles.npz",
])  # fmt: skip
def test_what_is_not_public_is_seen(program):
    assert len(internals(parsed(program))) == 1


def test_programs_are_short():
    names = ["svm", "logistic", "mf", "mlp", "autoencoder", "embed", "kmeans", "lda", "gbdt"]
    lengths = {name: len(text(ROOT / "apps" / name / "program.py").splitlines()) for name in names}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


PURE = re.compile(r"\bPure[.:,]")
"""What the docstring of a module says that decides, and moves no bytes. "Pure but for" something is not pure."""
LEAST_PURE = 90


def test_what_decides_is_pure():
    impure = {"mpi4py", "time", "threading", "os", "socket"}
    pure = [file for file in MODULES if PURE.search(ast.get_docstring(nodes(file)[0]) or "")]
    assert len(pure) >= LEAST_PURE
    assert where(lambda file: {one.split(".")[0] for one in imported(file)} & impure, pure) == {}


def test_files_that_modules_name_are_there():
    """Their docstrings point to others, which may move."""
    path = re.compile(r"\b(?:dstorm|vol|malt|apps|bench|tests|docs)/[\w/.-]+\.(?:py|md)\b")
    assert where(lambda file: [name for name in path.findall(text(file)) if not (ROOT / name).exists()]) == {}


def test_sessions_begin_and_graphs_are_mended_without_scipy():
    """To import scipy.sparse takes longer than to begin a session, and each rank of a job would do so at once. A graph
    is mended within the scatter that finds a failure."""
    program = (
        "import sys, malt; malt.graph('auto', 4); malt.graph('ring', 4).without([1]);"
        "malt.Graph.from_dict({0: [1], 1: [0]}, 2); print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"scipy", "numba", "sklearn", "unittest", "asyncio", "email"} & set(done.stdout.split())


@pytest.mark.parametrize(("program", "others"), [
    ("import malt.commands.command_line, malt.commands.run", {"numpy", "mpi4py", "vol"}),
    ("import malt; malt.init()", {"malt.session.resilience.start", "malt.session.replica", "vol.vector"}),
    ("from malt.launch.hosts.agent import agent", {"numpy", "malt.launch.job"}),
    (
        "from malt.session.resilience import start",
        {
            "malt.session.resilience.joining", "malt.session.world.roster_requests", "malt.watch.trace",
            "dstorm.transports.links",
        },
    ),
], ids=["launcher", "rank", "agent", "rank that may fail"])  # fmt: skip
def test_a_job_starts_with_what_it_needs(program, others):
    """Four ranks that share two cores load all of it at once."""
    program = f"{program}\nimport sys; print(*sys.modules)"
    environment = {**os.environ, "MALT_ALONE": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert not others & set(done.stdout.split())


@pytest.mark.parametrize("package", ["dstorm", "vol", "malt"])
def test_names_at_first_use_are_those_that_type_checkers_see(package):
    """From the modules that define them, or from packages that have them in turn."""
    module = import_module(package)
    (block,) = [node for node in ast.parse(Path(module.__file__).read_text()).body if isinstance(node, ast.If)]
    seen = {name.name: node.module for node in block.body for name in node.names}
    packages = {name for name, origin in seen.items() if origin == package}  # of malt: they have a way of their own
    assert seen.keys() - packages == module._LATER.keys()
    assert set(module.__all__) - {"jax", "torch"} <= seen.keys()
    for name, origin in module._LATER.items():
        assert seen[name] == origin or seen[name].startswith(f"{origin}."), name


def test_one_module_calls_mpi_windows_and_one_prints_the_launchers_lines():
    callers = [file for file in MODULES if "MPI.Win" in text(file) and "import MPI" in text(file)]
    assert callers == [ROOT / "dstorm/transports/mpi/window.py"]
    printing = [file for file in below("malt/launch") if "sys.stderr" in text(file)]
    assert printing == [ROOT / "malt/launch/streams/display.py"]


def test_edges_alone_know_whether_a_peer_is_near_or_far():
    def modules_with(*words):
        return where(lambda file: any(word in text(file) for word in words), below("dstorm/queues", "vol")).keys()

    queues, sending = "dstorm/queues", "dstorm/queues/sending"
    ordered = {f"{sending}/far.py", f"{sending}/outgoing.py", f"{queues}/unflushed.py", f"{queues}/queues.py"}
    ends = {f"{sending}/sender.py", f"{queues}/receiving/receiver.py", f"{queues}/queues.py"}
    counted = {f"{queues}/statistics.py", "vol/dense.py", "vol/sharded/scalars.py"}
    assert modules_with("hosts[") == {f"{queues}/neighbours.py"}
    assert modules_with(" of_other_hosts(", "(of_other_hosts(") == {f"{queues}/neighbours.py", *ends, *counted}
    assert modules_with("keeps_order", "flush_local") == ordered
    assert modules_with("NearEdges(", "FarEdges(", "= Outgoing(") == {f"{sending}/sender.py"}


def test_nothing_is_unpickled():
    unpickle = {"pickle", "marshal", "shelve", "dill", "joblib"}
    assert where(lambda file: unpickle & {name.split(".")[0] for name in imported(file)}) == {}
    assert where(lambda file: "allow_pickle=True" in text(file)) == {}


def test_no_test_module_imports_another():
    """What several need is in a module of tests/: a name that moves breaks one import, and a module runs by itself."""
    found = [file.name for file in (ROOT / "tests").rglob("test_*.py")
             if re.search(r"^ *(from|import) test_", file.read_text(), re.M)]  # fmt: skip
    assert found == []
