"""The header checks itself: bytes of two headers never pass for one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstorm import header
from dstorm.header import DONE, EMPTY, WHOLE, WRITING, Header, Watched

headers = st.builds(
    Header,
    number=st.integers(0, 2**62),
    step=st.integers(0, 2**62),
    state=st.sampled_from([WRITING, WHOLE, DONE]),
    encoding=st.integers(0, 7),
    nbytes=st.integers(0, 2**40),
    weight=st.floats(0, 1e300),
    share=st.floats(0, 1),  # no NaN: its hash is that of the object
    check=st.none(),
    taken=st.just(0),
)


def laid(one: Header) -> bytearray:
    buffer = bytearray(header.NBYTES)
    header.write(memoryview(buffer), 0, *one[:7])
    return buffer


def test_zeroed_memory_is_empty():
    assert header.read(memoryview(bytearray(header.NBYTES)), 0).state == EMPTY


@given(headers)
def test_reads_what_was_written(one):
    assert header.read(memoryview(laid(one)), 0) == one


@given(headers, st.binary(max_size=40))
def test_the_check_of_a_payload_is_read_as_it_was_written(one, payload):
    check = header.payload_check(np.frombuffer(payload, np.uint8))
    laid_so = laid(one._replace(state=header.checked(check)))
    assert header.read(memoryview(laid_so), 0) == one._replace(state=WHOLE, check=check)


@given(headers, headers, st.lists(st.booleans(), min_size=header.NBYTES, max_size=header.NBYTES))
def test_a_mix_of_two_is_neither_or_one_of_them(first, second, choice):
    mixed = bytearray(b if pick else a for a, b, pick in zip(laid(first), laid(second), choice, strict=True))
    assert header.read(memoryview(mixed), 0) in (None, first, second)


@given(st.integers(1, 2**40), st.integers(1, 40), st.integers(1, header.NBYTES - 9))
def test_neighbours_in_a_ring_torn_at_one_place(number, depth, cut):
    old, new = Header(number, number, WHOLE, 0, 8), Header(number + depth, number + depth, WRITING)
    for torn in (laid(old)[:cut] + laid(new)[cut:], laid(new)[:cut] + laid(old)[cut:]):
        assert header.read(memoryview(torn), 0) in (None, old, new)


@pytest.mark.parametrize("place", range(header.NBYTES))
def test_zeros_with_one_byte_of_something_are_neither_empty_nor_a_stamp(place):
    """Only the first bytes of a header, or of its checksum, have arrived."""
    torn = bytearray(header.NBYTES)
    torn[place] = 1
    assert header.read(memoryview(torn), 0) is None


def test_a_header_that_is_watched_is_whole_and_as_new_as_what_has_arrived(monkeypatch):
    """Halves of the next headers, the hash with the second one, arrive before, within and after a look."""
    wanted = [header.BLANK, *(Header(number, number, WHOLE, 0, 8) for number in (1, 2))]
    halves = [(start, laid(one)[start : start + 32]) for one in wanted[1:] for start in (0, 32)]
    unpack = header._checked
    for before in range(5):
        for within in range(5 - before):
            memory, left = bytearray(header.NBYTES), list(halves)
            watched = Watched(memoryview(memory), 0)

            def arrive(count, memory=memory, left=left):
                for start, half in left[:count]:
                    memory[start : start + 32] = half
                del left[:count]

            def read_later(buffer, offset, arrive=arrive, within=within):
                arrive(within)
                return unpack(buffer, offset)

            arrive(before)
            monkeypatch.setattr(header, "_checked", read_later)
            assert watched.read() in (None, *wanted[before // 2 :])
            monkeypatch.setattr(header, "_checked", unpack)
            while left:
                arrive(1)
                newest = wanted[2 - len(left) // 2 - len(left) % 2]
                assert watched.read() in ((newest,) if len(left) % 2 == 0 else (None, newest))
            assert watched.read() == wanted[2]
