"""`topogate nodes`: nodes on which pods have failed, which are avoided, and how to have them used again."""

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cli import session
from webhook.cli.terminal import complain, table

if TYPE_CHECKING:
    from webhook.inquiry.bad_nodes import NodeRow
    from webhook.kube.client import Api

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
    session.add_selector(parser, "nodes")
    session.add_watch(parser)
    session.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Print the list; 1 if it cannot be read."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    api = session.connect(options)
    return session.repeat(options, lambda: _show(api, options))


def _show(api: "Api", options: argparse.Namespace) -> None:
    from webhook.extensions.node_health.avoided_nodes import RESET_COMMAND
    from webhook.inquiry import bad_nodes

    chosen = session.names_of(api, "/api/v1/nodes", options)
    try:
        found = bad_nodes.rows(bad_nodes.read(api), time.time())
    except msgspec.MsgspecError as error:
        raise session.SessionError(f"the failure record of the nodes cannot be read: {error}") from error
    found = [row for row in found if chosen is None or ("", row.node) in chosen]
    if options.output in session.DOCUMENTS:
        session.show(msgspec.to_builtins(found), options.output)
        return
    if options.output == "name":
        print("\n".join(f"node/{row.node}" for row in found))
        return
    if not found:
        print("No recorded pod failure counts for " + ("any node." if chosen is None else "these nodes."))
        return
    cells = [_cells(row, bad_nodes.day_and_time) for row in found]
    print(table([_HEAD, *cells], is_full_width=options.output == "wide"))
    _report_unreadable_resets(api, options)
    complain(f"After you repair a node: {RESET_COMMAND}")
    complain("To exclude a node: kubectl cordon NODE")


def _report_unreadable_resets(api: "Api", options: argparse.Namespace) -> None:
    from webhook.extensions.node_health.avoided_nodes import unreadable_resets

    items = api.json("GET", "/api/v1/nodes", query=session.selected(options))["items"]
    annotations = {each["metadata"]["name"]: each["metadata"].get("annotations") or {} for each in items}
    for name, text in sorted(unreadable_resets(annotations).items()):
        complain(f"Node {name}: the annotation that resets its failures is not a time: {text[:100]}")


def _cells(row: "NodeRow", shown: Callable[[int], str]) -> tuple[str, ...]:
    gangs, failures = str(row.gangs), str(row.failures)
    return row.node, row.by or "-", shown(row.until), gangs, failures, shown(row.last), row.cause
