"""The programs of README.md and of the guide run, and do what is said of them."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from documents import DOCUMENTS, EXAMPLES, small
from programs import ROOT

import malt
from malt.files import checkpoint

pytestmark = pytest.mark.serial


@pytest.fixture
def run(malt_run):
    """run(program, ranks): what it prints."""

    def run(program, ranks):
        done = malt_run(program, ranks=ranks)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


@pytest.fixture
def simulated(capsys):
    """simulated(program): what it prints on two simulated ranks, which import nothing that is here."""

    def simulated(program):
        malt.simulate(lambda rank: exec(program, {}), 2)
        return capsys.readouterr().out

    return simulated


def losses(output):
    return [float(text) for text in re.findall(r"loss ([\d.]+)", output)]


def test_the_port_adds_four_lines_and_changes_one():
    serial, parallel = EXAMPLES["serial"].splitlines(), EXAMPLES["parallel"].splitlines()
    added = [line for line in parallel if line not in serial]
    assert [line.rsplit("#", 1)[1].strip()[0] for line in added if "#" in line] == ["1", "2", "3", "4"]
    assert len(added) == 5
    assert [line for line in serial if line not in parallel] == ["    for i in range(len(X)):"]


def test_the_port_is_better_than_its_serial_twin(capsys):
    """The serial twin takes as many steps as each rank. Simulated ranks merge at the same steps in each run."""
    serial, parallel = small(EXAMPLES["serial"]), small(EXAMPLES["parallel"])
    twin = serial.replace("range(len(X))", "range(len(X) // 4)")
    assert twin != serial
    malt.simulate(lambda rank: exec(twin, {}), 1)
    malt.simulate(lambda rank: exec(parallel, {}), 4)
    serial, *parallel = losses(capsys.readouterr().out)
    assert len(parallel) == 4 and len(set(parallel)) == 1
    assert parallel[0] < serial


def test_a_with_block_ends_as_finish_does(capsys):
    port, block = small(EXAMPLES["parallel"]), EXAMPLES["with"].replace("malt.Replica(w)", "malt.Replica(w, every=100)")
    program = port[: port.index("replica =")] + block.replace("range(4)", "range(3)") + port[port.index("\nprint(") :]
    for one in (port, program):
        malt.simulate(lambda rank, one=one: exec(one, {}), 2)
    losses_of_port, losses_of_block = np.split(np.array(losses(capsys.readouterr().out)), 2)
    assert len({*losses_of_port, *losses_of_block}) == 1


def test_vectors(run):
    output = run(EXAMPLES["vector"], ranks=3)
    assert sorted(output.splitlines()) == ["0 (2,) 1.0 1", "1 (0,) 0.5 1", "2 (1,) 1.5 1"]


def test_collectives(run):
    output = run(EXAMPLES["collectives"], ranks=3)
    assert output == "[1.  0.5] 1.667 {'loss': 0.5, 'rows': 10.0} [1 1 1] 3\n"


@pytest.mark.thorough
def test_a_function_on_ranks(tmp_path, job_environment):
    (tmp_path / "program.py").write_text(EXAMPLES["run"])
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env={**job_environment, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    *printed, first, second = done.stdout.splitlines()
    assert sorted(printed) == ["rank 0 has 2 rows", "rank 1 has 2 rows"]
    assert (first, second, done.stderr) == ("0 [ 4.5  8.5 14.5]", "1 [58.5 74.5 92.5]", "")


@pytest.mark.thorough
def test_estimators(simulated):
    pytest.importorskip("sklearn")
    assert simulated(EXAMPLES["estimators"]) == "0.988\n" * 2


def test_row_groups_of_parquet(tmp_path, monkeypatch, simulated):
    """Each group is read by one rank; all ranks end with the weights that the rows were made of."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    X = np.random.default_rng(0).normal(size=(3000, 3))
    rows = {**{f"x{column}": X[:, column] for column in range(3)}, "y": X @ [1.0, -2.0, 0.5] + 3}
    parquet.write_table(pyarrow.table(rows), tmp_path / "rows.parquet", row_group_size=250)
    program = EXAMPLES["parquet"]
    assert 10 <= len(program.splitlines()) <= 19
    read = "table = file.read_row_group(group)"
    assert read in program
    monkeypatch.chdir(tmp_path)
    lines = simulated(program.replace(read, f"print('read', epoch, group); {read}")).splitlines()
    assert sorted(line for line in lines if line[:4] == "read") == sorted(
        f"read {epoch} {group}" for epoch in range(5) for group in range(12)
    )
    weights = sorted(line for line in lines if line[:4] != "read")
    assert weights == [f"{rank} [ 1.  -2.   0.5  3. ]" for rank in range(2)]


