"""Every line of a file is in exactly one part, whatever the number of parts and the size of the chunks."""

import bz2
import gzip
import lzma

import pytest

from malt.data.text import text_file
from malt.data.text.text_file import read_chunks

SQUEEZE = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.fixture(params=[1, 2, 3, 7, 1 << 18])
def chunk_nbytes(request, monkeypatch):
    monkeypatch.setattr(text_file, "CHUNK_NBYTES", request.param)


def whole(text):
    return text if text.endswith(b"\n") or not text else text + b"\n"


@pytest.mark.usefixtures("chunk_nbytes")
@pytest.mark.parametrize("parts", [1, 2, 3, 5, 16])
@pytest.mark.parametrize(
    "text", [b"", b"\n", b"a", b"a\nb", b"a\nbb\n\n\nccc\n", b"long line without an end", b"\n\n\n\na\n" * 5]
)
def test_parts_make_up_the_file(tmp_path, text, parts):
    path = tmp_path / "text"
    path.write_bytes(text)
    chunks = [chunk for part in range(parts) for chunk in read_chunks(str(path), part, parts)]
    assert b"".join(chunks) == whole(text)
    assert all(chunk.endswith(b"\n") for chunk in chunks if chunk)


@pytest.mark.usefixtures("chunk_nbytes")
@pytest.mark.parametrize("suffix", SQUEEZE)
def test_a_compressed_file_is_part_0(tmp_path, suffix):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(SQUEEZE[suffix](b"one\ntwo\nthree"))
    assert b"".join(read_chunks(str(path), 0, 3)) == b"one\ntwo\nthree\n"
    assert list(read_chunks(str(path), 1, 3)) == []


@pytest.mark.usefixtures("chunk_nbytes")
@pytest.mark.parametrize("suffix", ["", *SQUEEZE])
def test_the_byte_order_mark_is_left_out(tmp_path, suffix):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(SQUEEZE.get(suffix, bytes)(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n"))
    parts = 1 if suffix else 2
    assert b"".join(b"".join(read_chunks(str(path), part, parts)) for part in range(parts)) == b"one\n\xef\xbb\xbftwo\n"


@pytest.mark.parametrize("suffix", SQUEEZE)
@pytest.mark.parametrize(
    "damage",
    [
        lambda good: good[:-9], lambda good: b"no such thing", lambda good: good[:40] + b"\xff" * 40,
        lambda good: good + b"x" + good[1:], lambda good: good + good[:-9],
    ],
)  # fmt: skip
def test_damaged_compressed_files_are_named(tmp_path, suffix, damage):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(damage(SQUEEZE[suffix](b"".join(b"%d\n" % (7919 * row % 10007) for row in range(2000)))))
    with pytest.raises(ValueError, match=r"text\.\w+: a damaged or cut-off \w+ file \("):
        list(read_chunks(str(path)))


@pytest.mark.usefixtures("chunk_nbytes")
@pytest.mark.parametrize("suffix", SQUEEZE)
def test_a_compressed_file_may_have_several_streams(tmp_path, suffix):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(SQUEEZE[suffix](b"one\nt") + SQUEEZE[suffix](b"") + SQUEEZE[suffix](b"wo\n") + bytes(8))
    assert b"".join(read_chunks(str(path))) == b"one\ntwo\n"


@pytest.mark.parametrize("suffix", SQUEEZE)
def test_a_compressed_file_by_a_plain_name_is_named(tmp_path, suffix):
    path = tmp_path / "text.svm"
    path.write_bytes(SQUEEZE[suffix](b"1 1:1\n"))
    with pytest.raises(ValueError, match=rf"rename it to .*text\.svm\{suffix}$"):
        list(read_chunks(str(path)))


@pytest.mark.usefixtures("chunk_nbytes")
@pytest.mark.parametrize("suffix", ["", ".xz"])
@pytest.mark.parametrize("text, message", [
    (b"1 1:1 # old\r-1 1:2\r\n", "lines end in a single carriage return"),
    (b"1 2 3\r\n1 2\r3\n", "lines end in a single carriage return"),
    (b"\x7fELF\r\0\n", "this is a binary file"),
    ("1 1:1\n".encode("utf-16"), "UTF-16 text"),
], ids=["comment", "rating", "binary", "UTF-16"])  # fmt: skip
def test_other_lines_and_texts_are_refused(tmp_path, suffix, text, message):
    """A comment would end where the file does."""
    path = tmp_path / f"text{suffix}"
    path.write_bytes(SQUEEZE.get(suffix, bytes)(text))
    with pytest.raises(ValueError, match=message):
        list(read_chunks(str(path)))
    path.write_bytes(SQUEEZE.get(suffix, bytes)(b"1 2 3\r\n\r\r\n4 5 6\r"))
    assert b"".join(read_chunks(str(path))) == b"1 2 3\r\n\r\r\n4 5 6\r\n"


def test_a_line_without_end_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(text_file, "MAX_LINE_NBYTES", 1000)
    monkeypatch.setattr(text_file, "CHUNK_NBYTES", 100)
    path = tmp_path / "text"
    path.write_bytes(b"1 1:1\n" + b"x" * 1000 + b"\n")
    assert len(b"".join(read_chunks(str(path)))) == 1007
    path.write_bytes(b"1 1:1\n" + b"x" * 1200 + b"\n")
    with pytest.raises(ValueError, match="a line is longer than"):
        list(read_chunks(str(path)))


@pytest.mark.parametrize("part, parts", [(2, 2), (-1, 2), (0, 0)])
def test_a_part_that_is_not_there_is_refused(tmp_path, part, parts):
    """Who counts parts from 1 would miss the first one."""
    path = tmp_path / "file"
    path.write_text("a\nb\n")
    with pytest.raises(ValueError, match=f"^part must be one of {parts} parts, from 0 on, got {part}$"):
        list(read_chunks(path, part, parts))
