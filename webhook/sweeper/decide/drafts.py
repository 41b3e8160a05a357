"""Plans from answers of the placement core: CPU-only pods, what is kept, whose turn it is."""

import itertools
from collections.abc import Iterable, Mapping, Sequence, Set

from msgspec.structs import replace

from labeler.contract import annotations, keys
from webhook.kube.objects import Pod
from webhook.kube.placements import VictimGroup
from webhook.kube.planned import PlannedPod
from webhook.placement import Assignment
from webhook.sweeper.decide import plan
from webhook.sweeper.decide.attempt import Attempt, PassState
from webhook.sweeper.decide.cpu_pods import Beside, beside
from webhook.sweeper.decide.orders import NewPlan, Pair
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.decide.release_queue import Timestamps
from webhook.sweeper.observe.view import View


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
    """Pods of earlier plans, with the times at which they are released now.

    While a plan waited another may have been released to the node, and its time is newer than the plan's.
    """

    def of(planned: PlannedPod) -> PlannedPod:
        if not planned.annotations:
            return planned
        stamp = annotations.encode_timestamp(timestamps.next(now_ns))
        return replace(planned, annotations=planned.annotations | {keys.GAS_TIMESTAMP_ANNOTATION: stamp})

    return tuple((pod, of(planned)) for pod, planned in pairs)


def new_plan(
    attempt: Attempt,
    now: PassState,
    *,
    victims: Sequence[VictimGroup] | None = None,
    unpinned: bool = False,
) -> NewPlan:
    """The plan of a gang whose waiting pods found the places of the answer.

    victims: who is to go for it, None if nobody is in its way. unpinned: whether kube-scheduler chooses.
    """
    gang, asked, answer = attempt.gang, attempt.asked, attempt.answer
    assert isinstance(answer, Assignment)
    others = now.view.placed_on(gang.workers)
    found = _beside(attempt, answer, {**others, **answer.nodes}, now)
    entries = plan.planned_pods(gang, asked, answer, now.rules.timestamps, now.view.now.ns, found)
    if unpinned:
        entries = [replace(entry, node="") for entry in entries]
    # One with victims is released once these have gone, see preempting.
    first = () if victims else _released_now(entries, {**asked.pods, **found.pods}, now)
    nodes = {*others.values(), *_nodes_of_workers(asked, entries)}
    labels = now.view.labels_of(nodes)
    before = now.view.placements.get(gang.key.placement_key)
    return NewPlan(
        gang,
        asked,
        answer,
        tuple(entries),
        first,
        preempts=victims is not None,
        usage_version=now.given.usage_version,
        spread=plan.spread(nodes, labels, now.settings.topology),
        later_pod_nodes=tuple(plan.nodes_for_later_pods(asked, answer, before)),
        beside=found,
        domains=gang.division.domains({**others, **({} if unpinned else answer.nodes)}),
        placed=len({*others, *asked.pods}),
        victims=tuple(victims or ()),
        avoided=_avoided(attempt, nodes, now),
    )


def _avoided(attempt: Attempt, nodes: Set[str], now: PassState) -> dict[str, str]:
    """Node -> why the plan for these nodes did without it, of those with GPUs of the same models."""
    model_of, labels_of = now.settings.counting.model, now.view.labels_of
    models = set(map(model_of, labels_of(nodes).values()))
    return attempt.nodes.exclusions.unused(
        nodes, lambda name: not models.isdisjoint(map(model_of, labels_of([name]).values()))
    )


def _nodes_of_workers(asked: GangQuestion, entries: Iterable[PlannedPod]) -> set[str]:
    """Where planned pods go, but for CPU-only pods and those that kube-scheduler places."""
    return {entry.node for entry in entries if entry.node and entry.uid in asked.pods}


def _released_now(entries: Iterable[PlannedPod], pods: Mapping[str, Pod], now: PassState) -> tuple[Pair, ...]:
    ready = (entry for entry in entries if entry.uid not in now.view.not_released)
    return now.given.queue.take((pods[entry.uid], entry) for entry in ready)


def _beside(attempt: Attempt, answer: Assignment, others: Mapping[str, str], now: PassState) -> Beside:
    """Where the CPU-only pods go. others: uid -> node of the gang's other pods."""
    gang, cpu_pods, view = attempt.gang, attempt.cpu_pods, now.view
    if not cpu_pods:
        return Beside()
    reserved = now.ledger.reserved(gang, cpu_pods, view)
    avoid = now.given.backoff.nodes_of(gang.key, gang.maker) | reserved.nodes
    avoid |= gang.division.excluded_beside(others)
    snapshot, options = now.snapshot.assume(answer, attempt.asked.gang), now.settings.options
    return beside(gang, cpu_pods, others, snapshot, avoid=avoid, options=options, class_of=now.class_of)
