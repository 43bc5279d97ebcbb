"""load_svmlight: the features and labels of a slow twin, in blocks of rows, for all arguments."""

import lzma
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from drawn import given, settings, st
from ranks import run_alone, run_ranks, same_error

from malt.data import cache, dataset
from malt.data.dataset import load_svmlight, open_svmlight
from malt.data.ratings import load_ratings
from malt.data.text import svmlight, text_file
from malt.launch.machine import memory

pytestmark = pytest.mark.usefixtures("user_cache")
serial = pytest.mark.serial


@pytest.fixture
def write(tmp_path):
    def writing(text, name="data.svm"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return writing


@pytest.fixture(params=["mapped", "in memory"])
def kept(request, monkeypatch):
    if request.param == "in memory":

        def refuse(source, kind, place, contents):
            raise PermissionError(13, "Permission denied", place)

        monkeypatch.setattr(cache, "begin", refuse)
    return request.param


def opened(path, *args, **kwargs):
    return run_alone(lambda transport: open_svmlight(path, *args, transport=transport, **kwargs))


def loaded(path, hosts, *args, **kwargs):
    outcomes = run_ranks(lambda transport: load_svmlight(path, *args, transport=transport, **kwargs), hosts)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return outcomes


def failure(path, *args, hosts="aab", load=load_svmlight, **kwargs):
    found = same_error(run_ranks(lambda transport: load(path, *args, transport=transport, **kwargs), hosts))
    assert type(found) is ValueError
    return str(found)


def slow_twin(text, zero_based=None, width=None):
    """Return dense features and signs of valid text with two labels."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    pairs = [[(int(word.split(":")[0]), float(word.split(":")[1])) for word in row[1:]] for row in rows]
    if zero_based is None:
        zero_based = any(index == 0 for row in pairs for index, _ in row)
    base = 0 if zero_based else 1
    width = width or max((index + 1 - base for row in pairs for index, _ in row), default=0)
    features = np.zeros((len(rows), width), np.float32)
    for number, row in enumerate(pairs):
        for index, value in row:
            features[number, index - base] = value
    found = [float(row[0]) for row in rows]
    if len(set(found)) == 1:
        return features, [1.0 if found[0] > 0 else -1.0] * len(found)
    return features, [-1.0 if label == min(found) else 1.0 for label in found]


def check_form(data):
    X = data.X
    assert isinstance(X, scipy.sparse.csr_array) and X.dtype == np.float32 and data.y.dtype == np.float32
    assert X.indices.dtype == np.int32 and X.indptr.dtype == np.int32
    assert X.shape[0] == data.y.size == data.rows.stop - data.rows.start
    assert not any(array.flags.writeable for array in (X.data, X.indices, X.indptr, data.y))
    X.check_format(full_check=True)
    assert X.has_canonical_format and X.has_sorted_indices


TEXT = "1 1:1 3:2.5\n-1 2:1\n1\n-1 1:3 2:4 3:5 7:6\n1 5:-1\n"

# -- rows --------------------------------------------------------------------------------------------------------

FEATURES = st.dictionaries(st.integers(0, 12), st.sampled_from(["1", "0.1", "-2.5e-3", "7"]), max_size=5)


@serial
@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.booleans(), FEATURES), min_size=1, max_size=12),
    st.sampled_from([("-1", "+1"), ("0", "1"), ("1", "2"), ("-7", "3.5")]),
    st.sampled_from(["a", "aa", "aaaab", "aba"]),
)
def test_rows_are_those_of_the_slow_twin(tmp_path_factory, rows, labels, hosts):
    text = "".join(
        labels[label] + "".join(f" {index}:{value}" for index, value in sorted(row.items())) + "\n"
        for label, row in rows
    )
    path = tmp_path_factory.mktemp("any") / "data.svm"
    path.write_text(text)
    features, signs = slow_twin(text)
    parts = loaded(str(path), hosts)
    n, size = len(rows), len(hosts)
    for rank, part in enumerate(parts):
        check_form(part)
        assert part.rows == slice(rank * n // size, (rank + 1) * n // size)
        assert np.array_equal(part.X.toarray(), features[part.rows])
        assert part.y.tolist() == signs[part.rows]
    whole = opened(str(path))
    check_form(whole)
    assert np.array_equal(whole.X.toarray(), features) and whole.y.tolist() == signs and whole.rows == slice(0, n)


@serial
@pytest.mark.parametrize("hosts", ["a", "aaa", "ab", "aaaaaaab"])
def test_ranks_have_blocks_of_rows(write, kept, hosts):
    path = write(TEXT)
    features, signs = slow_twin(TEXT)
    for part in loaded(path, hosts):
        check_form(part)
        assert part.X.shape[1] == 7
        assert np.array_equal(part.X.toarray(), features[part.rows]) and part.y.tolist() == signs[part.rows]


@serial
@pytest.mark.parametrize("name", ["a9a", "rcv1-ccat"])
def test_real_data_is_read_as_by_scikit_learn(data, tmp_path, name):
    load = pytest.importorskip("sklearn.datasets").load_svmlight_file
    path = tmp_path / "test.svm"
    path.write_bytes(lzma.decompress((data / name / "test.svm.xz").read_bytes()))
    features, labels = load(str(path))
    for _ in range(2):
        whole = opened(str(path))
        check_form(whole)
        assert whole.X.shape == features.shape and not whole.zero_based and whole.labels == (-1, 1)
        assert np.array_equal(whole.X.data, features.data.astype(np.float32))
        assert np.array_equal(whole.X.indices, features.indices) and np.array_equal(whole.X.indptr, features.indptr)
        assert np.array_equal(whole.y, labels)


@serial
def test_mapped_features_are_not_copied(write):
    path = write(TEXT)
    for data in [opened(path), *loaded(path, "aaaaa")]:
        for array in (data.X.data, data.X.indices):
            owner = array
            while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
                owner = owner.base
            assert isinstance(owner, np.memmap)


@serial
def test_a_rank_does_not_keep_the_rows_of_others_in_memory(write, monkeypatch):
    monkeypatch.setattr(cache, "places", lambda path: [f"{path}/none", f"{path}/either"])  # no folders
    for data in loaded(write(TEXT), "aaa"):
        assert data.X.data.base is None
        assert data.X.indices.base is None


@serial
def test_indices_stay_32_bit_beside_a_64_bit_indptr():
    nonzeros = 2**31 + 5
    ones = np.broadcast_to(np.float32(1), nonzeros)
    X = dataset._csr(ones, np.broadcast_to(np.int32(0), nonzeros), np.array([0, nonzeros]), 1)
    assert X.indptr.dtype == np.int64 and X.indptr[-1] == X.nnz == nonzeros
    assert X.indices.dtype == np.int32 and X.data is ones


@serial
def test_features_work_as_any_sparse_matrix(write):
    data, (features, _) = opened(write(TEXT)), slow_twin(TEXT)
    weights = np.arange(7, dtype=np.float32)
    assert np.array_equal(data.X @ weights, features @ weights)
    assert np.array_equal(data.X.T @ data.y, features.T @ data.y)
    assert np.array_equal(data.X[1:4].toarray(), features[1:4])
    assert np.array_equal(data.X[[3, 0]].toarray(), features[[3, 0]])


@serial
def test_the_second_load_parses_nothing_whatever_its_arguments(write, monkeypatch):
    path = write(TEXT)
    opened(path)
    monkeypatch.setattr(svmlight, "read_part", lambda *_: pytest.fail("parsed again"))
    assert opened(path, 20).X.shape == (5, 20)
    assert opened(path, zero_based=True).X.shape == (5, 8)
    assert opened(path, labels=(1, -1)).y.tolist() == [-1, 1, -1, 1, -1]
    assert sum(part.y.size for part in loaded(path, "aab")) == 5


# -- columns -----------------------------------------------------------------------------------------------------


@serial
def test_the_base_is_zero_if_index_zero_occurs(write):
    text = "1 1:1 2:1\n-1 0:5 1:1\n"
    data = opened(write(text))
    assert data.zero_based and data.X.toarray().tolist() == [[0, 1, 1], [5, 1, 0]]
    text = "1 1:1 2:1\n-1 1:5 3:1\n"
    data = opened(write(text))
    assert not data.zero_based and data.X.toarray().tolist() == [[1, 1, 0], [5, 0, 1]]


@serial
@pytest.mark.parametrize("hosts", ["a", "ab", "aaaaa"])
def test_the_base_can_be_set(write, kept, hosts):
    for part in loaded(write(TEXT), hosts, zero_based=True):
        check_form(part)
        assert part.zero_based
        assert np.array_equal(part.X.toarray(), slow_twin(TEXT, zero_based=True)[0][part.rows])
    for part in loaded(write(TEXT), hosts, zero_based=False):
        assert np.array_equal(part.X.toarray(), slow_twin(TEXT)[0][part.rows])
    text = "1 0:1\n-1 4:1\n"
    assert opened(write(text, "zero.svm"), zero_based=True).X.shape == (2, 5)
    assert failure(write(text, "zero.svm"), zero_based=False, hosts=hosts).endswith(
        "zero.svm: feature 0 is in the file, so it cannot be read with zero_based=False"
    )


@serial
@pytest.mark.parametrize("text, zero_based, needed", [("1 9:1\n-1 1:1\n", False, 9), ("1 9:1\n-1 0:1\n", True, 10)])
def test_the_number_of_features(write, kept, text, zero_based, needed):
    path = write(text)
    assert opened(path).X.shape == (2, needed)
    for width in (needed, np.int64(needed + 5), 2**31 - 1):
        data = opened(path, width)
        check_form(data)
        assert data.X.shape == (2, width) and data.X[:, :needed].toarray()[0, -1] == 1
    counted = "feature 9, counted from 0," if zero_based else "feature 9, counted from 1,"
    for width in (1, needed - 1):
        assert failure(path, width) == f"{path}: n_features is {width}, but {counted} is in the file: it takes {needed}"


@serial
def test_the_largest_index(write):
    path = write("1 2147483646:1\n-1 0:1\n")
    data = opened(path)
    assert data.X.shape == (2, 2**31 - 1) and data.X.indices.tolist() == [2**31 - 2, 0]


def brute_force(lines):
    """Return the first line, from 1, with the largest index."""
    indices = [[int(pair.split(":")[0]) for pair in line.partition("#")[0].split()[1:]] for line in lines]
    largest = max((index for some in indices for index in some), default=None)
    return next((number for number, some in enumerate(indices, 1) if largest in some), 0)


@serial
@pytest.mark.parametrize("hosts", ["a", "aab", "aaaaa"])
@pytest.mark.parametrize("seed", range(4))
def test_the_line_of_the_largest_feature(write, kept, monkeypatch, hosts, seed):
    monkeypatch.setattr(text_file, "CHUNK_NBYTES", 64)
    rng = np.random.default_rng(seed)
    blank = ["", "  ", "# 1 99:1", "1 # 2:3", "-1"]
    lines = [f"1 {rng.integers(9)}:1 {9 + rng.integers(seed + 2)}:1 # {k}" for k in range(40)]
    for place in rng.integers(0, 40, 10 * (seed % 3)):
        lines.insert(place, blank[place % len(blank)])
    path = write("\n".join(lines))
    for _ in range(2):  # parsed, and from the cache
        assert {part.largest_line for part in loaded(path, hosts)} == {brute_force(lines)}


@serial
def test_a_feature_that_looks_stray_is_warned_about_once(write):
    path = write("1 1:1\n\n-1 3:1\n1 300000000:1\n-1 2:1\n")
    with pytest.warns(RuntimeWarning) as caught:
        loaded(path, "aab")
    assert [str(one.message) for one in caught] == [
        f"{path}:4: feature 300,000,000 makes 300,000,000 columns, and there are only 4 non-zeros in the file: correct "
        "the line, or pass n_features=300000000"
    ]
    assert loaded(path, "aab", 300_000_000)[0].X.shape[1] == 300_000_000  # a warning would be an error here
    assert opened(path).X.shape[1] == 300_000_000


@serial
def test_models_that_do_not_fit_are_warned_about(write, monkeypatch):
    path = write("1 0:1\n-1 1000000:1\n")
    monkeypatch.setattr(memory, "free_memory", lambda: 41_000_000)
    loaded(path, "aab")
    monkeypatch.setattr(memory, "free_memory", lambda: 39_000_000)
    warning = f"{path}:2: feature 1,000,000 makes 1,000,001 columns, models of which, one a rank, take 40.0 MB"
    with pytest.warns(RuntimeWarning, match=warning):
        loaded(path, "aab")


@serial
@pytest.mark.parametrize("hosts", ["a", "aab"])
def test_rows_without_features(write, hosts):
    for part in loaded(write("1\n-1\n"), hosts):
        assert part.X.shape[1] == 0 and part.X.nnz == 0
    for part in loaded(write("1\n-1\n"), hosts, 5, zero_based=True):
        assert part.X.shape[1] == 5 and part.zero_based


# -- labels ------------------------------------------------------------------------------------------------------


@serial
@pytest.mark.parametrize(
    "written, signs, labels",
    [
        ("-1 1 1", [-1, 1, 1], (-1, 1)),
        ("+1 -1 +1", [1, -1, 1], (-1, 1)),
        ("0 1 0", [-1, 1, -1], (0, 1)),
        ("2 1 1", [1, -1, -1], (1, 2)),
        ("16777217 16777216 16777217", [1, -1, 1], (16777216, 16777217)),
        ("1.5 -2.5 1.5", [1, -1, 1], (-2.5, 1.5)),
        ("1 1 1", [1, 1, 1], (1,)),
        ("5 5 5", [1, 1, 1], (5,)),
        ("0 0 0", [-1, -1, -1], (0,)),
        ("-1 -1 -1", [-1, -1, -1], (-1,)),
        ("-0 0 1", [-1, -1, 1], (0, 1)),
    ],
)
@pytest.mark.parametrize("hosts", ["a", "aab"])
def test_labels_become_signs(write, written, signs, labels, hosts):
    for part in loaded(write("".join(f"{label} 1:1\n" for label in written.split())), hosts):
        assert part.y.tolist() == signs[part.rows] and part.labels == labels


@serial
def test_test_data_is_read_as_the_training_data_was(write):
    train = opened(write("1 0:1 9:1\n2 3:1\n", "train.svm"))
    test = opened(
        write("1 3:1\n1 4:1\n", "test.svm"), train.X.shape[1], zero_based=train.zero_based, labels=train.labels
    )
    assert test.y.tolist() == [-1, -1] and test.X.shape == (2, 10) and test.X.indices.tolist() == [3, 4]


@serial
def test_labels_can_be_set(write):
    path = write("3 1:1\n4 1:1\n")
    assert opened(path, labels=(3, 4)).y.tolist() == [-1, 1]
    assert opened(path, labels=np.array([4, 3])).y.tolist() == [1, -1]
    assert failure(path, labels=(3, 5)) == f"{path}: row 1, counted from 0, has label 4, which is not one of 3, 5"
    assert failure(path, labels=[3.5]) == f"{path}: row 0, counted from 0, has label 3, which is not one of 3.5"


@serial
@pytest.mark.parametrize(
    "written, labels",
    [
        ("3 1 2", None),
        ("5 4.5 -3 1 5", None),
        (" ".join(map(str, range(1000))), None),
        ("0 1 0", "raw"),
        ("7 7", "raw"),
    ],
)
@pytest.mark.parametrize("hosts", ["a", "aab"])
def test_labels_as_in_the_file(write, written, labels, hosts):
    """The labels are kept if there are more than two, or with "raw". Test data keeps those of the training data."""
    path = write("".join(f"{label} 1:1\n" for label in written.split()))
    for part in loaded(path, hosts, None, labels):
        assert part.y.tolist() == [float(word) for word in written.split()][part.rows]
        assert part.y.dtype == np.float32 and not part.y.flags.writeable and part.labels == "raw"
    test = opened(write("2 1:1\n1 1:1\n", "test.svm"), 1, part.labels)
    assert test.y.tolist() == [2, 1]


@serial
def test_labels_that_are_too_large_for_float32(write):
    path = write("1 1:1\n2 1:1\n1e39 1:1\n")
    assert failure(path) == f"{path}: row 2, counted from 0, has label 1e+39, which is too large for float32"


@serial
def test_labels_that_float32_would_round(write):
    """16777216 and 16777217 were one class. Other numbers than integers are rounded, as everywhere."""
    path = write("1 1:1\n16777216 1:1\n-16777217 1:1\n")
    where = f"{path}: row 2, counted from 0, has label -16777217"
    assert failure(path) == f"{where}, which float32 rounds to -16777216: use smaller numbers"
    assert opened(write("0.1 1:1\n1e9 1:1\n16777218 1:1\n", "kept.svm")).y.tolist() == [np.float32(0.1), 1e9, 2**24 + 2]
    assert opened(write("16777216 1:1\n16777217 1:1\n", "two.svm")).y.tolist() == [-1, 1]


# -- arguments ---------------------------------------------------------------------------------------------------


@serial
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"n_features": 0}, "n_features must be an integer from 1 to 2147483647, got 0"),
        ({"n_features": 2**31}, "n_features must be an integer from 1 to 2147483647, got 2147483648"),
        ({"n_features": 1.5}, "n_features must be an integer from 1 to 2147483647, got 1.5"),
        ({"n_features": "7"}, "n_features must be an integer from 1 to 2147483647, got '7'"),
        ({"n_features": True}, "n_features must be an integer from 1 to 2147483647, got True"),
        ({"zero_based": "auto"}, "zero_based must be True, False or None, got 'auto'"),
        ({"labels": "row"}, "or the only one, got 'row'; 'raw' leaves them as in the file"),
        ({"labels": ()}, "labels must be the two that become -1 and +1, or the only one, got ()"),
        ({"labels": 3}, "labels must be the two that become -1 and +1, or the only one, got 3"),
        ({"labels": ["a", "b"]}, "labels must be the two that become -1 and +1, or the only one, got ['a', 'b']"),
        ({"labels": (1, 1)}, "labels must be the two that become -1 and +1, or the only one, got (1, 1)"),
        ({"labels": (1, 2, 3)}, "labels must be the two that become -1 and +1, or the only one, got (1, 2, 3)"),
        ({"labels": (0, float("nan"))}, "labels must be the two that become -1 and +1, or the only one, got (0, nan)"),
    ],
)
def test_bad_arguments(write, arguments, message):
    assert message in failure(write(TEXT), **arguments)


@serial
@pytest.mark.parametrize("load", [load_svmlight, load_ratings])
@pytest.mark.parametrize("bad", [None, 3.5, ["a.svm"]])
def test_what_is_not_a_path(bad, load):
    assert f"{load.__name__}: path must be a string or a path, got {bad!r}" in failure(bad, load=load)


@serial
@pytest.mark.parametrize("different", ["path", "n_features", "zero_based", "labels"])
def test_arguments_that_differ_between_ranks(write, different):
    arguments = {"path": write(TEXT), "n_features": 9, "zero_based": False, "labels": (-1, 1)}
    other = {"path": write(TEXT, "other.svm"), "n_features": 10, "zero_based": None, "labels": None}

    def call(transport):
        changes = {different: other[different]} if transport.rank == 1 else {}
        return load_svmlight(**{**arguments, **changes}, transport=transport)

    found = same_error(run_ranks(call, "aab"))
    assert type(found) is ValueError and f"disagree on {different}" in str(found)


@serial
@pytest.mark.parametrize("kind", [str, os.fsencode, Path])
def test_paths_of_any_kind(write, kind):
    assert opened(kind(write(TEXT))).X.shape == (5, 7)


# -- real ranks --------------------------------------------------------------------------------------------------


def test_the_ranks_of_this_world_share_a_file(tmp_path):
    session = pytest.importorskip("malt.session.session")
    transport = session.world().transport
    path = os.fsdecode(transport.allgather(os.fsencode(tmp_path / "data.svm"))[0])
    if transport.rank == 0:
        with open(path, "w") as file:
            file.write(TEXT)
    transport.barrier()
    features, signs = slow_twin(TEXT)
    for _ in range(2):
        part = load_svmlight(path, transport=transport)
        whole = open_svmlight(path, transport=transport)
        assert np.array_equal(part.X.toarray(), features[part.rows]) and part.y.tolist() == signs[part.rows]
        assert np.array_equal(whole.X.toarray(), features) and whole.y.tolist() == signs
    transport.barrier()
