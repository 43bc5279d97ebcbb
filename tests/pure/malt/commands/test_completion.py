"""`malt completion`: what a shell proposes for a command line."""

import shutil
import subprocess

import pytest

from malt.commands import command_line, completion, options


@pytest.mark.parametrize(("words", "proposed"), [
    ("st", {"status", "stacks"}),
    ("run --s", {"--survive"}),
    ("run -n 4 --tr", {"--trace"}),
    ("run --comp", {"--compare"}),
    ("run --np", {"--np", "--nproc-per-node", "--nproc_per_node"}),
    ("graph ha", {"halton"}),
    ("completion z", {"zsh"}),
    ("run -n 4 prog", set()),  # the shell then looks for files
])  # fmt: skip
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_what_bash_proposes(words, proposed):
    whole = ["malt", *words.split()]
    asked = f"COMP_WORDS=({' '.join(whole)}); COMP_CWORD={len(whole) - 1}; _malt; echo ${{COMPREPLY[@]}}"
    program = completion.script(options.parser(), "bash") + asked
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert set(done.stdout.split()) == proposed and done.stderr == ""


def test_the_command_prints_the_script(capsys):
    assert command_line.main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out == completion.script(options.parser(), "zsh")
    with pytest.raises(SystemExit):
        command_line.main(["completion", "fish"])
    assert capsys.readouterr().err.startswith("malt completion: argument SHELL: invalid choice: 'fish'")
