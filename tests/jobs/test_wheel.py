"""The wheel in an environment of its own, outside the checkout."""

import shutil
import subprocess
import sys
import sysconfig
import venv

import pytest
from programs import ROOT

from malt.launch.machine.mpi_library import bound_library

pytestmark = [pytest.mark.serial, pytest.mark.thorough]

EXTRAS = ("sklearn", "torch", "transformers", "lightning", "jax", "numba", "IPython", "greenlet", "matplotlib")

ALONE = f"""
import sys
for name in {EXTRAS}:
    sys.modules[name] = None  # as if it were not installed
import malt
assert malt.__file__.startswith(sys.prefix), malt.__file__
print(malt.run(malt.rank, 2), malt.simulate(lambda rank: malt.size(), 1))
"""
LOADED = f"""
import sys, malt
for name in malt.__all__:
    getattr(malt, name)
print(sorted(set({EXTRAS}) & set(sys.modules)))
"""
NOTEBOOK = """
import sys
from jupyter_client.manager import KernelManager
manager = KernelManager()
manager.kernel_spec.argv[0] = sys.executable
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(60)
client.execute_interactive("import malt\\ndef where():\\n return malt.rank()\\nprint(malt.run(where, 2))", timeout=100)
client.stop_channels()
manager.shutdown_kernel(now=True)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The Python of an environment that has the wheel.

    Other packages, which are large, are those of this environment. It has malt only as a link to the checkout.
    """
    pytest.importorskip("setuptools", minversion="77", reason="builds the wheel")
    source, home = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("home")
    for name in ("malt", "vol", "dstorm"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "wheel", *offline, "-w", home, source], check=True)
    venv.create(home / "venv")
    python = home / "venv" / "bin" / "python"
    [wheel] = home.glob("*.whl")
    subprocess.run([*pip, "--python", python, "install", *offline, wheel], check=True)
    [packages] = (home / "venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")  # whose own links are not followed
    return python


def test_it_has_all_modules(installed):
    """Also those that need extras, which are imported as in the checkout."""
    [packages] = (installed.parents[1] / "lib").glob("python*/site-packages")
    for name in ("malt", "vol", "dstorm"):
        files = [sorted(file.relative_to(at) for file in at.glob(f"{name}/**/*.py")) for at in (packages, ROOT)]
        assert files[0] == files[1] and (packages / name / "py.typed").exists()


@pytest.mark.parametrize("program, needs, printed", [
    (ALONE, "mpi4py", "[0, 1] [1]"),
    (LOADED, "mpi4py", "[]"),
    (NOTEBOOK, "ipykernel", "[0, 1]"),
], ids=["alone", "loaded", "notebook"])  # fmt: skip
def test_the_wheel(program, needs, printed, installed, job_environment, tmp_path):
    pytest.importorskip(needs, reason=f"needs {needs}")
    (tmp_path / "program.py").write_text(program)
    environment = {**job_environment, "MPI4PY_LIBMPI": bound_library().path}  # else mpi4py looks beside its Python
    done = subprocess.run(
        [installed, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout.strip()) == (0, printed), done.stderr


def test_its_command(installed):
    done = subprocess.run([installed.parent / "malt", "--version"], capture_output=True, text=True, timeout=100)
    assert done.stdout.startswith("malt ")
