"""`topogate explain pod/NAME`: what a pod waits for, and what would help.

Reads the cluster once and asks the placement core the same question as the sweeper does; changes nothing.
"""

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from labeler.contract import keys
from webhook.kube import placements
from webhook.kube.client import Api, ApiError, ConnectError
from webhook.kube.objects import Node, ObjectList, Pod
from webhook.kube.placements import Placement
from webhook.placement import Gang, NoFit, Options, PlacementError, Snapshot, place
from webhook.placement import victims as claims
from webhook.scheduling import unmodelled
from webhook.sweeper.decide.question import question
from webhook.sweeper.observe.cache import NODES, PODS, UNFINISHED, owner_says
from webhook.sweeper.observe.gangs import GangKey, OwnerSays, PodGang, gather, key_of
from webhook.sweeper.observe.owners import Owners
from webhook.sweeper.observe.pins import is_gated, occupied_node
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings, SettingsError, load

PAGE_SIZE: Final = 500
OWNERS_SECONDS: Final = 10.0
T = TypeVar("T")


class ExplainError(Exception):
    """There is nothing to explain; the message says why."""


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("explain", help="why a pod waits, and what would help")
    parser.add_argument("pod", metavar="pod/NAME")
    parser.add_argument("-n", "--namespace", default="default")
    parser.add_argument("--kubeconfig", type=Path, help="default: $KUBECONFIG, else ~/.kube/config")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the sweeper's settings, if it has a file"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation; 0 if there is one, 1 if not, 2 for a wrong argument."""
    kind, _, name = arguments.pod.rpartition("/")
    if kind not in ("", "pod", "pods", "po") or not name:
        print(f"topogate explain: {arguments.pod!r} is no pod; write pod/NAME", file=sys.stderr)
        return 2
    try:
        settings = Settings(**(load(arguments.config) if arguments.config else {}))
        api = Api.connect(arguments.kubeconfig or _kubeconfig(), user_agent="topogate-explain")
        for line in explain(Cluster.read(api), arguments.namespace, name, settings):
            print(line)
    except (ApiError, ConnectError, ExplainError) as error:
        print(f"topogate explain: {error}", file=sys.stderr)
        return 1
    except SettingsError as error:
        print(f"topogate explain: {error}", file=sys.stderr)
        return 2
    return 0


def _kubeconfig() -> Path:
    listed = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(listed) if listed else Path.home() / ".kube" / "config"


