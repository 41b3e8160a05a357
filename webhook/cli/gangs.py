"""`topogate gangs`: every gang with its state, and the reason of those that wait."""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cli import picture, session
from webhook.cli.terminal import complain
from webhook.text import printable

if TYPE_CHECKING:
    from webhook.ui.gangs import GangRow

WATCH_SECONDS: Final = 2.0
_HEAD: Final = ("NAMESPACE", "GANG", "STATE", "PODS", "GPUS", "SPREAD", "PRIORITY", "AGE", "REASON")


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("gangs", help="gangs that wait and run, and why they wait")
    session.add_connection(parser, everywhere=True)
    session.add_files(parser)
    parser.add_argument("-w", "--watch", action="store_true", help="again every two seconds")
    parser.add_argument("-o", "--output", choices=("json",), help="default: a table for people")


def run(options: argparse.Namespace) -> int:
    """Print the list; 1 if the cluster cannot be read, 2 for a wrong argument."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    settings, policy = picture.files(options)
    api = session.connect(options)
    namespace = None if options.all_namespaces else session.namespace_of(options)
    while True:
        rows = picture.scene(api, settings, policy).gangs
        chosen = [row for row in rows if namespace in (None, row.namespace)]
        if not chosen and namespace:
            session.check_namespace(api, namespace)
        _print(chosen, options, len(rows) - len(chosen))
        if not options.watch:
            return 0
        time.sleep(WATCH_SECONDS)


def _print(rows: "Sequence[GangRow]", options: argparse.Namespace, elsewhere: int) -> None:
    """Print the rows. elsewhere: how many gangs other namespaces have."""
    if options.output == "json":
        print(msgspec.json.encode(rows).decode(), flush=True)
        return
    if options.watch and sys.stdout.isatty():
        print("\033[2J\033[H", end="")
    shown = session.table([_HEAD, *map(_cells, rows)]) if rows else "No gang waits or runs."
    print(shown, flush=True)
    if elsewhere:
        complain(f"{elsewhere} more in other namespaces: topogate gangs -A")
    if any(row.reason for row in rows) and sys.stdout.isatty():
        complain("What would help one that waits: topogate explain NAME -n NAMESPACE")


def _cells(row: "GangRow") -> tuple[str, ...]:
    pods = f"{row.pods - row.waiting}/{row.size}"
    return (
        row.namespace, printable(f"{row.kind}/{row.name}"), row.state, pods, str(row.gpus),
        row.compared, str(row.priority), session.age(row.created), printable(row.reason),
    )  # fmt: skip
