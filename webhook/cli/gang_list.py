"""`topogate gangs`: every gang with its state, and the reason of those that wait."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cli import scene, session
from webhook.cli.terminal import complain, print_line, table
from webhook.text import printable

if TYPE_CHECKING:
    from webhook.ui.gang_rows import GangRow

_HEAD: Final = ("NAMESPACE", "GANG", "STATE", "PODS", "GPUS", "SPREAD", "PRIORITY", "AGE", "REASON")


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("gangs", help="gangs that wait and run, and why they wait")
    session.add_connection(parser, everywhere=True)
    session.add_configuration(parser)
    session.add_selector(parser, "gangs of pods")
    session.add_watch(parser)
    session.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Print the list; 1 if the cluster cannot be read, 2 for a wrong argument."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    api = session.connect(options)
    configuration = scene.configuration_of(options, api)
    namespace = None if options.all_namespaces else session.namespace_of(options)

    def show() -> None:
        pods = session.names_of(api, "/api/v1/pods", options)
        rows = scene.scene(api, configuration).gangs
        if pods is not None:
            rows = [row for row in rows if any((row.namespace, each.name) in pods for each in row.members)]
        chosen = [row for row in rows if namespace in (None, row.namespace)]
        if not chosen and namespace:
            session.check_namespace(api, namespace)
        _print(chosen, options, len(rows) - len(chosen), namespace)

    return session.repeat(options, show)


def _print(
    rows: "Sequence[GangRow]", options: argparse.Namespace, in_others: int, namespace: str | None
) -> None:
    """Print the rows. in_others: how many gangs are in other namespaces than this one."""
    if options.output in session.DOCUMENTS:
        session.show(msgspec.to_builtins(rows), options.output)
        return
    if options.output == "name":
        for row in rows:
            print_line(f"{row.kind.lower()}/{row.name}")
        return
    if rows:
        print(table([_HEAD, *map(_cells, rows)], is_full_width=options.output == "wide"))
    else:
        print(f"No gang waits or runs{f' in namespace {namespace}' if namespace else ''}.")
    if in_others:
        complain(f"{in_others} more in other namespaces: topogate gangs -A")


def _cells(row: "GangRow") -> tuple[str, ...]:
    pods = f"{row.pods - row.waiting}/{row.size}"
    return (
        row.namespace, printable(f"{row.kind}/{row.name}"), row.state, pods, str(row.gpus),
        row.compared, str(row.priority), session.age(row.created), printable(row.reason),
    )  # fmt: skip
