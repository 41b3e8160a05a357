"""Plans: made from the placement core's answers, written as Placements, and checked for validity. Pure.

A plan is valid for nodes that exist, that accept the pods and did not refuse the gang, and that have capacity
for it. An invalid plan is not rolled back; its pods that still wait are placed again. As long as none of a
gang is released, all are placed again: some alone would hold nodes while they wait for the others.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final

from msgspec.structs import replace

from labeler.contract import annotations, keys
from webhook.grouping import grouped
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement, PlacementSpec, VictimGroup
from webhook.kube.plan_pods import PlannedPod
from webhook.placement import Assignment, Placed, Snapshot, Topology, Usage
from webhook.placement.cards.state import overbooked_cards
from webhook.placement.snapshot import NodeState
from webhook.sweeper.decide.attempt import Attempt, PassState
from webhook.sweeper.decide.gang_question import GangQuestion
from webhook.sweeper.decide.kubelet_refusals import NONE_REFUSED, KubeletRefusals
from webhook.sweeper.decide.moved_gangs import move_of, moves_under_way
from webhook.sweeper.decide.orders import NewPlan, Pair
from webhook.sweeper.decide.refusing_nodes import RefusingNodes
from webhook.sweeper.decide.release_queue import ReleaseQueue, SentReleases, Timestamps
from webhook.sweeper.decide.retries import RetryTable, Write
from webhook.sweeper.decide.waiting_plans import evicted_by_plans, promised_victims, wanted_resources
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.plans import node_hashes
from webhook.sweeper.observe.view import View

_NONE: Final[Mapping[str, str]] = {}


def planned_pods(
    attempt: Attempt, answer: Assignment, now: PassState, *, unpinned: bool
) -> tuple[PlannedPod, ...]:
    """The entries of the plan, in the order of release; CPU-only pods come last.

    Pods with rules on other pods are in the order of the answer, in which kube-scheduler accepts them. Cards
    have the time of the pass; `stamped` gives each pod its own. unpinned: see new_plan.
    """
    asked, beside = attempt.asked, attempt.beside
    found = [placed for placed in answer.placed if placed.member in asked.pods]
    cards = {placed.member: _card_annotations(placed, now.view.now.ns) for placed in found}
    workers = [asked.pods[placed.member] for placed in found]
    if asked.rules is None:
        workers.sort(key=_release_order)
    nodes = {} if unpinned else {**answer.nodes, **beside.nodes}
    hash_of = node_hashes(now.view.nodes, now.settings.topology)

    def entry(pod: Pod) -> PlannedPod:
        uid = pod.metadata.uid
        node, rank = nodes.get(uid, ""), attempt.gang.ranks.get(uid)
        return PlannedPod(pod.metadata.name, uid, node, rank, cards.get(uid, {}), hash_of(node))

    return tuple(map(entry, (*workers, *sorted(beside.pods.values(), key=_release_order))))


def nodes_for_later_pods(
    asked: GangQuestion, assignment: Assignment, before: Placement | None = None
) -> list[str]:
    """The nodes of pods that are not created yet; as before, where the question had none."""
    if not asked.gang.members and before is not None:
        return list(before.spec.later_pod_nodes)
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
    moves: Sequence[str] = (),
) -> PlacementSpec:
    """The gang's plan with new entries; entries of pods that are gone are left out.

    later_pod_nodes: nodes for pods that are not created yet. usable_nodes: how many there are now. domains,
    victims, avoided: see PlacementSpec. moves: with that to this place, () if the gang was not moved.

    A gang of which no planned pod exists any more starts again: the plan of its earlier life does not count.
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
        later_pod_nodes=list(later_pod_nodes),
        usable_nodes=(earlier.usable_nodes or usable_nodes) if later_pod_nodes else 0,
        minimum=gang.minimum or 0,
        domains={**earlier.domains, **domains},
        avoided=dict(avoided),
        moves=list(moves or (before.spec.moves if before is not None else ())),
    )


def _still_valid(gang: PodGang, before: PlacementSpec, added: Iterable[PlannedPod]) -> PlacementSpec:
    """The entries of an earlier plan for existing pods that are not planned again; see plan_spec."""
    present = {pod.metadata.uid for pod in gang.pods} - {planned.uid for planned in added}
    there = [planned for planned in before.pods if planned.uid in present]
    if there:
        return replace(before, pods=there)
    return PlacementSpec(attempt=before.attempt + bool(before.pods))


