"""The launcher's own lines, and the files of `malt run --output`."""

import errno
import os

from malt.launch.streams import display


def test_a_line_of_the_launcher_begins_a_line_of_its_own(capsys):
    display.speak_through(None, is_within_line=True)
    display.say("")
    display.say("malt run: first\n")
    display.say("malt run: second\n")
    assert capsys.readouterr().err == "\nmalt run: first\nmalt run: second\n"


def test_a_full_disk_is_said_once(tmp_path, monkeypatch, capsys):
    display.make_files(str(tmp_path), 2)
    first, second = display.keepers(str(tmp_path), 2)
    first(b"a\n")
    monkeypatch.setattr(display.Path, "open", lambda *_: (_ for _ in ()).throw(full()))
    first(b"b\n")
    second(b"c\n")
    monkeypatch.undo()
    first(b"d\n")  # a file with a hole in it would mislead
    assert (tmp_path / "rank-0.txt").read_text() == "a\n"
    assert capsys.readouterr().err == (
        f"malt run: --output {tmp_path} no longer saves the output of the ranks: No space left on device\n"
    )


def full():
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
