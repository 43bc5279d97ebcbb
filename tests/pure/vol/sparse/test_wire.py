"""The wire format of rows: encoded and decoded, and invalid messages refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vol.rounding import narrow
from vol.sparse import wire
from vol.sparse.wire import AGED, ROWS, WHOLE, RowFormat, RowValues, Staging, decode, encode, encode_rows

DTYPES = ["f2", "f4", "f8", "i1", "u8"]


def form(n, width, dtype="f4", capacity=None):
    return RowFormat(n, width, np.dtype(dtype), n if capacity is None else capacity)


def joined(encoded):
    payload = np.concatenate([encoded.body, encoded.tail])
    assert payload.nbytes == encoded.nbytes
    return payload


def random_table(rng, n, width, dtype):
    return rng.integers(0, 256, n * width * np.dtype(dtype).itemsize, np.uint8).view(dtype).reshape(n, width)


def values_of(content):
    return content.part(0, len(content.rows))


@given(
    st.integers(1, 70), st.integers(1, 5), st.sampled_from(DTYPES), st.floats(0, 1), st.integers(0, 2**31)
)  # fmt: skip
def test_decode_returns_what_encode_was_given(n, width, dtype, density, seed):
    rng = np.random.default_rng(seed)
    table = random_table(rng, n, width, dtype)
    rows = np.flatnonzero(rng.random(n) < density)
    rows = rows if rows.size else np.array([n - 1])
    shape = form(n, width, dtype)
    encoded = encode(shape, rows, table, Staging())
    content = decode(shape, encoded.encoding, joined(encoded))
    assert content.rows.tolist() == rows.tolist()
    assert values_of(content).tobytes() == table[rows].tobytes()
    start, stop = len(rows) // 3, len(rows) // 2
    assert content.part(start, stop).tobytes() == table[rows[start:stop]].tobytes()
    as_rows = len(rows) * (shape.row_nbytes + 4)
    as_whole = n * shape.row_nbytes + -(-n // 8)
    assert encoded.nbytes == min(as_rows, as_whole) <= shape.slot_nbytes
    assert encoded.encoding & 255 == (WHOLE if as_whole < as_rows else ROWS)


def test_a_whole_array_is_not_copied():
    table = np.ones((100, 3), np.float32)
    encoded = encode(form(100, 3), np.arange(80), table, Staging())
    assert encoded.encoding & 255 == WHOLE and np.shares_memory(encoded.body, table)


def test_row_numbers_have_64_bits_if_32_do_not_suffice():
    assert form(2**32, 1).index == np.uint32
    long = form(2**32 + 1, 1, capacity=2)
    payload = np.concatenate([np.ones(2, np.float32).view(np.uint8), np.array([5, 2**32]).view(np.uint8)])
    assert decode(long, 2 << 8 | ROWS, payload).rows.tolist() == [5, 2**32]
    assert long.slot_nbytes == 2 * (4 + 8)


def message(n=8, width=2, rows=(1, 3, 6), capacity=None):
    encoded = encode(form(n, width), np.array(rows), np.ones((n, width), np.float32), Staging())
    return form(n, width, capacity=capacity), encoded.encoding, joined(encoded)


@pytest.mark.parametrize("scaled", [False, True])
def test_rows_of_several_steps_have_ages(scaled):
    shape = RowFormat(2000, 2, np.dtype("i1" if scaled else "f4"), 2000, scaled)
    count = shape.aged_capacity
    assert shape.aged_nbytes(count) <= shape.slot_nbytes < shape.aged_nbytes(count + 1)
    rows, ages = np.arange(count), np.arange(count, dtype=np.uint32) % 3 * 1000
    values = np.ones((count, 2), np.float32) * rows[:, None] % 7
    encoding, payload = encode_rows(shape, RowValues(rows, values, ages=ages))
    assert encoding == count << 8 | AGED and payload.nbytes == shape.aged_nbytes(count)
    content = decode(shape, encoding, payload)
    parts = {age: (part.rows.tolist(), part.values.round(3).tolist(), part.ages) for age, part in content.by_age()}
    assert list(parts) == [2000, 1000, 0]
    for age, found in parts.items():
        assert found == (rows[ages == age].tolist(), values[ages == age].tolist(), None)
    assert content.without(rows[1:]).ages.tolist() == [0]
    for bad in (payload[:-1], payload[:-4], payload[: shape.rows_nbytes(count)], np.append(payload, payload[:4])):
        assert decode(shape, encoding, bad) is None
    assert decode(shape, encoding - (1 << 8), payload) is None
    payload[shape.row_nbytes * count :][:8] = 0
    assert decode(shape, encoding, payload) is None


def test_invalid_messages_are_refused():
    shape, encoding, payload = message()
    assert decode(shape, encoding, payload) is not None
    for bad in (0, ROWS, WHOLE, encoding ^ 3, encoding + (1 << 8), encoding - (1 << 8), -encoding, encoding | 1 << 62):
        assert decode(shape, bad, payload) is None, bad
    for bad in (payload[:-1], payload[:-4], np.append(payload, np.zeros(4, np.uint8)), payload[:0]):
        assert decode(shape, encoding, bad) is None
    assert decode(form(8, 2, capacity=2), encoding, payload) is None
    assert decode(form(8, 3), encoding, payload) is None


@pytest.mark.parametrize("numbers", [(1, 3, 8), (1, 3, 3), (3, 1, 6), (1, 3, 2**32 - 1)])
def test_bad_row_numbers_are_refused(numbers):
    shape, encoding, payload = message()
    payload[-12:] = np.array(numbers, np.uint32).view(np.uint8)
    assert decode(shape, encoding, payload) is None


@pytest.mark.parametrize(
    "marks", [(0b1111_1111, 0b001), (0b1111_1111, 0b111), (0b1111_1111, 0b1010), (0, 0)],
    ids=["fewer than announced", "more", "beyond the last row", "none"],
)  # fmt: skip
def test_bad_marks_are_refused(marks):
    shape, encoding, payload = message(n=11, rows=range(10))
    assert encoding & 255 == WHOLE and payload[-2:].tolist() == [0b1111_1111, 0b11]
    assert decode(shape, encoding, payload) is not None
    payload[-2:] = marks
    assert decode(shape, encoding, payload) is None


@given(st.integers(1, 40), st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**31))
def test_rows_without_others(n, some, others, seed):
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((n, 2))
    rows, out = np.flatnonzero(rng.random(n) < some), np.flatnonzero(rng.random(n) < others)
    kept = np.setdiff1d(rows, out)
    for content in (RowValues(rows, table[rows]), RowValues(rows, table, whole=True)):
        left = content.without(out)
        assert left.rows.tolist() == kept.tolist()
        assert values_of(left).tobytes() == table[kept].tobytes()


class TestNarrowWire:
    def test_values_are_rounded(self):
        rng = np.random.default_rng(0)
        table = rng.standard_normal((50, 3))
        for rows in (np.array([7, 9]), np.arange(45)):
            encoded = encode(form(50, 3, "f2"), rows, table, Staging())
            content = decode(form(50, 3, "f2"), encoded.encoding, joined(encoded))
            assert (values_of(content) == table[rows].astype(np.float16)).all()

    @pytest.mark.parametrize("rows", [[3], list(range(8))], ids=["rows", "whole"])
    def test_a_value_out_of_range_is_an_error_or_becomes_the_largest(self, rows):
        table = np.ones((10, 2))
        table[3, 1], table[2, 0], table[9] = -1e6, np.inf, 1e9
        shape = form(10, 2, "f2")
        with pytest.raises(ValueError, match="rows hold values beyond the largest of float16: got 3$"):
            encode(shape, np.array(rows), table, Staging())
        encoded = encode(shape, np.array(rows), table, Staging(), saturate=True)
        assert values_of(decode(shape, encoded.encoding, joined(encoded)))[rows.index(3)].tolist() == [1, -65504]

    def test_infinity_and_nan_are_unchanged(self):
        out = np.empty(4, np.float16)
        narrow(np.array([np.inf, -np.inf, np.nan, 1e300]), out)
        assert out.tolist()[:2] == [np.inf, -np.inf] and np.isnan(out[2]) and out[3] == 65504


class TestScaledRows:
    FORM = RowFormat(50, 8, np.dtype("i1"), 50, scaled=True)

    @pytest.mark.parametrize("dtype", ["f4", "f8"])
    @pytest.mark.parametrize("rows", [[7, 9], list(range(45))], ids=["rows", "whole"])
    def test_receivers_read_what_as_read_says(self, dtype, rows):
        table = np.random.default_rng(0).standard_normal((50, 8)).astype(dtype)
        table[7] = 0
        encoded = encode(self.FORM, np.array(rows), table, Staging())
        values = values_of(decode(self.FORM, encoded.encoding, joined(encoded)))
        assert values.tobytes() == wire.as_read(self.FORM, table[rows]).tobytes()
        assert (np.abs(values - table[rows]).max(axis=1) <= np.abs(table[rows]).max(axis=1) / 253).all()
        assert encoded.nbytes == (2 * (8 + 4 + 4) if len(rows) == 2 else 50 * (8 + 4) + 7)

    def test_numbers_at_the_limits(self):
        rows = np.array([[0, 0], [1, np.nan], [np.inf, 1], [1e300, -1], [1e-45, -0.0], [3.0, -3.0]])
        form = RowFormat(6, 2, np.dtype("i1"), 6, scaled=True)
        values = wire.as_read(form, rows)
        assert np.isnan(values[1:3]).all() and (values[[0, 4]] == 0).all()
        assert values[3, 0] > 3e38 and values[5].tolist() == [3, -3]
        with pytest.raises(ValueError, match="beyond the largest of int8, with a scale of float32: got 3"):
            encode(form, np.array([3]), rows, Staging())
