"""What `malt run --bootstrap` copies."""

import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from malt.launch.bootstrap import contents, copying, unpack

UNPACK = str(Path(unpack.__file__))


def test_modules_of_the_program_are_found_by_its_imports(tmp_path, monkeypatch):
    monkeypatch.setattr(contents, "_files", lambda name: {name: Path(name)})
    texts = {
        "train": "import os\ndef f():\n    from own.deep import x\n    import beside", "beside": "import not_there",
        "own/__init__": "", "own/deep": "from . import other\nimport scipy.sparse", "own/other": "",
        "unused": "import torch",
    }  # fmt: skip
    (tmp_path / "own").mkdir()
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = contents.of([tmp_path / "train.py"], "", tmp_path, "an MPI that is not there")
    assert sorted(found.program) == ["beside.py", "own/__init__.py", "own/deep.py", "own/other.py", "train.py"]
    (tmp_path / "own" / "data").mkdir()
    for name in ("data/rows.xz", ".hidden"):
        (tmp_path / "own" / name).write_bytes(b"\xff import torch")
    (tmp_path / "rows.csv").write_text("")
    beside = contents.of([tmp_path / "train.py"], "", tmp_path, "").program.keys() - found.program.keys()
    assert beside == {"own/data/rows.xz"}  # what lies in a package, and is little
    monkeypatch.setattr(contents, "DATA_NBYTES", 10)
    assert contents.of([tmp_path / "train.py"], "", tmp_path, "").program.keys() == found.program.keys()
    assert {"malt", "numpy", "scipy", "mpi4py"} <= found.environment.keys()
    assert not {"torch", "pytest", "an-mpi-that-is-not-there"} & found.environment.keys()


@pytest.mark.parametrize("is_archive", [False, True], ids=["a folder", "an archive"])
def test_a_program_of_several_files_is_copied_whole(is_archive, tmp_path, monkeypatch):
    monkeypatch.setattr(contents, "_files", lambda name: {name: Path(name)})
    program = tmp_path / ("app.pyz" if is_archive else "app")
    texts = {"__main__.py": "import inner", "inner.py": "from __future__ import division\nimport scipy, pytest"}
    if is_archive:
        with zipfile.ZipFile(program, "w") as archive:
            for name, text in texts.items():
                archive.writestr(name, text)
    else:
        program.mkdir()
        for name, text in texts.items():
            (program / name).write_text(text)
    found = contents.of([program], "", tmp_path, "")
    assert sorted(found.program) == (["app.pyz"] if is_archive else ["app/__main__.py", "app/inner.py"])
    assert {"scipy", "pytest"} <= found.environment.keys()


def test_parts_of_malt_bring_what_they_need(monkeypatch):
    asked = {"malt": ["numpy", "rich>=13 ; extra == 'view'", 'torch ; extra == "torch"'], "torch": ["sympy!=1.13"]}
    monkeypatch.setattr(contents, "_installed", lambda name: True)
    monkeypatch.setattr(contents.metadata, "requires", asked.get)
    assert contents.closure(["malt"]) == {"malt", "numpy"}
    assert contents.closure(["malt", *contents._distributions("malt.torch")]) == {"malt", "numpy", "torch", "sympy"}


def test_the_environment_has_malt_and_no_tests():
    files = contents._files("malt")
    names = {path.split("site-packages/")[1].split("/")[0] for path in files}
    assert names >= {"malt", "dstorm", "vol"} and not names & {"apps", "bench", "examples", "tests"}
    assert all("direct_url" not in path and "editable" not in path for path in files)


def test_the_hash_tells_contents_apart(tmp_path):
    (tmp_path / "x.py").write_text("1")
    found = contents.Contents({"x.py": tmp_path / "x.py"}, {})
    first = copying.folders(found, {"XDG_CACHE_HOME": "/cache"})
    (tmp_path / "x.py").write_text("2")
    second = copying.folders(found, {"XDG_CACHE_HOME": "/cache"})
    assert first["program"] != second["program"] and first["environment"] == second["environment"]
    assert first["program"].startswith("/cache/malt/program-")


def unpacked(folder, entries=(), **changes):
    """What unpack.py answers."""
    wanted = {"folders": {"program": str(folder)}, "python": copying._VERSION, "machine": copying.platform.machine(),
              "working": str(folder.parents[1]), **changes}  # fmt: skip
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w|") as archive:
        for name, text in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    sent = json.dumps(wanted).encode() + b"\n" + data.getvalue()
    done = subprocess.run([sys.executable, "-I", UNPACK], input=sent, capture_output=True, timeout=60)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_folder_is_whole_or_not_there(tmp_path):
    folder = tmp_path / "cache" / "malt" / "program-1"
    entries = [("program/a/x.py", b"1"), ("program/../../y.py", b"2"), ("other/z.py", b"3")]
    assert unpacked(folder, entries) == [{"missing": ["program"]}, {"missing": []}]
    assert sorted(path.name for path in folder.rglob("*")) == ["a", "complete", "x.py"]
    assert not list(tmp_path.rglob("y.py"))
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700
    assert unpacked(folder) == [{"missing": []}]
    other = tmp_path / "cache" / "malt" / "program-2"
    twice = [("program/x.py", b"1"), ("program/x.py", b"2")]
    assert "trouble" in unpacked(other, twice)[1]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["program-1"]


def test_hosts_that_cannot_take_it(tmp_path):
    folder = tmp_path / "malt" / "program-1"
    assert "python3 is Python " in unpacked(folder, python="2.7")[0]["trouble"]
    assert "its processor is " in unpacked(folder, machine="vax")[0]["trouble"]
    folder.parent.mkdir(mode=0o777)
    folder.parent.chmod(0o777)
    assert unpacked(folder)[0]["trouble"].startswith(f"others may write to {folder.parent}: ")