def test_map_reduce(run):
    [line] = run(EXAMPLES["map_reduce"], ranks=3).splitlines()
    assert re.fullmatch(r"loss \d+\.\d{3}, converged; 1,3\d\d,\d{3} bytes of chunks", line)


@pytest.mark.thorough
def test_a_loop_of_scikit_learn(simulated):
    printed = simulated(EXAMPLES["sklearn"]).split()
    assert len(printed) == 4 and printed[1] == printed[3] and float(printed[1]) > 0.93


def test_the_checkpoint_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    """The port with a checkpoint, killed after one epoch and after another, ends as if it had never been killed."""
    port, loop = small(EXAMPLES["parallel"]), EXAMPLES["checkpoint"].replace("every_s=60", "every_s=0")
    start, end = port[: port.index("w = np.zeros")], port[port.index("print(") :]
    monkeypatch.chdir(tmp_path)
    for epoch in (1, 2):
        failing = loop.replace('"epoch": epoch})', f'"epoch": epoch}}); epoch < {epoch} or 1 / 0')
        with pytest.raises(ZeroDivisionError):
            malt.simulate(lambda rank, program=start + failing: exec(program, {}), 1)
    for program in (start + loop + end, port):
        malt.simulate(lambda rank, program=program: exec(program, {}), 1)
    resumed, whole = losses(capsys.readouterr().out)
    assert resumed == whole
    assert int(checkpoint.read("train.ckpt").arrays["epoch"]) == 3


def test_a_training_that_is_resumed_has_the_same_bits(tmp_path, monkeypatch, capsys):
    port, loop = small(EXAMPLES["parallel"]), EXAMPLES["resume"].replace("every_s=60", "every_s=0")
    start, end = port[: port.index("w = np.zeros")], "print(w.tobytes().hex())\n"
    monkeypatch.chdir(tmp_path)
    for epoch in (1, 2):
        failing = loop.replace("mine=mine)  # every", f"mine=mine); epoch < {epoch} or 1 / 0  # every")
        assert failing != loop
        with pytest.raises(ZeroDivisionError):
            malt.simulate(lambda rank, program=start + failing: exec(program, {}), 2)
    malt.simulate(lambda rank: exec(start + loop + end, {}), 2)
    Path("train.ckpt").unlink()
    malt.simulate(lambda rank: exec(start + loop + end, {}), 2)
    assert len(set(capsys.readouterr().out.split())) == 1


def test_a_finished_job_run_again_has_the_same_model(tmp_path, monkeypatch, capsys):
    """All ranks have it, though the lowest writes the checkpoint."""
    port, loop = small(EXAMPLES["parallel"]), EXAMPLES["checkpoint"].replace("every_s=60", "every_s=0")
    program = port[: port.index("w = np.zeros")] + loop + port[port.index("print(") :]
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        malt.simulate(lambda rank: exec(program, {}), 2)
    assert len(set(losses(capsys.readouterr().out))) == 1


