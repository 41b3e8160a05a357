"""topogate simulate: where would this gang go? From files alone, without any cluster.

The cluster is what `kubectl get nodes,pods -A -o json` (or yaml) prints; the manifest is what would be
applied. Every pod of the manifest belongs to one gang; a Job or another workload counts as its pods.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from labeler.contract import keys
from labeler.contract.quantities import QuantityError
from webhook.cli import defaults
from webhook.cli.manifest import InputError, name_of, pods_of
from webhook.kube import objects
from webhook.placement import (
    Assignment,
    Gang,
    Member,
    Mode,
    NoFit,
    Options,
    PlacementError,
    Snapshot,
    Usage,
    check,
    place,
)
from webhook.placement.cards.state import natural
from webhook.scheduling import antiaffinity, conflicts, convert, unmodelled
from webhook.sweeper.observe.gangs import slices_of

T = TypeVar("T", bound=msgspec.Struct)


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a date is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommand `simulate`."""
    parser = subparsers.add_parser(
        "simulate",
        help="say where a manifest's pods would be placed, without a cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cluster", action="append", required=True, type=Path, metavar="FILE",
        help="nodes and pods as YAML or JSON; may be given more than once, - reads standard input",
    )  # fmt: skip
    parser.add_argument("manifest", type=Path, help="pods, Jobs or JobSets as YAML or JSON, - for stdin")
    parser.add_argument(
        "--required", metavar="LEVEL", help="overrides the required level: block, subblock ..."
    )
    parser.add_argument("--preferred", metavar="LEVEL", help="overrides the preferred level")
    parser.add_argument("--mode", choices=[mode.value for mode in Mode], default=Mode.BEST_FIT.value)
    parser.add_argument("--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Print the assignment (status 0) or the reason why there is none (1); 2 for unusable input."""
    try:
        gang, snapshot, notes = read(args.cluster, args.manifest)
        gang = _with_overrides(gang, args)
        found = place(gang, snapshot, Options(mode=Mode(args.mode)))
    except (InputError, PlacementError) as error:
        print(f"topogate simulate: {error}", file=sys.stderr)
        return 2
    if isinstance(found, Assignment):
        problems = check(found, gang, snapshot)
        if problems:
            raise AssertionError(f"the assignment breaks rules: {problems}")
    if args.output == "json":
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        _print(found, gang)
    for note in notes:
        print(f"topogate simulate: note: {note}", file=sys.stderr)
    return 0 if isinstance(found, Assignment) else 1


def _print(found: Assignment | NoFit, gang: Gang) -> None:
    if isinstance(found, NoFit):
        print(found.sentence)
        return
    ranks = {member.name: member.rank for member in gang.members}
    doubt = "" if found.proven else " (the best found; not proven to be the best there is)"
    print(f"Gang {gang.name}: {len(found.placed)} pods on {found.spread}{doubt}")
    rows = sorted(
        found.placed, key=lambda p: (ranks[p.member] is None, ranks[p.member] or 0, natural(p.member))
    )
    width = max(len(placed.member) for placed in rows)
    for placed in rows:
        cards = "|".join(
            ",".join(share.card + "".join(f":gt{tile}" for tile in share.tiles) for share in slot)
            for slot in placed.cards
        )
        print(f"  {placed.member:<{width}}  {placed.node}{'  ' + cards if cards.strip('|') else ''}")


def _with_overrides(gang: Gang, args: argparse.Namespace) -> Gang:
    return replace(
        gang,
        required_level=args.required or gang.required_level,
        preferred_level=args.preferred or gang.preferred_level,
    )


# --- reading --------------------------------------------------------------------------------------


def read(files: list[Path], manifest: Path) -> tuple[Gang, Snapshot, list[str]]:
    """The pods of a manifest as one gang, the cluster of these files, and what is not modelled.

    Raises InputError, and PlacementError for a wish that is none.
    """
    nodes, there = read_cluster(files)
    name, pods = read_pods(manifest)
    if not pods:
        raise InputError(f"{manifest} describes no pods")
    rules = conflicts.between([pod for _, _, pod in pods], [antiaffinity.terms_of(pod) for pod, _ in there])
    usage = [(pod.spec.node_name, rules.usage(pod, _usage(pod, file))) for pod, file in there]
    try:
        snapshot = Snapshot.build([rules.node(node, convert.node_of(node)) for node in nodes], usage)
    except PlacementError as error:
        raise InputError(str(error)) from None
    return _gang(name, pods, rules), snapshot, unmodelled.notes(pod for _, _, pod in pods)


def read_cluster(files: list[Path]) -> tuple[list[objects.Node], list[tuple[objects.Pod, Path]]]:
    """The nodes, and the pods that take room on them with the file of each. Raises InputError."""
    nodes, there = [], []
    for file in files:
        for document in _documents(file):
            if document.get("kind") == "Node":
                nodes.append(_as(objects.Node, document, file))
            elif document.get("kind") == "Pod":
                pod = _as(objects.Pod, defaults.defaulted(document), file)
                if convert.occupies(pod):
                    there.append((pod, file))
    if not nodes:
        raise InputError(
            f"no nodes in {', '.join(map(str, files))}; save them with kubectl get nodes,pods -A -o json"
        )
    return nodes, there


def _usage(pod: objects.Pod, file: Path) -> Usage:
    try:
        return convert.usage_of(pod)
    except QuantityError as error:
        raise InputError(f"{file}: pod {pod.metadata.namespace}/{pod.metadata.name}: {error}") from None


Waiting = tuple[str, int | None, objects.Pod]
"""Name, rank and body of a pod."""


def read_pods(file: Path) -> tuple[str, list[Waiting]]:
    """The name of what a manifest begins with, and the pods that it makes. Raises InputError."""
    names: list[str] = []
    pods: list[Waiting] = []
    for document in _documents(file):
        metadata = document.get("metadata")
        namespace = str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""
        for name, rank, template in pods_of(document, file):
            pods.append((name, rank, _as(objects.Pod, defaults.defaulted(template, namespace), file)))
        names.append(name_of(document))
    return next(iter(names), ""), pods


def _gang(name: str, pods: list[Waiting], rules: conflicts.Conflicts) -> Gang:
    annotations: dict[str, str] = {}
    for _, _, pod in pods:
        annotations |= pod.metadata.annotations
    return Gang(
        annotations.get(keys.GANG_ANNOTATION) or name,
        tuple(Member(own, rank, rules.pod_class(pod, convert.pod_class_of(pod))) for own, rank, pod in pods),
        required_level=annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION),
        preferred_level=annotations.get(keys.PREFERRED_TOPOLOGY_ANNOTATION),
        slices=slices_of(
            annotations.get(keys.SLICE_TOPOLOGY_ANNOTATION), annotations.get(keys.SLICE_SIZE_ANNOTATION)
        ),
    )


def _documents(file: Path) -> Iterator[dict[str, Any]]:
    """The objects of a YAML or JSON file; lists are taken apart, nulls are left out."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        documents = (
            [msgspec.json.decode(text)]
            if text.lstrip().startswith("{")
            else list(yaml.load_all(text, _Loader))
        )
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from None
    except (UnicodeDecodeError, msgspec.DecodeError, yaml.YAMLError) as error:
        raise InputError(f"{file} is neither YAML nor JSON: {error}") from None
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict) or "kind" not in document:
            raise InputError(f"{file} holds something that is no Kubernetes object (it has no kind)")
        yield from _flat(_without_nulls(document))


def _flat(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if str(document["kind"]).endswith("List") and isinstance(document.get("items"), list):
        kind = str(document["kind"]).removesuffix("List")
        for item in document["items"]:
            yield {"kind": kind, **item} if kind else item
    else:
        yield document


def _without_nulls(value: Any) -> Any:
    """The same without null members: what the API server would have left out."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


def _as(kind: type[T], document: Mapping[str, Any], file: Path) -> T:
    try:
        return msgspec.convert({"metadata": {}, **document}, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{file}: {name_of(document)}: {error}") from None
