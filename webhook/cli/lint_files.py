"""topogate lint FILE...: what is wrong with manifests, for an author and for CI.

Exit status: 0 if nothing is wrong, 1 if something is, 2 for a file that cannot be read or wrong arguments.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webhook.cli import session
from webhook.cli.terminal import complain, print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.inquiry.lint import ManifestFault


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser(
        "lint",
        help="find faults in manifests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="YAML or JSON, - for stdin")
    session.add_configuration(parser)
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="ask the kubeconfig's cluster: admission by dry run, nodes",
    )
    session.add_connection(parser)
    session.add_output(parser, session.DOCUMENTS)


def run(options: argparse.Namespace) -> int:
    """Print the faults."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    from webhook.configuration.document import ConfigurationError
    from webhook.inquiry import documents
    from webhook.inquiry.documents import InputError, in_namespace
    from webhook.inquiry.lint import lint
    from webhook.inquiry.lint_cluster import ClusterRules
    from webhook.inquiry.named_gangs import NamedGangs

    try:
        api = session.connect(options) if options.cluster else None
        rules = ClusterRules.read(api, [options.config] if options.config else [])
        namespace = _namespace(options)
    except ConfigurationError as error:
        raise session.MistakeError(str(error)) from None
    faults, status, named = [], 0, NamedGangs(rules.rules)
    for file in options.files:
        try:
            objects = [in_namespace(each, namespace) for each in documents.of_file(file)]
        except InputError as error:
            complain(f"topogate lint: {error}")
            status = 2
            continue
        faults += [*lint(objects, str(file), rules.rules, named), *rules.faults(objects, str(file))]
    _print(faults, rules.notes, options)
    return status or (1 if faults else 0)


def _namespace(options: argparse.Namespace) -> str:
    """The namespace of objects that name none; "" where it makes no difference."""
    return session.namespace_of(options) if options.cluster or options.namespace is not None else ""


def _print(faults: "Sequence[ManifestFault]", notes: "Sequence[str]", options: argparse.Namespace) -> None:
    import msgspec

    if options.output is not None:
        session.show(msgspec.to_builtins(faults), options.output)
    for fault in faults if options.output is None else ():
        print_line(str(fault))
    for note in notes:
        complain(f"topogate lint: note: {note}")