@pytest.fixture
def evaluated(tmp_path, monkeypatch, capsys):
    """evaluated(example, made): what each of two ranks ends with. They stop early and together, and one says so.

    `made`: the end of the line that makes what exchanges. Work takes no time: by itself it would exchange at each step.
    """

    def evaluated(example, made):
        monkeypatch.chdir(tmp_path)
        assert EXAMPLES[example].count(made + ")\n") == 1
        program = EXAMPLES[example].replace(made + ")\n", made + ", every=20)\n")
        ranks = []
        malt.simulate(lambda rank: ranks.append(exec(program, found := {}) or found), 2)
        assert len(capsys.readouterr().out.splitlines()) == 1
        assert ranks[0]["epoch"] == ranks[1]["epoch"] and ranks[0]["waited"] == 3, "they stop early"
        assert ranks[0]["best"] == ranks[1]["best"] and ranks[0]["score"] == ranks[1]["score"]
        return ranks

    return evaluated


def test_all_ranks_evaluate_one_model_stop_together_and_end_with_the_best(evaluated):
    ranks = evaluated("evaluate", "malt.Replica(w")
    saved = malt.files.load_npz("best.npz")["w"]
    assert all(one["w"].tobytes() == saved.tobytes() for one in ranks)
    losses = np.log1p(np.exp(-ranks[0]["y"] * (ranks[0]["X"] @ saved)))
    assert ranks[0]["best"] == pytest.approx(losses[3000:4000].mean())
    assert ranks[0]["score"]["loss"] == pytest.approx(losses[4000:].mean()) and losses[4000:].mean() < np.log(2)


@pytest.mark.thorough
def test_a_network_of_torch_ends_with_the_best(evaluated):
    torch = pytest.importorskip("torch")
    ranks = evaluated("evaluate-torch", "model.parameters(), lr=0.05, momentum=0.9), model")
    saved = torch.load("best.pt")
    states = [one["model"].state_dict() for one in ranks]
    assert all(torch.equal(state[name], saved[name]) for state in states for name in saved)
    X, y, model = (ranks[0][name] for name in ("X", "y", "model"))
    with torch.no_grad():
        losses = torch.nn.functional.cross_entropy(model(X), y, reduction="none")
    assert ranks[0]["best"] == pytest.approx(losses[3000:4000].mean().item(), rel=1e-5)
    assert ranks[0]["score"] == pytest.approx(losses[4000:].mean().item(), rel=1e-5) and ranks[0]["score"] < 0.5


@pytest.mark.thorough
def test_a_loop_of_scikit_learn_ends_with_the_best(evaluated):
    joblib = pytest.importorskip("joblib")
    ranks = evaluated("evaluate-sklearn", "SGDClassifier(alpha=0.01, random_state=0)")
    saved, X, y = joblib.load("best.joblib"), ranks[0]["X"], ranks[0]["y"]
    assert type(saved).__name__ == "SGDClassifier", "a plain one"
    assert all(one["best_model"].coef_.tobytes() == saved.coef_.tobytes() for one in ranks)
    assert ranks[0]["best"] == pytest.approx(saved.score(X[1000:1400], y[1000:1400]))
    assert ranks[0]["score"] == pytest.approx(saved.score(X[1400:], y[1400:])) and ranks[0]["score"] > 0.8


@pytest.mark.thorough
def test_a_loop_of_numba(capsys):
    pytest.importorskip("numba")
    program = EXAMPLES["numba"]
    malt.simulate(lambda rank: exec(program, {}), 2)
    malt.simulate(lambda rank: exec(program, {}), 1)
    two, one = losses(capsys.readouterr().out)
    assert two == pytest.approx(one, rel=0.1)


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda file: file.name)
def test_what_a_page_names_is_there(file):
    text = DOCUMENTS[file]
    names = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [name for name in names if not (file.parent / name).exists()] == []
    files = re.findall(r"\b(?:[A-Z]+\.md|docs/[\w/]+\.md|examples/\w+\.\w+)\b", text)
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_every_program_that_is_shown_is_tried():
    """By a test that names it; of a program of examples/ test_lines.py says that it is shown as it is."""
    assert sum(text.count("```python") for text in DOCUMENTS.values()) == len(EXAMPLES)
    tests = "".join(file.read_text() for file in Path(__file__).parents[1].rglob("*.py"))
    assert [name for name in EXAMPLES if f'"{name}"' not in tests] == []
