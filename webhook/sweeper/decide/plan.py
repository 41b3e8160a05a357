"""From a gang of pods to a question for the placement core, and from its answer to a plan. Pure."""

import re
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from labeler.contract import annotations, keys
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement, PlacementSpec, PlannedPod
from webhook.placement import Anchor, Assignment, Gang, Member, Placed, PlacementError, Topology
from webhook.placement.model import PodClass
from webhook.scheduling import convert
from webhook.sweeper.decide import slices
from webhook.sweeper.observe.gangs import PodGang

_TIME: Final = re.compile(r"[1-9][0-9]{18}")
_AHEAD_NS: Final = 24 * 3600 * 10**9
"""A time further ahead than a clock may be wrong was not written by us."""


class Timestamps:
    """gas-ts: 19 digits that only grow, also over restarts and when the clock is set back."""

    def __init__(self) -> None:
        """Nothing has been seen yet."""
        self._last = 0
        self._lock = threading.Lock()

    def saw(self, annotations: Iterable[Mapping[str, str]], now_ns: int) -> None:
        """Never go below what is written among these pods' annotations, if it can be a time of ours."""
        for each in annotations:
            value = each.get(keys.GAS_TIMESTAMP_ANNOTATION, "")
            if _TIME.fullmatch(value) and int(value) <= now_ns + _AHEAD_NS:
                with self._lock:
                    self._last = max(self._last, int(value))

    def next(self, now_ns: int) -> int:
        """The next one, not before now_ns (nanoseconds since 1970)."""
        with self._lock:
            self._last = max(self._last + 1, now_ns)
            return self._last


ClassOf = Callable[[Pod], PodClass]


@dataclass(frozen=True)
class Question:
    """A gang as the placement core sees it, and which pod each of its members is."""

    gang: Gang
    pods: Mapping[str, Pod]


def question(
    gang: PodGang,
    pods: Iterable[Pod],
    placed_on: Mapping[str, str],
    avoid: frozenset[str] = frozenset(),
    class_of: ClassOf = convert.pod_class_of,
    in_a_plan: Container[str] = frozenset(),
) -> Question:
    """Ask for places for `pods`; the gang's other pods of their kind anchor them where they are.

    class_of: what a pod asks for, see View.class_of. in_a_plan: uids of the pods that went through us.
    placed_on: uid -> node of the members that have a node already. avoid: nodes that are not to be used.
    Raises PlacementError for a gang that cannot be placed as it is written.
    """
    if gang.fault:
        raise PlacementError(gang.fault)
    by_name = {pod.metadata.uid: pod for pod in pods}
    members = tuple(Member(uid, gang.ranks.get(uid), class_of(pod)) for uid, pod in by_name.items())
    anchors = tuple(
        Anchor(placed_on[pod.metadata.uid], gang.ranks.get(pod.metadata.uid))
        for pod in _anchoring(gang, members, in_a_plan)
        if pod.metadata.uid in placed_on
    )
    asked = Gang(
        str(gang.key),
        members,
        required_level=gang.required_level,
        preferred_level=gang.preferred_level,
        anchors=anchors,
        excluded_nodes=avoid,
    )
    return Question(slices.asked_for(asked, gang), by_name)


def _anchoring(gang: PodGang, members: Iterable[Member], in_a_plan: Container[str]) -> Iterator[Pod]:
    """The members beside which the waiting ones are to be: those that we hold, planned or released.

    A pod that never went through us stands wherever kube-scheduler liked: a launcher, driver or head without
    GPU, perhaps on a node without topology labels, and nobody wishes to be near it. Yet a gang may also have
    begun before topogate did; so a stranger counts if it takes some of the extended resources (GPUs, cards)
    that the waiting members ask for, as their like do.
    """
    wanted = {name for member in members for name in _extended(member.pod_class)}
    yield from gang.gated
    for pod in gang.released:
        if pod.metadata.uid in in_a_plan or wanted & _extended(convert.pod_class_of(pod)):
            yield pod


def _extended(pod_class: PodClass) -> frozenset[str]:
    """The extended resources of a request: those with a domain of their own, as nvidia.com/gpu."""
    names = (name for name, _ in pod_class.requests)
    return frozenset(name for name in names if "/" in name and "kubernetes.io/" not in name)


def planned_pods(
    gang: PodGang, asked: Question, assignment: Assignment, timestamps: Timestamps, now_ns: int
) -> list[PlannedPod]:
    """The entries of the plan, in the order in which the pods are to be released."""
    return [
        PlannedPod(
            name=asked.pods[placed.member].metadata.name,
            uid=placed.member,
            node=placed.node,
            rank=gang.ranks.get(placed.member),
            annotations=_card_annotations(placed, timestamps, now_ns),
        )
        for placed in sorted(assignment.placed, key=lambda placed: _release_order(asked.pods[placed.member]))
    ]


def plan_spec(
    gang: PodGang,
    before: Placement | None,
    added: list[PlannedPod],
    *,
    proven: bool = True,
    preempts: bool = False,
) -> PlacementSpec:
    """The gang's plan with new entries; entries of pods that are gone are left out.

    A gang none of whose planned pods is there any more begins anew: what was said of its earlier life
    does not hold for this one.
    """
    present = {pod.metadata.uid for pod in gang.pods} - {planned.uid for planned in added}
    earlier = before.spec if before else PlacementSpec()
    kept = [planned for planned in earlier.pods if planned.uid in present]
    return PlacementSpec(
        gang=f"{gang.key.kind}/{gang.key.name}",
        gang_id=gang.key.id,
        size=min(gang.size or 0, len(gang.pods)),
        proven=proven,
        preempts=preempts or bool(kept and earlier.preempts),
        attempt=earlier.attempt + bool(earlier.pods and not kept),
        pods=kept + added,
    )


def spread(nodes: Iterable[str], labels: Mapping[str, Mapping[str, str]], topology: Topology) -> str:
    """How a gang lies over the levels, as "1 block, 2 subblocks, 16 hosts, 16 nodes".

    labels: node name -> its labels; nodes without a full set of topology labels are domains of their own.
    """
    names = set(nodes)
    paths = [
        topology.path(labels.get(name, {})) or (name,) * (len(topology.level_names) + 1) for name in names
    ]
    counts = [
        (len({path[: level + 2] for path in paths}), name) for level, name in enumerate(topology.level_names)
    ]
    counts.append((len(names), "node"))
    return ", ".join(f"{count} {name}{'s' * (count != 1)}" for count, name in counts)


def plan_metadata(gang: PodGang) -> dict[str, Any]:
    """Name and owner of the gang's Placement: it goes when the gang's controller goes."""
    metadata: dict[str, Any] = {"namespace": gang.key.namespace, "name": gang.key.placement_name}
    owners = {pod.metadata.controller for pod in gang.pods}
    owner = owners.pop() if len(owners) == 1 else None
    if owner is not None:
        metadata["ownerReferences"] = [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
        ]
    return metadata


def _release_order(pod: Pod) -> tuple[str, str]:
    """kubelet takes pods that come together by age, and the device plugin goes by gas-ts: same order."""
    return pod.metadata.creation_timestamp or "", pod.metadata.name


def _card_annotations(placed: Placed, timestamps: Timestamps, now_ns: int) -> dict[str, str]:
    if not any(placed.cards):
        return {}
    slots = [
        tuple(annotations.CardShare(int(share.card.removeprefix("card")), share.tiles) for share in slot)
        for slot in placed.cards
    ]
    return annotations.encode_allocation(slots, timestamps.next(now_ns))