@dataclass(frozen=True)
class Cluster:
    """One reading of the cluster."""

    pods: tuple[Pod, ...]
    nodes: Mapping[str, Node]
    placements: Mapping[str, Placement]
    size_of: Callable[[GangKey], OwnerSays]

    @classmethod
    def read(cls, api: Api) -> "Cluster":
        """List what is needed. Raises ApiError."""
        return cls(
            tuple(_read(api, PODS, Pod, fieldSelector=UNFINISHED)),
            {node.metadata.name: node for node in _read(api, NODES, Node)},
            {_name(each): each for each in _read(api, placements.ALL, Placement)},
            _asker(api),
        )

    def pod_items(self) -> Iterable[Pod]:
        """All unfinished pods."""
        return self.pods

    def node_items(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return self.nodes

    def current_placements(self) -> Mapping[str, Placement]:
        """Placements by "namespace/name"."""
        return self.placements


def explain(cluster: Cluster, namespace: str, name: str, settings: Settings) -> Iterator[str]:
    """The explanation, line by line. Raises ExplainError for a pod that is not there."""
    pod = next(
        (p for p in cluster.pods if (p.metadata.namespace, p.metadata.name) == (namespace, name)), None
    )
    if pod is None:
        raise ExplainError(f"there is no unfinished pod {name} in namespace {namespace}")
    if not is_gated(pod, settings.gate_prefix):
        yield from _not_ours(pod, settings.gate_prefix)
        return
    snapshotter = Snapshotter(cluster, settings)
    view = snapshotter.view()
    gang = next(each for each in gather(view.gated, view.others, cluster.size_of) if each.key == key_of(pod))
    others = [
        gate.name for gate in pod.spec.scheduling_gates if not gate.name.startswith(settings.gate_prefix)
    ]
    expected = "not known how many to expect" if gang.size is None else f"{gang.size} expected"
    yield f"Pod {namespace}/{name} waits for topogate, in the gang {gang.key.kind}/{gang.key.name}."
    yield (
        f"Gang: {len(gang.pods)} pods are there, {expected}; "
        f"{len(gang.gated)} wait, {len(gang.released)} are released."
    )
    yield from (f"Note: {problem}." for problem in gang.problems)
    if volumes := unmodelled.volume_note(pod):
        yield f"Note: {volumes}."
    if others:
        yield f"Other gates hold it as well: {', '.join(others)}."
    placement = cluster.placements.get(gang.key.placement_key)
    if placement is not None and placement.status.reason:
        yield f"Last try: {placement.status.reason}"
    if pod.metadata.uid in view.planned:
        yield f"It is planned on node {view.planned[pod.metadata.uid].node} and about to be released."
        return
    if gang.size is not None and len(gang.pods) < gang.size:
        yield (
            f"It waits for {gang.size - len(gang.pods)} more pods of its gang; after "
            f"{settings.patience_seconds:.0f} s without a new one, what is there is placed."
        )
    yield from _try_now(gang, view, snapshotter.snapshot(view), settings.options)


def _try_now(gang: PodGang, view: View, snapshot: Snapshot, options: Options) -> Iterator[str]:
    waiting = [pod for pod in gang.gated if pod.metadata.uid not in view.planned]
    try:
        places = view.placed_on(gang.pods)
        asked = question(gang, waiting, places, class_of=view.class_of, in_a_plan=view.in_a_plan).gang
        answer = place(asked, snapshot, options)
    except PlacementError as error:
        yield f"Now: it cannot be placed: {error}."
        return
    if not isinstance(answer, NoFit):
        yield f"Now: it fits, on {answer.spread}; the sweeper is about to, or waits for more pods."
        return
    yield f"Now: {answer.sentence}"
    if answer.nearest is not None:
        nearest = answer.nearest
        place_name = "/".join(nearest.domain)
        yield f"Nearest miss: {nearest.level} {place_name} has room for {nearest.room} of {answer.wanted}."
    help_there_is = list(_what_would_help(asked, gang, snapshot, options))
    yield from help_there_is or ["What would help: more nodes of the kind that it asks for."]


def _what_would_help(asked: Gang, gang: PodGang, snapshot: Snapshot, options: Options) -> Iterator[str]:
    wishes = []
    if asked.required_level is not None:
        wish = f"{keys.REQUIRED_TOPOLOGY_ANNOTATION}={asked.required_level}"
        wishes.append((wish, replace(asked, required_level=None)))
    if asked.slices:
        wish = f"{keys.SLICE_TOPOLOGY_ANNOTATION}={asked.slices[0].level}"
        wishes.append((wish, replace(asked, slices=())))
    for wish, without in wishes:
        relaxed = place(without, snapshot, options)
        if not isinstance(relaxed, NoFit):
            yield f"What would help: without {wish} it would fit now, on {relaxed.spread}."
    claimed = claims.claim(asked, snapshot, options, lambda use: True)
    if claimed is None:
        yield "What would help: other requests or more nodes; it would not fit even into an empty cluster."
        return
    shown = ", ".join(claimed.victims[:5]) + (" ..." if len(claimed.victims) > 5 else "")
    yield f"What would help: it fits when {len(claimed.victims)} other pods end: {shown}."
    lowest = min((pod.spec.priority or 0 for pod in gang.gated), default=0)
    if claims.claim(asked, snapshot, options, lambda use: use.priority < lowest) is None:
        yield f"Those pods do not have a lower priority than its own ({lowest}), so they are not preempted."


def _not_ours(pod: Pod, gate_prefix: str) -> Iterator[str]:
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if pod.spec.node_name:
        yield f"Pod {name} does not wait: it is bound to node {pod.spec.node_name}."
    elif (node := occupied_node(pod, gate_prefix)) is not None:
        yield f"Pod {name} was released by topogate to node {node}; kube-scheduler has not bound it yet."
    elif pod.spec.scheduling_gates:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
        yield f"Pod {name} waits, but not for topogate: it is held by {gates}."
    else:
        yield (
            f"Pod {name} was never held by topogate: it asks for no GPU, is opted out, or its namespace "
            f"lacks the label {keys.INJECTION_LABEL}={keys.INJECTION_ENABLED}. It waits for kube-scheduler."
        )


def _read(api: Api, path: str, kind: type[T], **query: str) -> Iterator[T]:
    decoder = msgspec.json.Decoder(ObjectList[kind])  # type: ignore[valid-type]
    more = {"limit": str(PAGE_SIZE), **query}
    while True:
        page = decoder.decode(api.request("GET", path, query=more, timeout_seconds=60))
        yield from page.items
        if not page.metadata.continue_:
            return
        more["continue"] = page.metadata.continue_


def _asker(api: Api) -> Callable[[GangKey], OwnerSays]:
    """Ask the controllers that the cluster serves; what cannot be read in time leaves sizes unknown."""
    owners = Owners(api, lambda: None)
    owners.start()
    deadline = time.monotonic() + OWNERS_SECONDS
    while not owners.synced and time.monotonic() < deadline:
        time.sleep(0.02)
    return functools.partial(owner_says, owners)


def _name(item: Placement) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"
