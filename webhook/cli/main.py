"""topogate (also kubectl topogate): one command, one subcommand a task.

Only the module of the chosen subcommand is imported, so that the imports of one do not slow the start of the
others.
"""

import argparse
import contextlib
import importlib
import os
import sys
from types import ModuleType
from typing import Final

from webhook import version

COMMANDS: Final = {
    "run": "start a GPU task",
    "ps": "tasks and jobs with GPUs: where they run, or why they wait",
    "logs": "what the workers of a task have written",
    "exec": "run a command inside a worker of a task",
    "attach": "watch and type into what a worker runs",
    "stop": "stop a task, for good or for a while",
    "restart": "restart a task, or resume one that was stopped",
    "top": "GPUs by model: free, used, waited for",
    "gangs": "gangs that wait and run, and why they wait",
    "map": "the network tree with what is used, planned and free",
    "nodes": "nodes on which pods fail, and which of them are avoided",
    "explain": "why a pod, a task or a gang waits, and what would help",
    "doctor": "check an installation, and suggest remedies",
    "drain": "release or delete every pod that waits, before topogate is uninstalled",
    "lint": "find faults in manifests",
    "simulate": "show where the pods of a manifest would be placed",
    "ui": "show the cluster on a page: map, gangs, why they wait",
    "config": "check the configuration, and make one of old files",
    "certs": "issue and rotate the certificates of the webhook",
    "completion": "print the completion of bash, zsh or fish",
}
NEXT: Final[dict[str, str]] = {
    "run": "Its state: topogate ps. Its output: topogate logs -f NAME. Why it waits: topogate explain NAME",
    "ps": "Why one waits: topogate explain NAME. Its output: topogate logs NAME",
    "stop": "What is left: topogate ps",
    "restart": "Its state: topogate ps. Its output: topogate logs -f NAME",
    "top": "Where they are free: topogate map. What waits for them: topogate gangs -A",
    "gangs": "What would help one that waits: topogate explain NAME -n NAMESPACE",
    "map": "Where your gang would be placed: topogate simulate --map FILE",
    "nodes": "Nodes that cannot be used for other reasons: topogate doctor",
    "explain": "Try another size or level: topogate simulate FILE. Is topogate well? topogate doctor",
    "doctor": "What waits, and why: topogate gangs -A",
    "lint": "Where it would be placed: topogate simulate FILE",
    "simulate": "To create it: kubectl apply -f FILE. What is free where: topogate map",
}
"""What to type next: printed on a terminal after a command that succeeded."""
INTERRUPTED: Final = 130
"""Exit status after Ctrl-C, as a shell has after SIGINT."""
_WITH_COMMAND: Final = ("run", "exec")
_MODULES: Final = {
    "logs": "task_logs",
    "exec": "enter",
    "attach": "enter",
    "stop": "stop_command",
    "restart": "stop_command",
    "gangs": "gang_list",
    "nodes": "node_list",
    "explain": "explain_gang",
    "doctor": "doctor_report",
    "lint": "lint_files",
    "completion": "shell_completion",
}
"""For commands whose module has another name: no two modules of webhook have the same."""


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand; returns its exit status, see docs/users/commands.md."""
    try:
        return _main(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        print("topogate: interrupted", file=sys.stderr)
        return INTERRUPTED


def _main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="topogate", description="Topology- and card-aware placement of GPU pods."
    )
    version.add_argument(parser)
    # With prog, argparse need not write the usage to find it, for which it loads shutil.
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", prog="topogate")
    chosen = next((word for word in words if not word.startswith("-")), "")
    for name in _others(chosen):
        subparsers.add_parser(name, help=COMMANDS[name], add_help=False)
    if chosen and chosen not in COMMANDS:
        parser.error(_unknown(chosen))
    module = importlib.import_module(module_of(chosen)) if chosen in COMMANDS else None
    if module is not None:
        module.add_parser(subparsers)
    options = _parsed(parser, words) if chosen in _WITH_COMMAND else parser.parse_args(words)
    assert module is not None, "argparse ends the program where no command is known"
    return _run(module, options)


def _others(chosen: str) -> list[str]:
    """Parsers of the commands that the module of the chosen one does not add itself."""
    if chosen not in COMMANDS:
        return list(COMMANDS)
    return [name for name in COMMANDS if module_of(name) != module_of(chosen)]


def _run(module: ModuleType, options: argparse.Namespace) -> int:
    """Run the command of a module; returns its exit status. Lost output is always reported."""
    try:
        status = int(module.run(options))
        if sys.stdout is not None:  # as when a shell has closed it
            sys.stdout.flush()
        if status == 0:
            _print_hint(options)
        return status
    except BrokenPipeError:
        sys.stderr.close()  # the reader has closed the pipe: nobody can read an error
        return 0
    except OSError as error:
        print(f"topogate {options.command}: {error.strerror or error}: {_where(error)}", file=sys.stderr)
        _drop_output()
        return 1


def _print_hint(options: argparse.Namespace) -> None:
    """The hint for the next command, unless the output is for a program or nothing was done."""
    from webhook.cli.terminal import complain, is_terminal

    is_for_people = getattr(options, "output", None) in (None, "wide")
    has_no_hint = getattr(options, "dry_run", False) or getattr(options, "follow", False)
    if options.command in NEXT and is_terminal() and is_for_people and not has_no_hint:
        complain(NEXT[options.command])


def _unknown(command: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(command, COMMANDS, n=1)
    return f"there is no command {command!r}" + (f"; did you mean {near[0]}?" if near else "; see --help")


def _where(error: OSError) -> str:
    return f"{error.filename}" if error.filename else "the output cannot be written"


def _drop_output() -> None:
    """Keep the end of the program from trying again to write what cannot be written."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parsed(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """The options of run and exec; what follows "--" is the command.

    argparse would not accept such a command where an option stands between it and another argument, as in
    `exec NAME --rank 1 -- ls`.
    """
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:end])
    options.words = [*options.words, *words[end + 1 :]]
    return options


def module_of(command: str) -> str:
    """The module that has a command."""
    return f"webhook.cli.{_MODULES.get(command, command)}"


if __name__ == "__main__":
    sys.exit(main())
