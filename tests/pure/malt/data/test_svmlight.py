"""The fast reader agrees with the careful one or leaves the text to it; the careful one follows the grammar."""

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from malt.data.text import svmlight, text_file
from malt.data.text.svmlight import BadLine, parse, read_part


def plain(rows):
    """Rows as (label, {index: value}), and the arrays checked."""
    assert (rows.labels.dtype, rows.indptr.dtype, rows.indices.dtype, rows.values.dtype) == (
        np.float64, np.int64, np.int32, np.float32,
    )  # fmt: skip
    assert rows.indptr[0] == 0 and rows.indptr[-1] == rows.indices.size == rows.values.size
    found = []
    for label, begin, end in zip(rows.labels, rows.indptr[:-1], rows.indptr[1:], strict=True):
        indices = rows.indices[begin:end].tolist()
        assert indices == sorted(set(indices))
        found.append((float(label), dict(zip(indices, rows.values[begin:end].tolist(), strict=True))))
    return found


def single(text):
    return float(np.float32(float(text)))


def same(one, other):
    return plain(one) == plain(other) and one.values.tobytes() == other.values.tobytes()

LEGAL = {
    "plain": (b"1 1:2 3:4.5\n-1 2:1\n", [(1, {1: 2, 3: 4.5}), (-1, {2: 1})]),
    "zero-based": (b"+1 0:.5 7:5.\n", [(1, {0: 0.5, 7: 5})]),
    "label alone": (b"1\n-1\n+1 1:1\n", [(1, {}), (-1, {}), (1, {1: 1})]),
    "spaces": (b"  1   1:2\t\t3:4 \t \n\t-1\t1:1\r\n", [(1, {1: 2, 3: 4}), (-1, {1: 1})]),
    "other white space": (b"1\x0b1:2\x0c3:4\n", [(1, {1: 2, 3: 4})]),
    "blank lines": (b"\n\n1 1:2\n\n \n\r\n-1 1:1\n\n", [(1, {1: 2}), (-1, {1: 1})]),
    "comments": (b"# head\n1 1:2 # 3:4\n-1 1:1#\xff\x00\n#\n", [(1, {1: 2}), (-1, {1: 1})]),
    "queries": (b"1 qid:3 1:2\n2 qid:4\n3 1:2 qid:5 3:4\n", [(1, {1: 2}), (2, {}), (3, {1: 2, 3: 4})]),
    "exponents": (b"1e0 1:1e-3 2:2E+2 3:-3.5e0\n", [(1, {1: single("1e-3"), 2: 200, 3: -3.5})]),
    "signs": (b"+1 1:+2 2:-2\n-1.5 1:-.5\n", [(1, {1: 2, 2: -2}), (-1.5, {1: -0.5})]),
    "descending": (b"1 9:1 3:2 5:3\n-1 2:2 1:1\n", [(1, {3: 2, 5: 3, 9: 1}), (-1, {1: 1, 2: 2})]),
    "zeros": (b"1 01:0 002:0.0\n", [(1, {1: 0, 2: 0})]),
    "long zeros": (b"1 000000000000000000001:1\n", [(1, {1: 1})]),
    "largest index": (b"1 2147483646:1\n", [(1, {2147483646: 1})]),
    "tiny": (b"1 1:1e-50 2:1e-45\n", [(1, {1: 0, 2: single("1e-45")})]),
    "nothing": (b"\n", []),
}


@pytest.mark.parametrize("name", LEGAL)
@pytest.mark.parametrize("read", [parse, svmlight._read_lines])
def test_legal_text_is_read(name, read):
    text, rows = LEGAL[name]
    assert plain(read(text)) == rows


@pytest.mark.parametrize("name", sorted(set(LEGAL) - {"other white space", "long zeros"}))
def test_usual_text_is_read_fast(name):
    assert svmlight._read_chunk(LEGAL[name][0]) is not None


