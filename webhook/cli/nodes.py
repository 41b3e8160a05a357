"""`topogate nodes`: nodes on which pods have failed, which are avoided, and how to have them used again."""

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cli import session
from webhook.text import printable

if TYPE_CHECKING:
    from webhook.inquiry.bad_nodes import NodeRow

_HEAD: Final = ("NODE", "AVOIDED BY", "UNTIL", "GANGS", "FAILURES", "LAST", "CAUSE")


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser(
        "nodes",
        help="nodes on which pods fail, and which of them are avoided",
        description="GANGS counts those that failed on the node and ran elsewhere. Reads the ConfigMap "
        "topogate-node-failures in the namespace topogate-system, and the nodes.",
    )
    session.add_connection(parser)
    parser.add_argument("-o", "--output", choices=("json",), help="default: a table for people")


def run(options: argparse.Namespace) -> int:
    """Print the list; 1 if it cannot be read."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    from webhook.inquiry import bad_nodes

    api = session.connect(options)
    try:
        found = bad_nodes.rows(bad_nodes.read(api), time.time())
    except msgspec.MsgspecError as error:
        raise session.SessionError(f"what the sweeper keeps of nodes cannot be read: {error}") from error
    if options.output == "json":
        print(msgspec.json.encode(found).decode())
        return 0
    if not found:
        print("No failure of a pod speaks against a node.")
        return 0
    cells = [_cells(row, bad_nodes.day_and_time) for row in found]
    print(session.table([_HEAD, *cells]))
    for name, text in sorted(bad_nodes.unforgiven(api.json("GET", "/api/v1/nodes")["items"]).items()):
        print(f"Node {name}: what is written to forgive its failures is no time: {printable(text[:100])}")
    print(f"\nOnce a node is mended: {bad_nodes.FORGIVE}\nTo keep pods off a node:  kubectl cordon NODE")
    return 0


def _cells(row: "NodeRow", shown: Callable[[int], str]) -> tuple[str, ...]:
    gangs, failures = str(row.gangs), str(row.failures)
    return row.node, row.by or "-", shown(row.until), gangs, failures, shown(row.last), row.cause
