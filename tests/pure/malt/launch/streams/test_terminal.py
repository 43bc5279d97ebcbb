"""A picture below the text of a terminal: no text is lost, whoever wrote it, and one picture is seen."""

import pytest
from screen import Screen

from malt.launch.streams.terminal import Terminal

PICTURE = [b"job", b"rank 0", b"rank 1"]
DRAWN = ["job", "rank 0", "rank 1"]


class Shown:
    """A terminal and its screen, whose driver writes \\r before each \\n."""

    def __init__(self, columns=20, rows=8):
        self.terminal, self.screen = Terminal(), Screen(columns, rows)

    def feed(self, data):
        self.screen.feed(data.replace(b"\n", b"\r\n"))

    def text(self, data):
        self.feed(self.terminal.text(data))

    def show(self, picture=PICTURE):
        self.feed(self.terminal.show(picture, self.screen.columns))

    def close(self):
        self.feed(self.terminal.close(PICTURE))
        return self.screen.lines()


def test_text_scrolls_above_one_picture():
    shown = Shown()
    written = []
    for number in range(30):
        shown.text(b"line %d\nand more\n" % number)
        written += [f"line {number}", "and more"]
        shown.show()
        assert shown.screen.lines() == [*written, "", *DRAWN]
    shown.show(PICTURE[:1])
    assert shown.screen.lines() == [*written, "", *DRAWN[:1]]
    assert shown.close() == [*written, *DRAWN]


def test_a_line_without_end_takes_no_memory():
    shown = Shown(columns=10)
    for number in range(2000):
        for part in (b"\xc3", b"\xa9"):  # one character, in two pieces
            shown.terminal.text(part)
        picture = shown.terminal.show(PICTURE, 10)
        assert (b"rank 0" in picture) == ((number + 1) % 10 != 0)  # not where the cursor may be at the end of a row
    assert all(len(value) < 100 for value in vars(shown.terminal).values() if isinstance(value, (bytes, str)))
    assert shown.terminal.close(PICTURE).startswith(b"\n")


@pytest.mark.parametrize("rows", [5, 8])
def test_an_incomplete_line_and_what_a_user_types_behind_it_stay(rows):
    shown = Shown(rows=rows)
    shown.text(b"a\nb\nname? ")
    shown.show()
    assert shown.screen.lines() == ["a", "b", "name?", *DRAWN]
    shown.feed(b"Bob")  # as the terminal echoes it
    shown.show()
    assert shown.screen.lines() == ["a", "b", "name? Bob", *DRAWN]
    shown.feed(b"\n")
    shown.show()
    shown.text(b"hello\n")
    assert shown.screen.lines() == ["a", "b", "name? Bob", "hello", "", *DRAWN]


@pytest.mark.parametrize(("columns", "pieces", "lines"), [
    (20, (b".", b".", b".\n\r10 %", b"\r20 %"), ["...", "20 %"]),
    (8, (b"12345678", b"9\n"), ["12345678", "9", ""]),
], ids=["it goes on, and a bar is drawn over", "one that fills its row keeps its last character"])  # fmt: skip
def test_an_incomplete_line(columns, pieces, lines):
    shown = Shown(columns)
    for piece in pieces:
        shown.text(piece)
        shown.show()
    assert shown.screen.lines() == [*lines, *DRAWN]
    assert shown.close() == [*filter(None, lines), *DRAWN]


def test_lines_of_others_stay():
    shown = Shown()
    shown.show()
    shown.feed(b"a warning\nof somebody\n")
    shown.show()
    first, second, *rest = shown.screen.lines()
    assert first == "a warning" and second.startswith("of somebody") and rest == ["", *DRAWN]


def test_colours_of_a_rank_do_not_colour_the_picture():
    terminal = Terminal()
    terminal.text(b"\x1b[31mred\n")
    assert b"\x1b7\x1b[m\r\njob" in terminal.show(PICTURE, 80)
    assert b"\x1b[mjob" in terminal.close(PICTURE)


def test_without_a_picture_bytes_are_as_they_were():
    terminal = Terminal()
    assert terminal.text(b"\x1b[1ma\r\n\xff") + terminal.close(()) == b"\x1b[1ma\r\n\xff"
