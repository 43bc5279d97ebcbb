"""How kernels are compiled or interpreted, and what is said of that."""

import subprocess
import sys

import numba
import pytest

import malt
from malt.kernels import compiler, compiling
from malt.kernels.compiling import Kernels, compile_first


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(compiling, "_said", {""})
    for name in ("slowest", "are_cached"):
        monkeypatch.setattr(Kernels, name, getattr(Kernels, name))


@pytest.fixture
def hidden(monkeypatch):
    monkeypatch.setattr(compiler, "TROUBLE", "numba is hidden")
    monkeypatch.setattr(compiler, "REMEDY", "show it")


def inverse(x):
    return 1 / x


def test_without_numba_kernels_are_the_functions_themselves(hidden):
    kernel = Kernels(slower=30)
    assert kernel()(inverse) is inverse
    assert kernel(interpreted=abs)(inverse) is abs
    made = kernel(compiler.types.f8)(inverse)
    kernel.compile()
    assert made(0.0) == float("inf")  # as compiled kernels divide


def test_kernels_that_are_not_made_for_it_say_what_they_need(hidden):
    with pytest.raises(ImportError, match="^these kernels need a compiler: numba is hidden: show it$") as caught:
        Kernels()
    assert caught.value.name == "numba"


def test_the_lowest_rank_says_once_how_much_slower_they_are(hidden, capsys):
    def live(rank):
        for slower in (30, 200, 20):
            compile_first(Kernels(slower=slower).compile)

    malt.simulate(live, 3)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "malt: numba is hidden: kernels run interpreted, up to 200 times slower: show it"
    malt.simulate(live, 3)
    assert not capsys.readouterr().err


def test_without_a_folder_for_its_cache_all_ranks_compile_at_once(monkeypatch, capsys):
    """Containers have another user than the files, and no home folder."""
    monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
    kernel, calls = Kernels(), {rank: [] for rank in range(3)}
    made = kernel(compiler.types.f8)(inverse)
    monkeypatch.setattr(compiling, "barrier", lambda: [calls[malt.rank()].append("barrier"), malt.barrier()])
    malt.simulate(lambda rank: compile_first(lambda: [kernel.compile(), calls[rank].append("compile")]), 3)
    assert made(4.0) == 0.25 and all(those == ["compile", "barrier", "barrier"] for those in calls.values())
    assert capsys.readouterr().err == (
        "malt: numba has no writable folder for its cache: each rank compiles its kernels again: set "
        "NUMBA_CACHE_DIR to a folder of your own\n"
    )
    assert not compiler.has_cache()


def test_a_full_disk_is_no_failure(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    kernel = Kernels()
    made = kernel(compiler.types.f8)(inverse)
    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "save", full)
    kernel.compile()
    assert made(4.0) == 0.25 and not Kernels.are_cached


@pytest.mark.parametrize("text, trouble, remedy", [
    ("raise ImportError('Numba needs NumPy 2.2 or less.\\nMore.')",
     "numba cannot be imported (Numba needs NumPy 2.2 or less.)", "pip install --upgrade numba"),
    ("import llvmlite_lost", "llvmlite_lost is not installed", "pip install llvmlite_lost"),
])  # fmt: skip
def test_why_numba_cannot_be_imported(tmp_path, monkeypatch, text, trouble, remedy):
    (tmp_path / "numba.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "numba")
    assert compiler._found()[1:] == (trouble, remedy)


def test_numba_that_does_not_compile_is_no_compiler(monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert compiler._found()[1:] == ("NUMBA_DISABLE_JIT is set", "unset it")


def test_all_kernels_load_without_numba():
    program = (
        "import sys; sys.modules['numba'] = None; from malt.models import factors, linear, trees;"
        "from malt.models.networks import sparse; import apps.kmeans.kernels, apps.lda.kernels;"
        "import apps.embed.kernels; linear.compile_kernels(); factors.train_kernel(3); trees.compile_kernels();"
        "sparse.compile_kernels(); apps.lda.kernels.compile_kernels()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