ILLEGAL = {
    b"1 1:2:3": "value '2:3' of feature 1 is not a number",
    b"1 1: 2": "feature 1 has no value",
    b"1 1 :2": "'1' is not index:value",
    b"1 :2": "index '' is not an integer",
    b"1 1:2 3": "'3' is not index:value",
    b"1 1:2 3:": "feature 3 has no value",
    b"1 a:1": "index 'a' is not an integer",
    b"1 1.0:1": "index '1.0' is not an integer",
    b"1 +1:1": "index '+1' is not an integer",
    b"1 -1:1": "index '-1' is negative",
    b"1 -0:1": "index '-0' is negative",
    b"1 1_0:2": "index '1_0' is not an integer",
    b"1 10:2_0": "value '2_0' of feature 10 is not a number",
    b"1 1:0x10": "value '0x10' of feature 1 is not a number",
    b"1 1:nan": "value 'nan' of feature 1 is not finite",
    b"1 1:1e400": "value '1e400' of feature 1 is not finite",
    b"1 1:1e39": "value '1e39' of feature 1 is too large for float32",
    b"1 1:--1": "value '--1' of feature 1 is not a number",
    b"1 1:1e": "value '1e' of feature 1 is not a number",
    b"1 1:.": "value '.' of feature 1 is not a number",
    b"1 1:1-2": "value '1-2' of feature 1 is not a number",
    b"1 1:2,3:4": "value '2,3:4' of feature 1 is not a number",
    b"1 2147483647:1": "index '2147483647' is larger than 2147483646",
    b"1 99999999999999999999:1": "index '99999999999999999999' is larger than 2147483646",
    b"1 3:1 3:1": "feature 3 is there twice",
    b"1 3:1 2:1 3:0": "feature 3 is there twice",
    b"nan 1:1": "label 'nan' is not finite",
    b"1e999 1:1": "label '1e999' is not finite",
    b"x 1:1": "label 'x' is not a number",
    b"1,2 1:1": "label '1,2' is not a number",
    b"1:1 2:2": "label '1:1' is not a number",
    b" 1:1 2:2": "label '1:1' is not a number",
    b"qid:1 1:1": "label 'qid:1' is not a number",
    b" qid:1 1 1:1": "label 'qid:1' is not a number",
    b"1 qid:x 1:1": "index 'qid' is not an integer",
    b"1 qid:1qid:2 1:1": "index 'qid' is not an integer",
    b"1 \xff:1": "index '\\\\xff' is not an integer",
    b"\x7fELF\x02\x01\x01\x00\x00": "a zero byte, so this is a binary file, not svmlight text",
    "1 \u0661:1".encode(): "index '\\\\xd9\\\\xa1' is not an integer",
}


@pytest.mark.parametrize("line", ILLEGAL)
@pytest.mark.parametrize("around", [(b"", b""), (b"1 1:2\n# \n\n-1 2:3\n", b"1 5:5\n"), (b"", b"also bad:\n")])
def test_illegal_lines_are_named(line, around):
    before, after = around
    with pytest.raises(BadLine) as caught:
        parse(before + line + b"\n" + after)
    shown = line.decode("ascii", "backslashreplace")
    assert caught.value.line == before.count(b"\n") + 1
    assert caught.value.what == f"{ILLEGAL[line]}: {shown.strip()!r}"


def test_long_lines_and_words_are_cut_short_in_errors():
    with pytest.raises(BadLine) as caught:
        parse(b"1 1:1 2:" + b"y" * 10_000 + b"\n")
    assert len(caught.value.what) < 250


@pytest.mark.parametrize("digits", [11, 400, 5000])
def test_endless_indices_and_values(digits):
    with pytest.raises(BadLine, match="is larger than"):
        parse(b"1 " + b"1" * digits + b":1\n")
    with pytest.raises(BadLine, match=r"is (not finite|too large)"):
        parse(b"1 1:" + b"1" * max(digits, 40) + b"\n")
    assert plain(parse(b"1 1:0." + b"1" * digits + b"\n")) == [(1, {1: single("0." + "1" * digits)})]

