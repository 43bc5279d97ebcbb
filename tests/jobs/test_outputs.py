"""The programs never write to a file that they read, nor two outputs to one file."""

import os
import re

import pytest

import malt
from apps.autoencoder import program as autoencoder
from apps.harness import BadInput
from apps.linear import reading
from apps.mf import program as mf
from apps.mlp import program as mlp
from apps.svm import program as svm

pytestmark = pytest.mark.serial

READ = {
    "svm TRAIN": (svm, "{}", "TRAIN"),
    "svm --test": (svm, "other --test {}", "--test"),
    "mf RATINGS": (mf, "{}", "RATINGS"),
    "mf --test": (mf, "other --test {}", "--test"),
    "mf --model": (mf, "other --model {}", "--model"),
    "mlp FOLDER": (mlp, "{}", "FOLDER"),
    "mlp --model": (mlp, "--model {}", "--model"),
    "autoencoder DATA": (autoencoder, "{}", "DATA"),
}
CASES = [(name, option, "itself") for name in READ for option in ("--save", "--json", "--checkpoint")
         if (READ[name][2], option) != ("--model", "--save")]  # see test_a_model_may_be_saved_in_its_own_place
CASES += [("svm --test", "--save", alias) for alias in ("another path", "link", "hard link", "not there yet")]


@pytest.mark.parametrize("program", [svm, mf, mlp])
@pytest.mark.parametrize(
    ("path", "option"), [("no-such-folder/out", "--save"), ("no-such-folder/out", "--json"), (".", "--json")]
)
def test_an_output_that_cannot_be_written_is_reported_before_training(program, path, option, tmp_path, capsys):
    out = tmp_path / path
    with pytest.raises(BadInput, match=f"^{re.escape(str(out))}: "):
        malt.simulate(lambda rank: program.run([option, str(out)]), 2)
    assert "epoch" not in capsys.readouterr().out and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "option", "alias"), CASES)
def test_a_file_that_is_read_is_not_written(tmp_path, monkeypatch, name, option, alias):
    """It is reported before anything is read: the file that is read here would be refused."""
    program, words, reports = READ[name]
    monkeypatch.chdir(tmp_path)
    read = tmp_path / ("t10k-labels-idx1-ubyte.gz" if reports == "FOLDER" else "data")
    if alias != "not there yet":
        read.write_text("not what it should be")
    out = {"another path": f"../{tmp_path.name}/{read.name}", "link": "link", "hard link": "link"}.get(alias, str(read))
    if alias == "link":
        os.symlink(read, "link")
    if alias == "hard link":
        os.link(read, "link")
    arguments = words.format(tmp_path if reports == "FOLDER" else read).split()
    resume = ["--resume"] if option == "--checkpoint" else []
    with pytest.raises(BadInput) as error:
        program.run([*arguments, option, out, *resume])
    assert str(error.value) == f"{out}: {option} needs a file of its own, and {reports} is that file"
    assert alias == "not there yet" or read.read_text() == "not what it should be"


@pytest.mark.parametrize("program", [svm, mf, mlp])
def test_two_outputs_are_two_files(tmp_path, program):
    one, same = tmp_path / "out", tmp_path / "." / "x" / ".." / "out"
    (tmp_path / "x").mkdir()
    for first, second in (("--save", "--json"), ("--save", "--checkpoint"), ("--json", "--checkpoint")):
        with pytest.raises(BadInput, match=f"{second} needs a file of its own, and {first} is that file"):
            program.run([first, str(one), second, str(same)])
    assert not one.exists()


def test_the_embedded_rows_are_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "EMBEDDED", tmp_path)
    with pytest.raises(BadInput, match="--json needs a file of its own, and --test is that file"):
        svm.run(["--json", str(tmp_path / "test.svm.xz")])


@pytest.mark.parametrize("program", [mf, mlp])
def test_a_model_may_be_saved_in_its_own_place(tmp_path, program):
    """So a model can be trained further: it is read whole before it is replaced."""
    if program is mlp:
        pytest.importorskip("sklearn")
    model = tmp_path / "model.npz"
    (tmp_path / "ratings.txt").write_text("1 1 1\n1 2 2\n7 1 3\n")
    arguments = [str(tmp_path / "ratings.txt")] if program is mf else []
    arguments += ["--epochs", "1", "--save", str(model)]
    program.run(arguments)
    before = model.read_bytes()
    program.run([*arguments, "--model", str(model)])
    program.run([*arguments[:-2], "--model", str(model)])
    assert model.read_bytes() != before
