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
from webhook.kube import convert, objects
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
from webhook.placement.cards import natural
from webhook.placement.quantities import QuantityError
from webhook.sweeper.gangs import slices_of

T = TypeVar("T", bound=msgspec.Struct)


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a date is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class InputError(ValueError):
    """A file that cannot be used; the text says which and why."""


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
        snapshot = read_snapshot(args.cluster)
        gang = _with_overrides(read_gang(args.manifest), args)
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


def read_snapshot(files: list[Path]) -> Snapshot:
    """The cluster of these files. Raises InputError."""
    nodes, usage = [], []
    for file in files:
        for document in _documents(file):
            if document.get("kind") == "Node":
                nodes.append(convert.node_of(_as(objects.Node, document, file)))
            elif document.get("kind") == "Pod":
                pod = _as(objects.Pod, _defaulted(document), file)
                if convert.occupies(pod):
                    usage.append((pod.spec.node_name, _usage(pod, file)))
    if not nodes:
        raise InputError(
            f"no nodes in {', '.join(map(str, files))}; save them with kubectl get nodes,pods -A -o json"
        )
    try:
        return Snapshot.build(nodes, usage)
    except PlacementError as error:
        raise InputError(str(error)) from None


def _usage(pod: objects.Pod, file: Path) -> Usage:
    try:
        return convert.usage_of(pod)
    except QuantityError as error:
        raise InputError(f"{file}: pod {pod.metadata.namespace}/{pod.metadata.name}: {error}") from None


def read_gang(file: Path) -> Gang:
    """The pods of a manifest as one gang. Raises InputError, and PlacementError for a wish that is none."""
    members: list[Member] = []
    annotations: dict[str, str] = {}
    names: list[str] = []
    for document in _documents(file):
        for name, rank, template in pods_of(document, file):
            pod = _as(objects.Pod, _defaulted(template), file)
            annotations |= pod.metadata.annotations
            members.append(Member(name, rank, convert.pod_class_of(pod)))
        names.append(_name(document))
    if not members:
        raise InputError(f"{file} describes no pods")
    return Gang(
        annotations.get(keys.GANG_ANNOTATION) or names[0],
        tuple(members),
        required_level=annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION),
        preferred_level=annotations.get(keys.PREFERRED_TOPOLOGY_ANNOTATION),
        slices=slices_of(
            annotations.get(keys.SLICE_TOPOLOGY_ANNOTATION), annotations.get(keys.SLICE_SIZE_ANNOTATION)
        ),
    )


Described = tuple[str, int | None, Mapping[str, Any]]
"""A pod's name, its rank and its template (metadata and spec)."""


def pods_of(document: Mapping[str, Any], file: Path) -> Iterator[Described]:
    """The pods that a workload makes at once: itself, or its template times its parallelism or replicas."""
    kind, name, spec = document.get("kind"), _name(document), document.get("spec") or {}
    match kind:
        case "Pod":
            yield name, None, document
        case "Job":
            yield from _copies(name, _job_size(spec), _template(spec, name, file))
        case "JobSet":
            rank = 0
            for part in spec.get("replicatedJobs") or ():
                job = (part.get("template") or {}).get("spec") or {}
                for replica in range(_number(part.get("replicas"), 1)):
                    prefix = f"{name}-{part.get('name', '')}-{replica}"
                    for pod, _, template in _copies(prefix, _job_size(job), _template(job, name, file)):
                        yield pod, rank, template
                        rank += 1
        case "StatefulSet" | "Deployment" | "ReplicaSet":
            yield from _copies(name, _number(spec.get("replicas"), 1), _template(spec, name, file))
        case _:
            if "template" in spec or "jobTemplate" in spec:
                raise InputError(f"{file}: cannot count the pods of {kind} {name}; give its pods instead")


def _job_size(spec: Mapping[str, Any]) -> int:
    parallelism = _number(spec.get("parallelism"), 1)
    completions = spec.get("completions")
    return parallelism if completions is None else min(parallelism, _number(completions, 1))


def _number(value: object, default: int) -> int:
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{value!r} is no number of pods")
    return value


def _copies(name: str, count: int, template: Mapping[str, Any]) -> Iterator[Described]:
    for number in range(count):
        yield f"{name}-{number}", number, template


def _template(spec: Mapping[str, Any], name: str, file: Path) -> Mapping[str, Any]:
    template = spec.get("template")
    if not isinstance(template, dict):
        raise InputError(f"{file}: {name} has no pod template")
    return template


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "pod")


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


def _defaulted(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The pod with what is required there; requests default from limits where they are counted."""
    return {
        "metadata": pod.get("metadata") or {},
        "spec": pod.get("spec") or {},
        "status": pod.get("status") or {},
    }


def _as(kind: type[T], document: Mapping[str, Any], file: Path) -> T:
    try:
        return msgspec.convert({"metadata": {}, **document}, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{file}: {_name(document)}: {error}") from None