WORD = st.sampled_from(
    ["1", "-1", "+1", "0", "1:1", "2:0.5", "3:-1e-3", "0:2.", "4:.5", "10:7", "2147483646:1", "2147483647:1", "1:1e39",
     "5:12345678901234567890", "qid:1", "qid:", "#", "1:", ":1", ":", ".", "e", "1e5", "-", "nan", "1:nan", "1:2:3",
     "1_0:1", "6:1_0", "0x1", "7:9007199254740993", "8:1e-30", "01:1", "1.5:1", "-2:1", "\x0b", "\x00", "é", "9:+1"]
)  # fmt: skip
SEPARATOR = st.sampled_from([" ", " ", " ", " ", "\n", "\n", "  ", "\t", "\r\n", "", ":", "\r"])
JUMBLE = st.lists(st.tuples(WORD, SEPARATOR).map("".join), max_size=12).map("".join)
BYTES = st.text("0123. :e-+\n#q", max_size=30)


@settings(max_examples=300)
@given(st.one_of(JUMBLE, BYTES))
@example("1 1:2\n 1:2\n")
@example("1 1:1e\n")
def test_the_fast_reader_agrees_with_the_careful_one(text):
    text = text.encode() + b"\n"
    fast = svmlight._read_chunk(text)
    if fast is None:
        return
    assert same(fast, svmlight._read_lines(text))


VALUE = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.floats(-1e38, 1e38, allow_nan=False).map(lambda number: f"{number:.6g}"),
    st.integers(-1000, 1000).map(str),
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["-1", "+1", "1", "0", "2.5"]), st.dictionaries(st.integers(0, 2**31 - 2), VALUE, max_size=6)
    ),
    max_size=8,
)


@given(ROWS, st.sampled_from([" ", "  ", "\t"]), st.sampled_from(["\n", "\r\n", " \n", " # c\n", "\n\n"]))
def test_any_rows_are_read_fast_and_right(rows, space, end):
    text = "".join(
        label + "".join(f"{space}{index}:{value}" for index, value in row.items()) + end for label, row in rows
    )
    found = svmlight._read_chunk(text.encode() + b"\n")
    assert found is not None
    assert plain(found) == [(float(label), {i: single(v) for i, v in row.items()}) for label, row in rows]


WRITTEN = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda number: f"{number:.9g}"),
    st.from_regex(r"[+-]?[0-9]{1,20}\.?[0-9]{0,20}([eE][+-]?[0-9]{1,3})?", fullmatch=True).filter(str.isascii),
    st.from_regex(r"[+-]?0\.0{0,30}[0-9]{1,10}", fullmatch=True).filter(str.isascii),
    st.integers(-(2**70), 2**70).map(str),
)


@given(st.lists(WRITTEN, min_size=1, max_size=20))
@example(["9007199254740993", "9007199254740992", "9007199254740993e0", "0.9007199254740993"])
@example(["1e22", "1e23", "3e22", "1e-22", "1e-23", "123456789012345678e-22", "-0", "-0.0", "-.5", "5.", "1e-400"])
@example(["100000000000000000001", "1.0000000000000000000001", "0.0000000000000000001234", "-5000000000000000000000.5"])
@example(["1e400"])
@example(["1E5", "2"])
@example(["123456789012345678", "-9007199254740993", "+7", "-0"])
@example(["123456789012345678", "-9007199254740993", "+7", "0"])
def test_numbers_are_what_float_reads(words):
    """Those of more digits before a point than integers have are left to the careful reader."""
    found, expected = svmlight._read_chunk("".join(f"{word}\n" for word in words).encode()), np.array(words, float)
    longest = max(len(re.match("[+-]?([0-9]*)", word)[1]) for word in words)
    assert (found is not None) == (np.isfinite(expected).all() and longest <= 18)
    assert found is None or found.labels.tobytes() == expected.tobytes()


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_bad_line_is_counted_from_its_part(tmp_path, monkeypatch, parts):
    monkeypatch.setattr(text_file, "CHUNK_NBYTES", 16)
    lines = [b"1 1:1 # one" if number % 3 else b"" for number in range(40)]
    lines[23] = b"1 1:x"
    path = tmp_path / "bad.svm"
    path.write_bytes(b"\n".join(lines))
    read = [read_part(str(path), part, parts) for part in range(parts)]
    bad = next(part for part in read if part.problem)
    assert bad.problem.what == "value 'x' of feature 1 is not a number: '1 1:x'"
    assert sum(part.lines for part in read[: read.index(bad)]) + bad.problem.line == 24
    assert not [part for part in read if part.problem and part is not bad]
