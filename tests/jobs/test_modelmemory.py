"""A program refuses a model that does not fit into the memory of its host, in one line, before it is made."""

import pytest

import malt
from apps.harness import BadInput, Need, memory
from apps.mf import program as mf
from apps.mlp import program as mlp
from apps.svm import program as svm

pytestmark = pytest.mark.serial


@pytest.fixture
def free(monkeypatch):
    """free(nbytes): that number of bytes is free from here on."""
    return lambda nbytes: monkeypatch.setattr(malt, "free_memory", lambda: nbytes)


def refusal(program, *arguments, ranks=2):
    with pytest.raises(BadInput) as error:
        malt.simulate(lambda rank: program.run([str(argument) for argument in arguments]), ranks)
    return str(error.value)


@pytest.mark.parametrize("where", ["TRAIN", "--test"])
def test_the_line_of_a_stray_feature_is_named(tmp_path, free, where):
    wide, narrow = tmp_path / "wide.svm", tmp_path / "narrow.svm"
    wide.write_text("# a comment\n1 1:1\n\n-1 2:1\n1 300000000:1\n-1 7:1\n")
    narrow.write_text("1 1:1\n-1 2:1\n")
    free(20_000_000_000)
    words = [wide] if where == "TRAIN" else [narrow, "--test", wide]
    assert refusal(svm, *words) == (
        f"{wide}:5: feature 300,000,000 makes a wide model: 2 ranks of this host need 28.8 GB, and 20.0 GB of memory "
        "are free: correct the line, or take fewer ranks or epochs"
    )


def test_options_that_make_a_large_model_are_named(tmp_path, free):
    pytest.importorskip("sklearn")
    free(1_000_000)
    assert refusal(mlp, "--hidden", "300,300").startswith(
        "--hidden 300,300 makes a network of 112,810 weights: 2 ranks"
    )
    assert "2,000 users and 500 items make a large model of --rank 40: " in refusal(mf, "--rank", 40)


COUNTED = {
    "": 17 + 7,
    "--vector sparse": 23 + 13,
    "--average none": 15 + 5,
    "--graph ring --epochs 2": 9 + 7,
    "--epochs 99": 106 + 7,
    "--epochs 99 --tolerance 0.1": 17 + 7,
}


@pytest.mark.parametrize(("options", "copies"), COUNTED.items())
def test_what_is_counted(tmp_path, monkeypatch, free, options, copies):
    """Copies and waiting messages are counted, and on the lowest rank the models that it measures at the end."""
    data = tmp_path / "data.svm"
    data.write_text("1 1:1\n-1 25000000:1\n")
    free(1_000_000)
    assert f"2 ranks of this host need {copies / 10:.1f} GB" in refusal(svm, data, *options.split())


def test_ranks_of_one_host_share_its_memory(free):
    def live(rank):
        memory.check(Need(10_000_000, "it", "do less"))

    free(20_000_000)
    malt.simulate(live, 2)
    with pytest.raises(ValueError, match=r"it: 3 ranks of this host need 30.0 MB, and 20.0 MB of memory are free: do"):
        malt.simulate(live, 3)
    free(None)
    malt.simulate(live, 3)
