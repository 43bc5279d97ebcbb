"""Imports point down, and what decides imports neither MPI nor a clock."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

pytestmark = pytest.mark.serial

ROOT = Path(__file__).parents[2]
MOST_LINES = 200
"""Of a program, beside its data, kernels and model."""
LAYERS = ["dstorm", "vol", "malt", "apps"]
PURE = [
    "dstorm/membership/calls.py",
    "dstorm/transports/connections.py",
    "dstorm/queues/consistency.py",
    "dstorm/queues/layout.py",
    "dstorm/membership/view.py",
    "dstorm/reduction.py",
    "dstorm/queues/ring.py",
    "dstorm/transports/schedule.py",
    "dstorm/membership/allocator.py",
    "dstorm/membership/heartbeat.py",
    "dstorm/header.py",
    "dstorm/queues/statistics.py",
    "dstorm/membership/status.py",
    "dstorm/transport.py",
    "dstorm/wait.py",
    "malt/launch/streams/banners.py",
    "malt/replica/cadence.py",
    "malt/replica/changes.py",
    "malt/data/dealing.py",
    "malt/doctor/findings.py",
    "malt/replica/parameters.py",
    "vol/graphs/graph.py",
    "vol/topology.py",
    "vol/graphs/builders.py",
    "vol/graphs/spectrum.py",
    "vol/merge.py",
    "vol/update.py",
    "vol/arguments.py",
    "vol/sparse/dirty.py",
    "vol/sparse/merge.py",
    "vol/sparse/rows.py",
    "vol/sparse/wire.py",
    "apps/harness/exchanges.py",
    "apps/mlp/network.py",
    "apps/mlp/optimizer.py",
]
MODULES = [file for layer in LAYERS for file in sorted((ROOT / layer).rglob("*.py"))]


def imported(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{file}: a relative import"
    return names


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_point_down(file):
    layer = LAYERS.index(file.relative_to(ROOT).parts[0])
    above = [name for name in imported(file) if name.split(".")[0] in LAYERS[layer + 1 :]]
    assert not above


PUBLIC = {name: import_module(name) for name in ("malt", "malt.data", "malt.files")}


def internals(text: str) -> list[str]:
    """What a program takes of malt, and of what malt is made of, that is not public."""
    nodes, found, bound = list(ast.walk(ast.parse(text))), [], {"malt": PUBLIC["malt"]}
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [one.name for one in node.names if one.name.split(".")[0] in LAYERS[:3] and one.name not in PUBLIC]
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in LAYERS[:3]:
            for one in node.names:
                if (name := f"{node.module}.{one.name}") in PUBLIC:
                    bound[one.asname or one.name] = PUBLIC[name]
                elif one.name not in getattr(PUBLIC.get(str(node.module)), "__all__", ()):
                    found.append(name)
    for node in nodes:
        if not isinstance(node, ast.Attribute):
            continue
        module = bound.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if module and node.attr not in (*module.__all__, "__version__") and f"malt.{node.attr}" not in PUBLIC:
            found.append(f"{module.__name__}.{node.attr}")
        if node.attr == "transport":
            found.append("transport")
    return found


@pytest.mark.parametrize("file", [file for file in MODULES if "apps" in file.parts], ids=lambda file: file.name)
def test_programs_use_what_is_public(file):
    assert internals(file.read_text()) == []


@pytest.mark.parametrize("text", [
    "import vol", "import malt.session.session", "from dstorm import Statistics", "from malt import session",
    "from malt.world.agreement import exchange", "from malt.files import npz", "import malt\nmalt.session.world()",
    "import malt\nmalt.init().transport.barrier()", "from malt import files\nfiles.npz",
])  # fmt: skip
def test_what_is_not_public_is_seen(text):
    assert len(internals(text)) == 1


@pytest.mark.parametrize("name", ["svm", "mf", "mlp"])
def test_programs_are_short(name):
    assert len((ROOT / "apps" / name / "program.py").read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("name", PURE)
def test_what_decides_is_pure(name):
    roots = {one.split(".")[0] for one in imported(ROOT / name)}
    assert not roots & {"mpi4py", "time", "threading", "os", "socket"}


def test_one_module_calls_mpi_windows():
    assert [file.name for file in MODULES if "MPI.Win" in file.read_text() and "import MPI" in file.read_text()] == [
        "mpi.py"
    ]


def test_nothing_is_unpickled():
    for file in MODULES:
        names = imported(file)
        assert not {name for name in names if name.split(".")[0] in ("pickle", "marshal", "shelve", "dill", "joblib")}
        assert "allow_pickle=True" not in file.read_text()
