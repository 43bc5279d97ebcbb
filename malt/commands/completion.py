"""`malt completion SHELL`: a script by which bash or zsh completes command lines of malt. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vol.graphs.builtin import NAMES

if TYPE_CHECKING:
    from malt.commands.options import Parser

SHELLS = ("bash", "zsh")
_VALUES = {"graph": NAMES, "completion": SHELLS}
"""The words that a command takes beside its options."""
_ZSH = "autoload -Uz bashcompinit && bashcompinit\n"
_SCRIPT = """_malt() {{
    local words
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    [ "$COMP_CWORD" -gt 1 ] || words="{commands}"
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _malt malt
"""


def script(parser: Parser, shell: str) -> str:
    """The script for `shell`, one of SHELLS, with the commands and options of `parser`. Pure.

    What no command and no option begins with is completed as the name of a file.
    """
    cases = []
    for name, command in parser.commands.items():
        options = [option for action in command._actions for option in action.option_strings]
        cases.append(f'        {name}) words="{" ".join([*options, *_VALUES.get(name, ())])}" ;;')
    text = _SCRIPT.format(cases="\n".join(cases), commands=" ".join([*parser.commands, *parser._option_string_actions]))
    return (_ZSH if shell == "zsh" else "") + text
