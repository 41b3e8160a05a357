"""topogate (also kubectl topogate): one command, one subcommand a task."""

import argparse
import sys

from webhook.cli import certs, drain, explain, policy, simulate, ui

_COMMANDS = {
    "explain": explain,
    "simulate": simulate,
    "policy": policy,
    "certs": certs,
    "drain": drain,
    "ui": ui,
}


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="topogate", description="Topology- and card-aware placement of GPU pods."
    )
    subparsers = parser.add_subparsers(dest="command", required=True)
    for module in _COMMANDS.values():
        module.add_parser(subparsers)
    options = parser.parse_args(arguments)
    return int(_COMMANDS[options.command].run(options))


if __name__ == "__main__":
    sys.exit(main())
