"""The list of waiting and running gangs, with the nodes of their pods. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from webhook.kube.objects import Pod
from webhook.placement import Snapshot
from webhook.placement.snapshot import key_of
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

    domains: how many domains of each upper level its pods are in. compared: the same as text. models: of the
    nodes of its pods, else those that its pods select.
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


def with_spread(row: GangRow, snapshot: Snapshot) -> GangRow:
    """The row with how many domains of the upper levels its pods are in."""
    names = snapshot.topology.level_names[:UPPER_LEVELS]
    there = [snapshot.nodes[each.node] for each in row.members if each.node in snapshot.nodes]
    keys = {key_of(state, len(snapshot.topology.level_names)) for state in there}
    domains = [len({key[: level + 2] for key in keys}) for level in range(len(names))] if keys else []
    compared = ", ".join(counted(count, name) for name, count in zip(names, domains, strict=False))
    return msgspec.structs.replace(row, domains=domains, compared=compared)
