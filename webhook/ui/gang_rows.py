"""The list of waiting and running gangs, with the nodes of their pods. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from webhook.kube.objects import Pod
from webhook.placement import PodClass, Snapshot
from webhook.placement.snapshot import key_of
from webhook.sweeper.observe.fewest_domains import FewestDomains
from webhook.sweeper.observe.gangs import GangKey
from webhook.sweeper.observe.view import View
from webhook.text import counted
from webhook.ui.picture import NodeTile, Shown

WITHOUT_PLACEMENT: str = "Held"
"""The state of a gang with gated pods and without a Placement: the sweeper has not handled it yet."""


class ShownMember(Shown, frozen=True):
    """A pod of a gang: its rank if it has one, and its node, "" while it waits."""

    name: str
    node: str = ""
    rank: int | None = None


class GangRow(Shown, frozen=True):
    """A gang in the list. created: RFC 3339; proven: no better plan existed when it was planned.

    domains: how many domains of each upper level its pods are in. fewest: the fewest that are possible in an
    empty cluster, [] if it does not fit there. compared: both as text. models: of the nodes of its pods, else
    those that its pods select.
    """

    id: str
    namespace: str
    kind: str
    name: str
    state: str
    pods: int
    waiting: int
    bound: int
    size: int
    gpus: int
    priority: int
    created: str
    spread: str = ""
    reason: str = ""
    proven: bool = True
    domains: list[int] = msgspec.field(default_factory=list)
    fewest: list[int] = msgspec.field(default_factory=list)
    compared: str = ""
    models: list[str] = msgspec.field(default_factory=list)
    members: list[ShownMember] = msgspec.field(default_factory=list)


UPPER_LEVELS: int = 2
"""The levels, coarsest first, whose domains the list counts: lower levels would say little more than pods."""

KeyOf = Callable[[Pod], GangKey]
ModelOf = Callable[[Mapping[str, str]], str]


@dataclass
class _Pods:
    gated: list[Pod] = field(default_factory=list)
    others: list[Pod] = field(default_factory=list)


def list_gangs(
    view: View, gpus_of: Mapping[str, int], key: KeyOf | None = None, model_of: ModelOf = lambda _: ""
) -> list[GangRow]:
    """Gangs with a gated pod or a Placement: waiting gangs first, then by priority and age.

    gpus_of: GPUs by the pod's uid. key: the gang of a pod, if already known. model_of: the GPU model that
    labels name, "" if none.
    """
    by_key: dict[GangKey, _Pods] = {}
    key = key or view.gang_of
    for pod in view.gated:
        by_key.setdefault(key(pod), _Pods()).gated.append(pod)
    for pod in view.others:
        if pod.metadata.uid in gpus_of or view.is_ours(pod):
            by_key.setdefault(key(pod), _Pods()).others.append(pod)
    rows = [
        _row(gang, pods, view, gpus_of, model_of)
        for gang, pods in by_key.items()
        if pods.gated or gang.placement_key in view.placements
    ]
    return sorted(rows, key=lambda row: (not row.waiting, -row.priority, row.created, row.id))


def _row(  # branches: a record, one value a field
    gang: GangKey, pods: _Pods, view: View, gpus_of: Mapping[str, int], model_of: ModelOf
) -> GangRow:
    everyone = pods.gated + pods.others
    placement = view.placements.get(gang.placement_key)
    ranks = {each.uid: each.rank for each in placement.spec.pods} if placement else {}
    nodes = view.placed_on(everyone)
    members = [
        ShownMember(pod.metadata.name, nodes.get(pod.metadata.uid, ""), ranks.get(pod.metadata.uid))
        for pod in everyone
    ]
    status = placement.status if placement else None
    return GangRow(
        id=gang.placement_key,
        namespace=gang.namespace,
        kind=gang.kind,
        name=gang.name,
        state=(status.state if status else "") or WITHOUT_PLACEMENT,
        pods=len(everyone),
        waiting=sum(pod.metadata.uid not in nodes for pod in pods.gated),
        bound=sum(bool(pod.spec.node_name) for pod in everyone),
        size=max(placement.spec.size if placement else 0, len(everyone)),
        gpus=sum(gpus_of.get(pod.metadata.uid, 0) for pod in everyone),
        priority=max((pod.spec.priority or 0 for pod in everyone), default=0),
        created=min((pod.metadata.creation_timestamp or "" for pod in everyone), default=""),
        spread=status.spread if status else "",
        reason=status.reason if status else "",
        proven=placement.spec.proven if placement else True,
        models=sorted({model_of(pod.spec.node_selector) for pod in everyone} - {""}),
        members=sorted(members, key=lambda each: (each.rank is None, each.rank or 0, each.name)),
    )


def with_models(row: GangRow, nodes: Mapping[str, NodeTile]) -> GangRow:
    """The row with the models of the nodes of its pods, if any are placed. nodes: by name."""
    placed = {nodes[each.node].model for each in row.members if each.node in nodes}
    return msgspec.structs.replace(row, models=sorted(placed - {""})) if placed else row


def with_spread(
    row: GangRow, classes: Mapping[PodClass, int], snapshot: Snapshot, fewest_domains: FewestDomains
) -> GangRow:
    """The row with its spread, and the best spread that its usable nodes allow.

    classes: the classes of its existing pods with GPUs, and their numbers; missing pods count like these.
    """
    if not row.gpus or not row.pods or not classes:
        return row
    names = snapshot.topology.level_names[:UPPER_LEVELS]
    pods = {each: -(-count * row.size // row.pods) for each, count in classes.items()}
    fewest = fewest_domains.of(pods, snapshot)[: len(names)]
    there = [snapshot.nodes[each.node] for each in row.members if each.node in snapshot.nodes]
    keys = {key_of(state, len(snapshot.topology.level_names)) for state in there}
    domains = [len({key[: level + 2] for key in keys}) for level in range(len(names))] if keys else []
    return msgspec.structs.replace(
        row, domains=domains, fewest=fewest, compared=_compared(names, domains, fewest)
    )


def _compared(names: Sequence[str], domains: Sequence[int], fewest: Sequence[int]) -> str:
    """Such as "1 block, 3 subblocks (best 2)"; before any pod is placed, "at best 1 block, 2 subblocks".

    fewest: empty if its usable nodes have no capacity for it even without other pods.
    """
    if not fewest and not domains:
        return "more than its nodes have"
    fewest = fewest or domains
    words = [
        counted(count, name) + (f" (best {best})" if domains and best < count else "")
        for name, count, best in zip(names, domains or fewest, fewest, strict=True)
    ]
    return ("" if domains else "at best ") + ", ".join(words)
