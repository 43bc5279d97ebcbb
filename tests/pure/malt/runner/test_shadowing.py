"""A file of the user's that hides a package of MALT is named."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("file", "program"),
    [
        ("vol.py", "import malt"),
        ("dstorm.py", "import malt"),
        ("vol/__init__.py", "import malt.launch.command"),
        ("vol.py", "import vol, malt"),
        ("other.py", "import malt"),
    ],
)
def test_a_file_that_hides_a_package_is_named(file, program, tmp_path):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("print('this is run')\n" if "import vol" not in program else "")
    (tmp_path / "program.py").write_text(program)
    environment = {"PYTHONPATH": str(Path(__file__).parents[4])}
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], env=environment, capture_output=True, text=True, timeout=60
    )
    line = f"{path} hides the package {path.relative_to(tmp_path).parts[0].removesuffix('.py')} that malt is made of"
    assert line in done.stderr.splitlines()[-1:][0] if file != "other.py" else "hides" not in done.stderr, done.stderr
    assert done.stdout == ""
