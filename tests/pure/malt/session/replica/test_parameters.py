"""Arrays are found where the loop keeps them, or the error names those that have changed."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

from malt.session.replica.parameters import Parameters


def a_dict():
    return {"w": np.zeros(3), "n": np.array(7), "b": np.ones((2, 2), np.float32)}


OTHER = [
    (lambda p: p.pop("b"), r"params\['b'\] was <f4\[2, 2\] when the Replica was created, and is now not there"),
    (lambda p: p.update(c=np.zeros(1)), r"params\['c'\] was not there when the Replica was created, and is now <f8"),
    (lambda p: p.update(w=np.zeros(3, np.float32)), r"params\['w'\] was <f8\[3\] when .*, and is now <f4\[3\]"),
    (lambda p: p.update(n=np.zeros(2, int)), r"params\['n'\] was <i8\[\] when .*, and is now <i8\[2\]"),
    (lambda p: p.update(w=0.0), r"params\['w'\] must be .* numbers, got float: .* as in b = np.zeros\(1\)"),
    (lambda p: p.update(w=np.float64(0)), r"params\['w'\] must be .*, got float64: keep a number in an array of one"),
    (lambda p: p.update(w=np.zeros(6)[::2]), r"params\['w'\] must be C-contiguous"),
]


@pytest.mark.parametrize(("change", "message"), OTHER, ids=[message[:13] for _, message in OTHER])
def test_parameters_that_have_changed(change, message):
    params = a_dict()
    parameters = Parameters(params)
    before = list(parameters.arrays)
    change(params)
    with pytest.raises((TypeError, ValueError), match=message):
        parameters.look_up()
    assert all(one is other for one, other in zip(parameters.arrays, before, strict=True))


def test_entries_are_found_by_keys_not_by_order():
    params = a_dict()
    parameters = Parameters(params)
    params["w"] = params.pop("w") + 5
    parameters.look_up()
    assert [array is params[key] for key, array in zip("wnb", parameters.arrays, strict=True)] == [True] * 3
    assert parameters.by_dtype() == [[0], [2]]


Layer = namedtuple("Layer", "first second third")
STRUCTURES = [dict, OrderedDict, lambda p: list(p.values()), lambda p: tuple(p.values()), lambda p: Layer(*p.values())]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_set_is_given_private_copies_in_the_same_structure(structure):
    given = []
    kept = structure(a_dict())
    parameters = Parameters(lambda: kept, set=given.append)
    for _ in range(2):
        parameters.look_up()
        parameters.deliver()
    first, second = given
    assert type(first) is (dict if isinstance(kept, dict) else type(kept))
    keys = list(kept) if isinstance(kept, dict) else range(3)
    for key in keys:
        assert (first[key] == kept[key]).all() and first[key].dtype == kept[key].dtype
        assert not np.shares_memory(first[key], kept[key]) and not np.shares_memory(first[key], second[key])


def test_with_set_arrays_may_be_read_only():
    given = []
    kept = np.broadcast_to(np.float32(3), (2, 2)).T
    parameters = Parameters(lambda: kept, set=given.append)
    parameters.deliver()
    assert given[0].flags.writeable and given[0].flags.c_contiguous and given[0].tolist() == [[3, 3], [3, 3]]