def _size(gang: PodGang) -> int:
    """The size with which a gang counts as complete, 0 where unknown.

    A gang that lacks pods which its controller cannot create never counts as complete.
    """
    if gang.blocked_reason:
        return gang.size or 0
    return min(gang.minimum or gang.size or 0, len(gang.pods) + len(gang.later))


def _victims(gang: PodGang, earlier: PlacementSpec, added: Sequence[VictimGroup]) -> list[VictimGroup]:
    """The victims of a gang, with these. earlier: its plan, as far as it still counts.

    Victims for pods that have been released since are no longer needed.
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

    It has no owner, and the sweeper deletes it once none of its pods exists. A pod that was released to a
    node counts there because a Placement says so; with an owner, which pods name as their authors like, any
    user could have it garbage-collected before.
    """
    return {"namespace": gang.key.namespace, "name": gang.key.placement_name}


def _release_order(pod: Pod) -> tuple[str, str]:
    """The kubelet admits pods by age, and the device plugin uses gas-ts: keep both in one order."""
    return pod.metadata.creation_timestamp or "", pod.metadata.name


def _card_annotations(placed: Placed, now_ns: int) -> dict[str, str]:
    if not any(placed.cards):
        return {}
    slots = [
        tuple(annotations.SlotCard(int(share.card.removeprefix("card")), share.tiles) for share in slot)
        for slot in placed.cards
    ]
    return annotations.encode_allocation(slots, now_ns)


# --- new plans ----------------------------------------------------------------------------------------


def timestamps_of(view: View, last: int) -> Timestamps:
    """For plans and releases on this view: above all times that pods carry, or plans say they will.

    last: the one that was given last.
    """
    ours = (pod.metadata.annotations for pod in view.stamped)
    planned = (each.annotations for known in view.placements.values() for each in known.spec.pods)
    timestamps = Timestamps(last)
    timestamps.observe(itertools.chain(ours, planned))
    return timestamps


def stamped(pairs: Iterable[Pair], timestamps: Timestamps, now_ns: int) -> tuple[Pair, ...]:
    """The pods with the times at which they are released now.

    While an earlier plan waited, another pod may have been released to the node, with a newer time.
    """

    def of(planned: PlannedPod) -> PlannedPod:
        if not planned.annotations:
            return planned
        stamp = annotations.encode_timestamp(timestamps.next(now_ns))
        return replace(planned, annotations=planned.annotations | {keys.GAS_TIMESTAMP_ANNOTATION: stamp})

    return tuple((pod, of(planned)) for pod, planned in pairs)


def new_plan(attempt: Attempt, now: PassState, *, unpinned: bool = False) -> NewPlan:
    """The plan of a gang whose waiting pods found the places of the answer, and of what the steps found.

    unpinned: whether kube-scheduler chooses the nodes.
    """
    gang, asked, answer = attempt.gang, attempt.asked, attempt.answer
    assert isinstance(answer, Assignment)
    others = now.view.placed_on(gang.workers)
    victims = attempt.preemption.victims if attempt.preemption is not None else ()
    entries = planned_pods(attempt, answer, now, unpinned=unpinned)
    nodes = {*others.values(), *_nodes_of_workers(asked, entries)}
    labels = now.view.labels_of(nodes)
    move = move_of(gang, frozenset(nodes), now.ledger)
    before = now.view.placements.get(gang.key.placement_key)
    going = moves_under_way(before, now.ledger, now.view)
    return NewPlan(
        gang,
        asked,
        answer,
        entries,
        preempts=attempt.preemption is not None,
        usage_version=now.given.usage_version,
        spread=spread(nodes, labels, now.settings.topology),
        later_pod_nodes=tuple(nodes_for_later_pods(asked, answer, before)),
        beside=attempt.beside,
        domains=gang.division.domains({**others, **({} if unpinned else answer.nodes)}),
        placed=len({*others, *asked.pods}),
        victims=(*victims, *going),
        avoided=_avoided(attempt, nodes, now),
        moves=move.moves if move is not None else (),
    )


def _avoided(attempt: Attempt, nodes: Set[str], now: PassState) -> dict[str, str]:
    """Node -> why the plan does not use it, for nodes with GPUs of the same models."""
    model_of, labels_of = now.settings.counting.model, now.view.labels_of
    models = set(map(model_of, labels_of(nodes).values()))
    return attempt.nodes.unused(
        nodes, lambda name: not models.isdisjoint(map(model_of, labels_of([name]).values()))
    )


