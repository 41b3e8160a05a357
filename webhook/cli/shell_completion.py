"""`topogate completion SHELL`: the completion of bash, zsh or fish.

bash and zsh: source <(topogate completion bash), or zsh. fish: topogate completion fish | source.
"""

import argparse
from typing import Any, Final

NAMED: Final = ("logs", "exec", "attach", "stop", "restart", "explain", "ps")
"""Subcommands that take the name of a task."""

_BASH: Final = """\
_topogate() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
    elif [[ "$word" == -* ]]; then
        local flags="$(topogate "$command" --help 2>/dev/null | grep -oE -- '--[a-z-]+' | sort -u)"
        COMPREPLY=($(compgen -W "$flags" -- "$word"))
    elif [[ " {named} " == *" $command "* ]]; then
        COMPREPLY=($(compgen -W "$(topogate ps --all -o name 2>/dev/null | sed 's|.*/||')" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -F _topogate topogate
"""
_ZSH: Final = """\
#compdef topogate
_topogate() {{
    local -a commands
    commands=({described})
    if (( CURRENT == 2 )); then
        _describe command commands
    elif [[ "$PREFIX" == -* ]]; then
        compadd -- $(topogate "$words[2]" --help 2>/dev/null | grep -oE -- '--[a-z-]+' | sort -u)
    elif [[ " {named} " == *" $words[2] "* ]]; then
        compadd -- $(topogate ps --all -o name 2>/dev/null | sed 's|.*/||')
    else
        _files
    fi
}}
compdef _topogate topogate
"""
_FISH: Final = """\
complete -c topogate -f -n __fish_use_subcommand -a '{commands}'
complete -c topogate -f -n '__fish_seen_subcommand_from {named}' \\
    -a "(topogate ps --all -o name 2>/dev/null | string replace -r '.*/' '')"
"""


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("completion", help="completion of a shell", description=__doc__)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that reads it")


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    from webhook.cli.main import COMMANDS

    script = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[options.shell]
    described = " ".join(f"'{name}:{text.replace(':', ' -')}'" for name, text in COMMANDS.items())
    print(script.format(commands=" ".join(COMMANDS), named=" ".join(NAMED), described=described), end="")
    return 0
