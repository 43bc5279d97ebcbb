"""Gather functions for rows give the results of a loop over rows, and for all rows the bits of whole arrays."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vol.merging import merge
from vol.merging.merge import AVG, MEAN, REPLACE, SUM, WEIGHTED, Own
from vol.sparse import merge as rowmerge
from vol.sparse.merge import ROW_MERGES, RowUpdate, newest_by_row
from vol.sparse.rows import union
from vol.sparse.wire import RowValues
from vol.update import Update

FUNCTIONS = [AVG, MEAN, SUM, REPLACE, WEIGHTED]


def obvious(function, own, updates):
    """Merge one row at a time, in rank order."""
    wide = np.float32 if own.values.dtype == np.float16 else own.values.dtype.type
    result = own.values.copy()
    for row in range(len(result)):
        came = [
            (one, one.content.part(0, len(one.content.rows))[list(one.content.rows).index(row)])
            for one in sorted(updates, key=lambda one: (one.sender, one.step))
            if row in one.content.rows
        ]
        if function not in (MEAN, SUM):
            came = list({one.sender: (one, values) for one, values in came}.values())
        if not came:
            continue
        if function is REPLACE:
            result[row] = max(came, key=lambda one: (one[0].step, one[0].sender))[1]
            continue
        terms = [(one.sender, one.weight, values) for one, values in came]
        terms = sorted([*terms, (own.rank, own.weight, result[row])], key=lambda term: term[0])
        if function is WEIGHTED:
            divisor = sum(weight for _, weight, _ in terms)
            total = sum((values.astype(wide) * wide(weight) for _, weight, values in terms), start=np.zeros(1, wide))
            if divisor > 0:
                result[row] = total / wide(divisor)
            continue
        total = terms[0][2].astype(wide)
        for _, _, values in terms[1:]:
            total = total + values
        count = len({own.rank, *(one.sender for one in updates)} if function is MEAN else terms)
        result[row] = total if function is SUM else (total + wide(0 if function is MEAN else -0.0)) / wide(count)
    return result


def random_updates(rng, n, width, dtype, count, full):
    keys = [(int(sender), int(step)) for sender in (0, 1, 3, 4) for step in rng.permutation(4)]
    updates = []
    for place in rng.permutation(len(keys))[:count]:
        rows = np.arange(n) if full else np.flatnonzero(rng.random(n) < rng.choice([0.1, 0.6]))
        table = (rng.standard_normal((n, width)) * 9).astype(dtype)
        table[rng.random((n, width)) < 0.2] = -0.0
        content = RowValues(rows, table, whole=True) if rng.random() < 0.5 else RowValues(rows, table[rows])
        updates.append(RowUpdate(*keys[place], float(rng.choice([0.0, 0.4, 1.0, 3.0])), content))
    return updates


def table_of(rng, n, width, dtype):
    own = (rng.standard_normal((n, width)) * 9).astype(dtype)
    own[rng.random((n, width)) < 0.3] = -0.0
    return own


@example(AVG, 1, 1, "f4", 1, 1, 2)  # an update of no row
@given(
    st.sampled_from(FUNCTIONS), st.integers(1, 40), st.integers(1, 3), st.sampled_from(["f2", "f4", "f8", "i4"]),
    st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**31),
)  # fmt: skip
def test_the_result_is_that_of_a_loop_over_rows(function, n, width, dtype, count, block, seed):
    rng = np.random.default_rng(seed)
    if function.floating and dtype == "i4":
        return
    own = Own(2, 0.7, 1.0, table_of(rng, n, width, dtype))
    updates = random_updates(rng, n, width, dtype, count, full=False)
    expected = obvious(function, own, updates)
    rows = union([one.content.rows for one in updates], n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rowmerge, "_BLOCK", block)
        ROW_MERGES[function](own, updates, rows)
    assert own.values.tobytes() == expected.tobytes()


@pytest.mark.parametrize("function", FUNCTIONS, ids=repr)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_all_rows_have_the_bits_of_whole_arrays(function, dtype):
    rng = np.random.default_rng(3)
    n, width = merge._BLOCK // 2 + 77, 3
    updates = list({one.sender: one for one in random_updates(rng, n, width, dtype, 9, full=True)}.values())
    assert len(updates) > 2
    own, twin = (Own(2, 0.7, 1.0, table_of(np.random.default_rng(4), n, width, dtype)) for _ in range(2))
    ROW_MERGES[function](own, updates, np.arange(n))
    function.merge(twin, [
        Update(one.sender, one.step, 0, one.weight, 0.5, None, one.content.values) for one in updates
    ])  # fmt: skip
    whole = twin.values + 0.0 if function is MEAN else twin.values  # rows that are not sent may be 0.0 in place of -0.0
    assert own.values.tobytes() == whole.tobytes()


def test_values_of_a_narrower_wire_are_summed_in_the_dtype_of_the_vector():
    own = Own(0, 1.0, 1.0, np.array([[1e6]]))
    SUM_ROWS = ROW_MERGES[SUM]
    SUM_ROWS(own, [RowUpdate(1, 1, 1.0, RowValues(np.array([0]), np.array([[0.5]], np.float16)))], np.array([0]))
    assert own.values[0, 0] == 1e6 + 0.5


def test_an_older_message_counts_for_rows_that_the_newest_lacks():
    def update(sender, step, rows):
        return RowUpdate(sender, step, 1.0, RowValues(np.array(rows), np.full((len(rows), 1), 10.0 * sender + step)))

    left = newest_by_row([update(1, 1, [0, 1, 2]), update(1, 2, [1]), update(1, 3, [2, 3]), update(2, 1, [1, 2])])
    seen = {(one.sender, one.step): one.content.rows.tolist() for one in left}
    assert seen == {(1, 1): [0], (1, 2): [1], (1, 3): [2, 3], (2, 1): [1, 2]}