def _nodes_of_workers(asked: GangQuestion, entries: Iterable[PlannedPod]) -> set[str]:
    """The nodes of planned pods, without CPU-only pods and those that kube-scheduler places."""
    return {entry.node for entry in entries if entry.node and entry.uid in asked.pods}


def with_releases(plan: NewPlan, queue: ReleaseQueue, timestamps: Timestamps, view: View) -> NewPlan:
    """The plan with the times of its pods, and with those that are released at once.

    A plan with victims is released once they are gone, see look_for_victims.
    """
    pairs = stamped(((plan.pods[entry.uid], entry) for entry in plan.entries), timestamps, view.now.ns)
    ready = [pair for pair in pairs if pair[1].uid not in view.not_released and not plan.victims]
    return dataclasses.replace(plan, entries=tuple(entry for _, entry in pairs), now=queue.take(ready))


# --- which plans still hold ---------------------------------------------------------------------------


def with_valid_plans(
    view: View,
    topology: Topology,
    refusing: RefusingNodes,
    sent: SentReleases,
    given_up: Set[str] = frozenset(),
    refusals: KubeletRefusals = NONE_REFUSED,
) -> View:
    """The view with the valid plans: without those for nodes that refused the gang, or changed their domains.

    A pod that we have released and that the watch still shows as gated is where we sent it. given_up: uids of
    pods whose plans were invalid before. Their nodes may be those of other gangs by now, so these pods need
    new plans. refusals: of kubelets, of which those of this pass count.
    """
    refused = {
        own.uid
        for pod in view.gated
        if (own := view.planned.get(pod.metadata.uid)) is not None
        and _has_refused(own.node, view.gang_of(pod), view.controller_of(pod), refusing, refusals)
    }
    refused |= given_up & view.planned.keys()
    refused |= _of_changed_nodes(view, topology)
    lost = {each.uid for each in view.written} - view.planned.keys()  # their nodes take them no more
    refused |= _planned_with(refused | lost, view, sent)
    planned = {uid: each for uid, each in view.planned.items() if uid not in refused}
    planned.update((uid, each.planned) for uid, each in sent.done.items())
    return view.with_plans(planned)


def _of_changed_nodes(view: View, topology: Topology) -> Set[str]:
    """The planned pods whose node was replaced, or moved in the topology, since it was chosen."""
    present = node_hashes(view.nodes, topology)
    return {uid for uid, each in view.planned.items() if each.node_hash not in ("", present(each.node))}


def _has_refused(
    node: str, gang: GangKey, controller: GangKey, refusing: RefusingNodes, refusals: KubeletRefusals
) -> bool:
    return node in refusing.nodes_of(gang, controller) or (controller, node) in refusals.new


def without_overbooked(view: View, snapshot: Snapshot, sent: SentReleases) -> View:
    """The view without unreleased entries of plans on nodes that others have filled meanwhile.

    It is the same view if there are none. A plan that preempts is for full nodes on purpose: its victims do
    not make it invalid, nor do other pods of lower priority that make way for it.
    """
    preempting = {
        planned.uid
        for placement in view.placements.values()
        if placement.spec.preempts
        for planned in placement.spec.pods
    }
    pods = {pod.metadata.uid: pod for pod in view.gated if pod.metadata.uid in view.planned}
    victims = promised_victims(view)

    def going(pod: Pod) -> Callable[[Usage], bool]:
        below = (pod.spec.priority or 0) if pod.metadata.uid in preempting else None
        return lambda use: use.uid in victims or (below is not None and is_displaced(use.uid, below))

    is_displaced = _displaced_pods(view, snapshot, pods.keys() - sent.done.keys())
    dropped = {
        uid
        for uid, planned in view.planned.items()
        if uid not in sent and _is_overbooked(snapshot, planned, pods[uid], view, going(pods[uid]))
    }
    return without_plans(view, dropped, sent)


def with_fitting_plans(
    view: View, snapshot_of: Callable[[View], Snapshot], sent: SentReleases
) -> tuple[View, Snapshot]:
    """The view without overbooked entries of plans, see without_overbooked, and its snapshot."""
    snapshot = snapshot_of(view)
    fitting = without_overbooked(view, snapshot, sent)
    return (view, snapshot) if fitting is view else (fitting, snapshot_of(fitting))


