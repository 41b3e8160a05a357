"""The decisions of a step of a pass, as values: orders to carry out, and messages for users. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from labeler.contract.event_reasons import EventReason
from webhook.kube.objects import Pod
from webhook.kube.placements import VictimGroup
from webhook.kube.plan_pods import PlannedPod
from webhook.placement import (
    Assignment,
)
from webhook.sweeper.decide.gang_question import GangQuestion
from webhook.sweeper.decide.node_rules import avoided_sentence
from webhook.sweeper.decide.refusing_nodes import ApiRefusal
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.membership import LostOwner
from webhook.text import counted, few

Pair = tuple[Pod, PlannedPod]
"""A pod to release, and its entry in the plan."""

NO_HURRY: Final = float("inf")


@dataclass(frozen=True)
class Beside:
    """The question about CPU-only pods, and their places. free: those that kube-scheduler places."""

    steps: tuple[tuple[GangQuestion, Assignment], ...] = ()
    free: tuple[Pod, ...] = ()

    @property
    def pods(self) -> dict[str, Pod]:
        """uid -> CPU-only pod."""
        placed = (asked.pods for asked, _ in self.steps)
        return {uid: pod for pods in placed for uid, pod in pods.items()} | {
            pod.metadata.uid: pod for pod in self.free
        }

    @property
    def nodes(self) -> dict[str, str]:
        """uid -> node, "" for those that kube-scheduler places."""
        placed = {uid: node for _, answer in self.steps for uid, node in answer.nodes.items()}
        return placed | {pod.metadata.uid: "" for pod in self.free}


@dataclass(frozen=True)
class NewPlan:
    """A gang that was given its place.

    entries: added to its plan, in the order of release. now: released at once, see plan.with_releases; the
    others are released when the pods before them on their nodes are bound. preempts: pods of lower priority
    are there still. usage_version: the version of the cluster, see Changes. spread: of the whole gang with
    this plan, without its CPU-only pods. later_pod_nodes: for pods that are not created yet. beside: the
    question about its CPU-only pods after that. domains: see PlacementSpec. placed: how many pods of the gang
    have a place with this plan, without CPU-only pods. victims: the pods that are evicted for it. avoided:
    failing nodes that it does not use, and why. moves: when it was moved, the last time to this place; () if
    it was not.
    """

    gang: PodGang
    asked: GangQuestion
    answer: Assignment
    entries: tuple[PlannedPod, ...]
    preempts: bool
    usage_version: int
    spread: str
    now: tuple[Pair, ...] = ()
    later_pod_nodes: tuple[str, ...] = ()
    beside: Beside = field(default_factory=Beside)
    domains: Mapping[str, str] = field(default_factory=dict)
    placed: int = 0
    victims: tuple[VictimGroup, ...] = ()
    avoided: Mapping[str, str] = field(default_factory=dict)
    moves: tuple[str, ...] = ()

    @property
    def pods(self) -> Mapping[str, Pod]:
        """uid -> pod of all entries."""
        return {**self.asked.pods, **self.beside.pods}

    @property
    def steps(self) -> tuple[tuple[GangQuestion, Assignment], ...]:
        """The questions and answers, each on what those before it leave."""
        return (self.asked, self.answer), *self.beside.steps

    @property
    def is_moving(self) -> bool:
        """Whether gangs are moved for it."""
        return any(each.is_moved for each in self.victims)

    @property
    def is_unpinned(self) -> bool:
        """Whether kube-scheduler chooses its nodes; the answer then only shows that there is capacity."""
        return not any(entry.node for entry in self.entries)

    @property
    def description(self) -> str:
        """The sentence that people read about it."""
        sentences = "; ".join(filter(None, (self._workers_sentence(), *self._cpu_pods_sentences())))
        if self.later_pod_nodes:
            nodes = counted(len(self.later_pod_nodes), "node is", "nodes are")
            later = counted(len(self.gang.later), "pod", "pods")
            sentences += f"; {nodes} reserved for {later} of later stages"
        if self.avoided:
            sentences += f"; {avoided_sentence(self.avoided)}"
        return sentences

    def _workers_sentence(self) -> str:
        count, all_ = len(self.asked.pods), len(self.gang.workers)
        if not count:
            return ""
        if self.is_unpinned:
            return (
                "released without a planned node: kube-scheduler has refused every node with capacity, so it "
                "now chooses; see the Events of the earlier pods"
            )
        pods = "pod" if count == 1 else "pods"
        if count == self.placed:
            return f"{count}{'' if count == all_ else f' of {all_}'} {pods} placed on {self.spread}"
        there = f"all {all_}" if self.placed == all_ else f"the {self.placed} of {all_} that have nodes"
        return f"{count} {pods} placed; {there} are then on {self.spread}"

    def _cpu_pods_sentences(self) -> Iterator[str]:
        nodes = self.beside.nodes
        if near := sorted({node for node in nodes.values() if node}):
            yield f"{sum(map(bool, nodes.values()))} without GPUs near the others, on {few(near)}"
        if self.beside.free:
            yield f"{len(self.beside.free)} without GPUs released, for kube-scheduler to place"


class EvictionCause(StrEnum):
    """Why a pod is evicted for others, in one word for metrics."""

    PREEMPTED = "preempted"
    ABOVE_MINIMUM = "above-minimum"
    INCOMPLETE_GANG = "incomplete-gang"
    MOVED = "moved"


@dataclass(frozen=True)
class Eviction:
    """A released pod to delete, so that its controller recreates it. cause: a word; reason: a sentence.

    may_run: whether it is deleted even if it runs. for_others: through the eviction API, which respects
    PodDisruptionBudgets, since it is evicted for others. waiting: the pods that need its node; it stays once
    one of them has lost its controller. for_waiting: a sentence on its gang for the one that waits, at its
    first pod alone.
    """

    pod: Pod
    cause: str
    reason: str
    may_run: bool = False
    for_others: bool = False
    waiting: tuple[Pod, ...] = ()
    for_waiting: str = ""

    @property
    def description(self) -> str:
        """What is to be done, in the words of messages."""
        return self.reason if self.for_others else f"deleted, to be placed again: {self.reason}"


@dataclass(frozen=True)
class ModelLabelOrder:
    """A gated pod that is to be given these labels in its nodeSelector."""

    pod: Pod
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Warn:
    """Something of one pod that its owner should know: an Event."""

    pod: Pod
    reason: EventReason
    note: str


class Cause(StrEnum):
    """Why a gang has no place, in one word for metrics; the reason says the rest."""

    INCOMPLETE = "incomplete"
    MISSING_PODS = "missing-pods"
    OWNER_DELETED = "owner-deleted"
    CONTROLLER_BLOCKED = "controller-blocked"
    OTHER_GATE = "other-gate"
    OTHER_SCHEDULER = "other-scheduler"
    INVALID_REQUEST = "invalid-request"
    INSUFFICIENT_CAPACITY = "insufficient-capacity"
    RESERVED = "reserved-for-others"
    WORK_BUDGET = "work-budget"
    CLUSTER_CHANGED = "cluster-changed"
    PLAN_REFUSED = "plan-refused"
    PREEMPTING = "preempting"
    INTERNAL_ERROR = "internal-error"


NO_PLACE_FOUND: Final = frozenset({Cause.INSUFFICIENT_CAPACITY, Cause.RESERVED, Cause.WORK_BUDGET})
"""The core was asked, and found no place on the nodes as they are."""


def cause_of(lost: LostOwner) -> Cause:
    """Why a gang waits whose pods have lost their controller, or perhaps have."""
    return Cause.OWNER_DELETED if lost.is_confirmed else Cause.INCOMPLETE


@dataclass(frozen=True)
class GangOutcome:
    """Why a gang stays as it is: it settles (more pods are awaited), or it waits for a place."""

    gang: PodGang
    reason: str
    cause: Cause

    @property
    def is_news(self) -> bool:
        """Whether the gang gets an Event: not for missing pods, nor for a controller that is deleted."""
        return self.cause not in (Cause.INCOMPLETE, Cause.OWNER_DELETED)


@dataclass(frozen=True)
class ReadBack:
    """A pod to read, to know whether its release was written. is_done: whether that was answered so."""

    pod: Pod
    planned: PlannedPod
    is_done: bool = False


@dataclass(frozen=True)
class Orders:
    """All decisions of one step. due_seconds: after which it is run again even without changes.

    unasked: gangs that it has skipped, so that their last reason may no longer be valid.
    """

    releases: tuple[Pair, ...] = ()
    reads: tuple[ReadBack, ...] = ()
    model_label_orders: tuple[ModelLabelOrder, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    plans: tuple[NewPlan, ...] = ()
    warnings: tuple[Warn, ...] = ()
    outcomes: tuple[GangOutcome, ...] = ()
    due_seconds: float = NO_HURRY
    unasked: frozenset[GangKey] = frozenset()

    @classmethod
    def together(cls, parts: Iterable["Orders"]) -> "Orders":
        """All decisions as one."""
        parts = list(parts)
        due = min((part.due_seconds for part in parts), default=NO_HURRY)
        unasked = frozenset[GangKey]().union(*(part.unasked for part in parts))
        return cls(**_tuples_together(parts), due_seconds=due, unasked=unasked)


@dataclass(frozen=True)
class Delay:
    """A pod whose labels, release or eviction are deferred again and again, or refused.

    reason: what the API server did not do. kind: distinguishes its answers; note: a sentence.
    """

    gang: GangKey
    pod: Pod
    reason: EventReason
    kind: str
    note: str


@dataclass(frozen=True)
class FailedRelease:
    """A release to a node with cards that did not happen, as far as is known.

    unconfirmed_seconds: how much longer it may still arrive, 0 if it did not and will not. is_read: whether
    this refers to earlier attempts, as read from the pod.
    """

    pair: Pair
    unconfirmed_seconds: float = 0.0
    is_read: bool = False


@dataclass(frozen=True)
class Done:
    """The results of orders.

    placed, released, evicted: carried out. labelled: pods that have got their labels. refused: would be
    refused again. failed: whether something failed that may soon succeed. warnings, outcomes: messages for
    users. deferred: evictions that failed and stay due. denied: evictions that were answered but not carried
    out: refused, or for another version of the pod. again_seconds: when writes for which the API server had
    no time are due.
    """

    placed: tuple[NewPlan, ...] = ()
    released: tuple[PlannedPod, ...] = ()
    evicted: tuple[Eviction, ...] = ()
    labelled: tuple[Pod, ...] = ()
    refused: tuple[ApiRefusal, ...] = ()
    warnings: tuple[Warn, ...] = ()
    outcomes: tuple[GangOutcome, ...] = ()
    deferred: tuple[Eviction, ...] = ()
    denied: tuple[Eviction, ...] = ()
    failed_releases: tuple[FailedRelease, ...] = ()
    delays: tuple[Delay, ...] = ()
    failed: bool = False
    again_seconds: float = NO_HURRY

    @classmethod
    def together(cls, parts: Iterable["Done"]) -> "Done":
        """All results as one."""
        parts = list(parts)
        again = min((part.again_seconds for part in parts), default=NO_HURRY)
        failed = any(part.failed for part in parts)
        return cls(**_tuples_together(parts), failed=failed, again_seconds=again)


def _tuples_together(parts: "Sequence[Orders] | Sequence[Done]") -> dict[str, Any]:
    """By name, the items of each field that is a tuple, in the order of the parts."""
    names = [each.name for part in parts[:1] for each in fields(part) if each.default == ()]
    return {name: tuple(item for part in parts for item in getattr(part, name)) for name in names}
