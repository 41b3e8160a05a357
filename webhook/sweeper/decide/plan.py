"""From the placement core's answer to a gang's plan, the Placement. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from labeler.contract import annotations
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement, PlacementSpec, VictimGroup
from webhook.kube.planned import PlannedPod
from webhook.placement import Assignment, Placed, Topology
from webhook.sweeper.decide.cpu_pods import Beside
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.decide.release_queue import Timestamps
from webhook.sweeper.observe.gangs import PodGang

_NONE: Final[Mapping[str, str]] = {}


def planned_pods(
    gang: PodGang,
    asked: GangQuestion,
    assignment: Assignment,
    timestamps: Timestamps,
    now_ns: int,
    beside: Beside | None = None,
) -> list[PlannedPod]:
    """The entries of the plan, in the order in which the pods are to be released; CPU-only pods come last.

    Pods with rules on other pods are in the order of the answer: in that kube-scheduler takes them.
    """
    found = [placed for placed in assignment.placed if placed.member in asked.pods]
    if asked.rules is None:
        found.sort(key=lambda placed: _release_order(asked.pods[placed.member]))
    entries = [
        PlannedPod(
            name=asked.pods[placed.member].metadata.name,
            uid=placed.member,
            node=placed.node,
            rank=gang.ranks.get(placed.member),
            annotations=_card_annotations(placed, timestamps, now_ns),
        )
        for placed in found
    ]
    if beside is not None:
        nodes = beside.nodes
        entries += [
            PlannedPod(name=pod.metadata.name, uid=uid, node=nodes[uid], rank=gang.ranks.get(uid))
            for uid, pod in sorted(beside.pods.items(), key=lambda each: _release_order(each[1]))
        ]
    return entries


def nodes_for_later_pods(
    asked: GangQuestion, assignment: Assignment, before: Placement | None = None
) -> list[str]:
    """The nodes where pods will go that are yet to be made; as before, where nothing was asked for."""
    if not asked.gang.members and before is not None:
        return list(before.spec.kept)
    return sorted({placed.node for placed in assignment.placed if placed.member not in asked.pods})


def plan_spec(
    gang: PodGang,
    before: Placement | None,
    added: list[PlannedPod],
    later_pod_nodes: Sequence[str] = (),
    *,
    proven: bool = True,
    preempts: bool = False,
    domains: Mapping[str, str] = _NONE,
    victims: Sequence[VictimGroup] = (),
    avoided: Mapping[str, str] = _NONE,
    usable_nodes: int = 0,
) -> PlacementSpec:
    """The gang's plan with new entries; entries of pods that are gone are left out.

    later_pod_nodes: nodes for pods that are yet to be made. usable_nodes: how many there are now. domains,
    victims, avoided: see PlacementSpec.

    A gang none of whose planned pods is there any more begins anew: what was said of its earlier life
    does not hold for this one.
    """
    earlier = _still_valid(gang, before.spec, added) if before is not None else PlacementSpec()
    return PlacementSpec(
        gang=f"{gang.key.kind}/{gang.key.name}",
        gang_id=gang.key.id,
        size=_size(gang),
        proven=proven,
        preempts=preempts or earlier.preempts,
        victims=_victims(gang, earlier, victims),
        attempt=earlier.attempt,
        pods=earlier.pods + added,
        kept=list(later_pod_nodes),
        usable_nodes=(earlier.usable_nodes or usable_nodes) if later_pod_nodes else 0,
        minimum=gang.minimum or 0,
        domains={**earlier.domains, **domains},
        avoided=dict(avoided),
    )


def _still_valid(gang: PodGang, before: PlacementSpec, added: Iterable[PlannedPod]) -> PlacementSpec:
    """What an earlier plan says of pods that are there and are not planned again; see plan_spec."""
    present = {pod.metadata.uid for pod in gang.pods} - {planned.uid for planned in added}
    there = [planned for planned in before.pods if planned.uid in present]
    if there:
        return replace(before, pods=there)
    return PlacementSpec(attempt=before.attempt + bool(before.pods))


def _size(gang: PodGang) -> int:
    """With how many pods a gang counts as complete, 0 where nobody says.

    A gang that lacks pods which its controller cannot make is never taken for whole.
    """
    if gang.blocked_reason:
        return gang.size or 0
    return min(gang.minimum or gang.size or 0, len(gang.pods) + len(gang.later))


def _victims(gang: PodGang, earlier: PlacementSpec, added: Sequence[VictimGroup]) -> list[VictimGroup]:
    """Who is to go for a gang, with these. earlier: what still counts of its plan.

    Whoever was to go for pods that have been released since is in nobody's way any more.
    """
    waiting = {pod.metadata.uid for pod in gang.gated}
    before = earlier.victims if any(each.uid in waiting for each in earlier.pods) else []
    return [*(old for old in before if old not in added), *added]


def spread(nodes: Iterable[str], labels: Mapping[str, Mapping[str, str]], topology: Topology) -> str:
    """How a gang lies over the levels, as "1 block, 2 subblocks, 16 hosts, 16 nodes".

    labels: node name -> its labels; nodes without a full set of topology labels are domains of their own.
    """
    names = set(nodes)
    levels = range(len(topology.level_names))
    places = {name: topology.path(labels.get(name, {})) for name in names}
    families = {path[0] for path in places.values() if path is not None}
    paths = [path or (name,) * (len(levels) + 1) for name, path in places.items()]
    domains = [*(len({path[: level + 2] for path in paths}) for level in levels), len(names)]
    return topology.spread(domains, families)


def plan_metadata(gang: PodGang) -> dict[str, Any]:
    """Namespace and name of the gang's Placement.

    It has no owner, and is removed by the sweeper once none of its pods is there: a pod that was sent to a
    node counts there because a Placement says so, and with an owner, which pods name as their authors like,
    anybody could have it collected before.
    """
    return {"namespace": gang.key.namespace, "name": gang.key.placement_name}


def _release_order(pod: Pod) -> tuple[str, str]:
    """kubelet takes pods that come together by age, and the device plugin goes by gas-ts: same order."""
    return pod.metadata.creation_timestamp or "", pod.metadata.name


def _card_annotations(placed: Placed, timestamps: Timestamps, now_ns: int) -> dict[str, str]:
    if not any(placed.cards):
        return {}
    slots = [
        tuple(annotations.SlotCard(int(share.card.removeprefix("card")), share.tiles) for share in slot)
        for slot in placed.cards
    ]
    return annotations.encode_allocation(slots, timestamps.next(now_ns))