def _displaced_pods(view: View, snapshot: Snapshot, unreleased: Set[str]) -> Callable[[str, int], bool]:
    """Whether a pod makes way for a plan that preempts, by uid and the priority of the plan's pod.

    Pods of other gangs that topogate has placed do not: they have got the node since. kube-scheduler would
    preempt some of a gang, or bind them first. unreleased: pods whose own entry is invalid instead.
    """
    evicted = evicted_by_plans(view, snapshot)

    def is_displaced(uid: str, priority: int) -> bool:
        pod = view.by_uid.get(uid)
        if pod is None or (pod.spec.priority or 0) >= priority:
            return False
        is_passing = uid in unreleased or pod.metadata.deletion_timestamp is not None
        return is_passing or not view.is_ours(pod) or uid in evicted

    return is_displaced


def without_given_up(view: View, before: View) -> View:
    """A newer view without the plans that did not hold in the view before, and are the same still."""
    given_up = [each for each in before.written if each.uid not in before.planned]
    uids = {each.uid for each in given_up if view.planned.get(each.uid) is each}
    return view.with_plans({uid: each for uid, each in view.planned.items() if uid not in uids})


def _planned_with(uids: Set[str], view: View, sent: SentReleases) -> Set[str]:
    """The planned pods of the same gangs as these, of gangs of which none is released.

    None of an elastic gang that has its minimum without these.
    """
    if not uids:
        return frozenset()
    gangs = grouped((view.gang_of(pod), pod.metadata.uid) for pod in view.gated)
    lost = (
        own
        for gang, own in ((gang, frozenset(each)) for gang, each in gangs.items())
        if own & uids and not _has_minimum(gang, own - uids, view) and not _has_begun(gang, own, view, sent)
    )
    return frozenset().union(*lost) & view.planned.keys()


def _has_minimum(gang: GangKey, uids: Set[str], view: View) -> bool:
    """Whether enough of these pods of an elastic gang are planned."""
    placement = view.placements.get(gang.placement_key)
    minimum = placement.spec.minimum if placement is not None else 0
    return 0 < minimum <= len(uids & view.planned.keys())


def _has_begun(gang: GangKey, gated: Set[str], view: View, sent: SentReleases) -> bool:
    """Whether a pod of it is released, also one that the watch still shows as gated."""
    others = view.index.mates.get(gang, ())
    return any(uid in sent for uid in gated) or any(not pod.metadata.deletion_timestamp for pod in others)


def without_plans(view: View, uids: Set[str], sent: SentReleases) -> View:
    """The view without the plans for these pods, the same if there are none."""
    uids = uids | _planned_with(uids, view, sent)
    return view.without_plans(uids) if uids else view


def _is_overbooked(
    snapshot: Snapshot, planned: PlannedPod, pod: Pod, view: View, is_going: Callable[[Usage], bool]
) -> bool:
    """Whether a node lacks the resources or cards of the pod planned for it.

    is_going: returns which usages do not count.
    """
    state = snapshot.nodes.get(planned.node)
    if state is None:
        return True
    short = [name for name in wanted_resources(pod, view) if state.free.get(name, 0) < 0]
    going = [use.requests for use in state.usages if is_going(use)] if short else []
    if any(state.free[name] + sum(requests.get(name, 0) for requests in going) < 0 for name in short):
        return True
    return bool(planned.annotations) and _is_on_overbooked_card(state, pod.metadata.uid)


def _is_on_overbooked_card(state: NodeState, uid: str) -> bool:
    """A card that has broken stays overbooked as long as a pod runs on it, beside pods on other cards."""
    own = {card for use in state.usages if use.uid == uid for card in use.cards.keys() | use.tiles.keys()}
    return not own.isdisjoint(overbooked_cards(state.node, state.usages))


def unfinished(
    view: View, retries: RetryTable, sent: SentReleases, waiting: Set[str] = frozenset()
) -> list[Pair]:
    """The planned releases that an earlier pass, or leader, did not carry out, in the order of the plans.

    waiting: uids of pods that wait for victims, or for a write of an extension.
    """
    gated = {pod.metadata.uid: pod for pod in view.gated}
    return [
        (pod, planned)
        for uid, planned in view.planned.items()
        if (pod := gated.get(uid)) is not None
        and uid not in sent
        and uid not in waiting
        and not retries.seconds_left((Write.GANG, view.gang_of(pod)), view.now.seconds)
    ]
