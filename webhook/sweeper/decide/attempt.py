"""An attempt to place one gang: the input of each step, and its answers. Pure.

A step gets an Attempt and the state of the pass. It answers with a place, with the reason why there is none,
or with the attempt for the next step. The decisions of a pass so far are a value too: each gang that is
placed makes another PassState, on which later gangs are placed.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from labeler.contract import keys
from webhook.configuration.settings import Settings
from webhook.kube.objects import Pod
from webhook.kube.placements import VictimGroup
from webhook.placement import Assignment, Budget, Gang, NoFit, PodClass, Snapshot
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.scheduling.volume_counts import VolumeClaim, VolumeCounts
from webhook.sweeper.decide.answer_basis import AnswerBasis, Emptied, NodeChanges
from webhook.sweeper.decide.core_questions import DivideGang, undivided
from webhook.sweeper.decide.gang_question import GangQuestion, question
from webhook.sweeper.decide.missing_pods import Growth
from webhook.sweeper.decide.moved_gangs import with_moves
from webhook.sweeper.decide.node_rules import GangNodes, NodeRule, NodeRules, RuleKind
from webhook.sweeper.decide.orders import NO_HURRY, Beside, Cause, NewPlan
from webhook.sweeper.decide.preemption import (
    NONE_PROTECTED,
    Keeps,
    Preemption,
    Protection,
    lowest_priority,
    may_preempt,
)
from webhook.sweeper.decide.reservations import ReservationLedger
from webhook.sweeper.decide.retries import RetryTable
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.membership import unknown_owner
from webhook.sweeper.observe.view import View
from webhook.text import joined
from webhook.workloads.owners import OwnerRules

RETRY_SECONDS: Final = 60.0
"""A gang that found no place is asked about again after this long even if nothing has changed."""


# --- what passes remember of a gang -------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """A gang found no place: the question, the version of the cluster, and the time.

    minimum: how many of its pods were enough, None where all were needed. version: of Changes, that which
    matters for its pods. waiting: how many of them waited. movable: the gangs that could be moved for it.
    """

    members: frozenset[str]
    minimum: int | None
    avoid: frozenset[str]
    version: int
    at: float
    waiting: int = 0
    movable: Set[GangKey] = frozenset()

    def still_holds(self, other: "Failure") -> bool:
        """Whether asking again would answer the same: our own releases take capacity and never free any."""
        asked = self.members, self.minimum, self.version, self.waiting
        same = asked == (other.members, other.minimum, other.version, other.waiting)
        has_no_more = self.avoid <= other.avoid and self.movable >= other.movable
        return same and has_no_more and other.at - self.at < RETRY_SECONDS


@dataclass(frozen=True)
class GangMemory:
    """The results of earlier passes for a gang: they only save work, and losing them delays.

    failure: its last one, if nothing but that has happened since. victims: names of its victims that were
    logged. cost_seconds: how long its last question took. asked_at: when it was last answered, by a monotonic
    clock; of a new gang, RETRY_SECONDS ago. is_short: whether pods of it have not come in time. answer: to an
    expensive question, as long as its basis is valid.
    """

    growth: Growth
    failure: Failure | None = None
    victims: tuple[str, ...] = ()
    cost_seconds: float = 0.0
    is_short: bool = False
    asked_at: float = -math.inf
    answer: "KnownAnswer | None" = None


# --- the input of a pass ------------------------------------------------------------------------------


@dataclass(frozen=True)
class PassInput:
    """The input by which gangs are placed in one pass.

    rules: the nodes that gangs do not use, apart from reserved ones. usage_version, freed_version: see
    Changes. going: gangs that are evicted as a whole in this pass. retries: after refusals of the API server.
    keeps: returns why a gang should be no victim; why_not_recreated: why its controller would not recreate
    its pods. divide: finds the variants of a gang.
    """

    view: View
    snapshot: Snapshot
    settings: Settings
    rules: NodeRules = field(default_factory=NodeRules)
    usage_version: int = 0
    going: Set[GangKey] = frozenset()
    retries: RetryTable = field(default_factory=RetryTable)
    keeps: Protection = NONE_PROTECTED
    why_not_recreated: Keeps = NONE_PROTECTED
    divide: DivideGang = undivided
    freed_version: int = 0

    @cached_property
    def emptied(self) -> Emptied:
        """The nodes without possible victims."""
        return Emptied(self.view, self.keeps)


@dataclass(frozen=True)
class Stopwatch:
    """The bounds of a pass in time, and so of the gangs that are asked about.

    seconds: by a monotonic clock. heartbeat: called as the pass progresses.
    """

    seconds: Callable[[], float]
    heartbeat: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class KnownAnswer:
    """The answer for a gang that found no place, reused for gangs with the same question.

    question_key: see question_key_of. lasts: whether it is valid until the cluster changes, or in this pass
    only. capacity: for how many of its pods there is capacity. basis: where finding it was expensive; then
    the answer is valid in later passes as long as that is.
    """

    to: GangKey
    question_key: Hashable
    asked: Gang
    sentence: str
    cause: Cause
    lasts: bool = True
    capacity: int = 0
    basis: AnswerBasis | None = None

    def sentence_for(self, gang: GangKey) -> str:
        """The sentence for another gang, "" if it names pods that this one's people may know nothing of."""
        if gang.namespace != self.to.namespace and self._names_pods:
            return ""
        return self.sentence.replace(self.asked.name, str(gang), 1)

    @cached_property
    def _names_pods(self) -> bool:
        rest = self.sentence.replace(self.asked.name, "", 1)
        return any(member.shown in rest for member in self.asked.members)


@dataclass(frozen=True)
class PassState:
    """The state of a pass after the gangs decided so far.

    ledger: the reservations. volumes: how many are left on nodes. beside: the pods that have a node, None as
    long as they are those of the view. promised: victims of gangs that have a plan. plans: made in this pass.
    volume_claims: those that only one pod may use, with the pod that got them. answers: by question_key,
    the answers that found no place. none_begins: why no further gang of several stages begins, "" while they
    may.
    """

    given: PassInput
    snapshot: Snapshot
    ledger: ReservationLedger
    volumes: VolumeCounts | None = None
    beside: Neighbourhood | None = None
    promised: tuple[VictimGroup, ...] = ()
    plans: tuple[NewPlan, ...] = ()
    volume_claims: Mapping[VolumeClaim, str] = field(default_factory=dict)
    answers: Mapping[Hashable, KnownAnswer] = field(default_factory=dict)
    none_begins: str = ""

    @property
    def view(self) -> View:
        """The cluster in this pass."""
        return self.given.view

    @property
    def at(self) -> float:
        """When it began, by a monotonic clock."""
        return self.view.now.seconds

    @property
    def settings(self) -> Settings:
        """The operator's choices."""
        return self.given.settings

    def with_plan(self, plan: NewPlan) -> "PassState":
        """The state after this plan: later gangs are placed on what it leaves."""
        snapshot = self.snapshot
        for asked, answer in plan.steps:
            snapshot = snapshot.assume(answer, asked.gang)
        claims = {
            claim: pod.metadata.name for pod in plan.pods.values() for claim in self.volume_claims_of(pod)
        }
        volumes, near = self.volumes, self.near
        if volumes is not None:
            volumes = volumes.with_promised(plan.pods.values())
        if near is not None:
            near = near.with_added((plan.pods[entry.uid], entry.node) for entry in plan.entries)
        ledger = with_moves(self.ledger.promise(plan.later_pod_nodes), plan.victims, self.view)
        if not plan.preempts:
            ledger = ledger.placed(plan.gang.key)
        if plan.moves:
            ledger = ledger.without_holder(plan.moves[-1])
        return replace(
            self,
            snapshot=snapshot,
            ledger=ledger,
            volumes=volumes,
            beside=near,
            plans=(*self.plans, plan),
            volume_claims={**self.volume_claims, **claims},
        )

    def without_place_of(self, attempt: "Attempt") -> "PassState":
        """Gangs after this one get none of its place, though it is not planned in this pass."""
        if isinstance(attempt.answer, NoFit):
            return self
        return replace(self, snapshot=self.snapshot.assume(attempt.answer, attempt.asked.gang))

    def with_answer(self, known: KnownAnswer) -> "PassState":
        """Who asks the same after it gets the same answer."""
        return replace(self, answers={**self.answers, known.question_key: known})

    @property
    def node_changes(self) -> NodeChanges:
        """The differences of the nodes since the begin of the pass."""
        return NodeChanges(self.given.snapshot.nodes, self.snapshot.nodes)

    @property
    def near(self) -> Neighbourhood | None:
        """The pods that have a node by now, see View.near."""
        return self.view.near if self.beside is None else self.beside

    def class_of(self, pod: Pod) -> PodClass:
        """The request of a waiting pod, see View.class_of."""
        return self.view.class_beside(pod, self.volumes, self.near)

    def volume_claims_of(self, pod: Pod) -> Sequence[VolumeClaim]:
        """The claims of a pod that waits which one pod alone may use."""
        return self.view.volumes.by_one.get(pod.metadata.uid, ()) if self.view.volumes is not None else ()

    def nodes_for(self, gang: PodGang, waiting: Sequence[Pod], *more: NodeRule) -> GangNodes:
        """The nodes that these waiting pods of a gang do not use. more: further rules for it.

        Raises ValueError if a request is unreadable.
        """
        rules = (*more, *self.given.rules.of(gang), *self.ledger.rules(gang, waiting, self.view))
        nodes = GangNodes(rules)
        if nodes.of_kind(RuleKind.STUCK) and not any(self.class_of(pod).wants_cards for pod in waiting):
            nodes = nodes.without(RuleKind.STUCK)
        matters = bool(nodes.of_kind(RuleKind.RESERVED, RuleKind.RESERVED_NEW, RuleKind.SPARE))
        if matters and self.ledger.replacements.fill_up(gang, waiting, self.view):
            return nodes.for_replacements()
        return nodes

    def question(
        self, gang: PodGang, pods: Sequence[Pod], avoid: frozenset[str] = frozenset()
    ) -> GangQuestion:
        """The question for some pods of a gang. Raises PlacementError, see question."""
        view = self.view
        return question(gang, pods, view.placed_on(gang.pods), avoid, self.class_of, view.is_ours, self.near)


# --- one gang -----------------------------------------------------------------------------------------


_NOTHING_ASKED: Final = GangQuestion(Gang("", ()), {})
_NO_ANSWER: Final = NoFit("", 0, 0, 0, {})


@dataclass(frozen=True)
class Variant:
    """One way to ask about a gang. nodes: those that it then does not use. asked: its question."""

    nodes: GangNodes
    asked: GangQuestion = _NOTHING_ASKED


@dataclass(frozen=True)
class Attempt:
    """A gang, and the results of its steps so far.

    waiting: its pods without a place. budget: the rest of its work budget in this pass. variants: all of
    them; nodes, asked, answer: of the one that was asked about last. failure: to be remembered if it finds no
    place. question_key: the inputs of the answer. preemption: the victims of that answer, None where it has
    none. beside: the places of its CPU-only pods. without_refusals: the answer if no node had refused it,
    None where that does not matter. ledger: with its current reservation, None where it has none. moves: the
    sentence on what moving gangs would do. is_limited: whether the budget is smaller than that of a gang in a
    pass. below: of its victims, see AnswerBasis. is_undecided: whether there may be a place that was not
    found.
    """

    gang: PodGang
    waiting: tuple[Pod, ...]
    memory: GangMemory
    budget: Budget
    variants: tuple[Variant, ...] = ()
    nodes: GangNodes = field(default_factory=GangNodes)
    asked: GangQuestion = _NOTHING_ASKED
    failure: Failure | None = None
    question_key: Hashable = None
    answer: Assignment | NoFit = _NO_ANSWER
    preemption: Preemption | None = None
    beside: Beside = field(default_factory=Beside)
    without_refusals: "Attempt | None" = None
    ledger: ReservationLedger | None = None
    moves: str = ""
    is_limited: bool = False
    below: int | None = None
    is_undecided: bool = False

    def as_variants(self) -> "Iterator[Attempt]":
        """The attempt as each variant of the gang."""
        return (replace(self, nodes=each.nodes, asked=each.asked) for each in self.variants)

    def excluded_but(self, *kinds: RuleKind) -> frozenset[str]:
        """The nodes that no variant of the gang uses, if there were no rules of these kinds."""
        return frozenset.intersection(*(each.nodes.hard_but(*kinds) for each in self.variants))

    def limited(self, steps: int) -> "Attempt":
        """The same with a work budget of at most so many steps."""
        if steps >= self.budget.left:
            return self
        return replace(self, budget=Budget(steps), is_limited=True)

    @cached_property
    def workers(self) -> tuple[Pod, ...]:
        """Those that wait, but for CPU-only pods."""
        return tuple(pod for pod in self.waiting if pod.metadata.uid not in self.gang.cpu_pods)

    @cached_property
    def cpu_pods(self) -> tuple[Pod, ...]:
        """Waiting pods without GPUs: they are placed near the others."""
        return tuple(pod for pod in self.waiting if pod.metadata.uid in self.gang.cpu_pods)

    def note(self, capacity: int, settings: Settings) -> str:
        """The note beside the reason why it waits. capacity: of how many of its pods."""
        of_owner = _unknown_owner_note(self.gang, settings.owner_rules, capacity)
        return joined(of_owner, self.nodes.note)


def _unknown_owner_note(gang: PodGang, rules: OwnerRules, capacity: int) -> str:
    """The sentence on an unknown owner, where some pods could run if they need not wait; else "".

    capacity: for how many of its pods there is capacity.
    """
    if not capacity or gang.minimum is not None or len(gang.pods) < 2:
        return ""
    owner = unknown_owner(gang.pods[0], gang.key, rules)
    if not owner:
        return ""
    return (
        f"nothing is known of {owner}, so its pods wait for one another: if each may run alone, write "
        f"gangs.looseOwners: [{owner}] in the configuration, or {keys.GANG_MIN_SIZE_ANNOTATION}: "
        f'"1" on the pods; if they may not, gangs.owners: [{owner}]'
    )


def question_key_of(gang: PodGang, asked: GangQuestion) -> Hashable:
    """The inputs of the answer, without names: gangs of the same question get the same answer."""
    return asked.question_key, lowest_priority(gang), may_preempt(gang), gang.minimum, len(gang.pods)


# --- the answers of a step ----------------------------------------------------------------------------


@dataclass(frozen=True)
class GangPlaced:
    """The gang has a place. victims: names of its victims, for the log."""

    plan: NewPlan
    victims: tuple[str, ...] = ()


@dataclass(frozen=True)
class GangWaits:
    """The gang has no place, and why.

    known: the answer for gangs of the same question. failure: valid until the cluster changes, None where
    nothing is to be remembered. is_final: whether no capacity helps, so that nothing is reserved for it.
    due_seconds: when it is asked about again even without changes. none_begins: see PassState. ledger: with
    its current reservation, None where it has none. unpinned: the plan that leaves its nodes to
    kube-scheduler, used if no other gang has anything there. attempt: with the question and the answer of the
    placement core, None where it was not asked. keeps_place: whether no gang after it gets the place that it
    has found.
    """

    cause: Cause
    sentence: str
    known: KnownAnswer | None = None
    failure: Failure | None = None
    is_final: bool = False
    due_seconds: float = NO_HURRY
    none_begins: str = ""
    ledger: ReservationLedger | None = None
    unpinned: Attempt | None = None
    attempt: Attempt | None = None
    keeps_place: bool = False


@dataclass(frozen=True)
class PassedOver:
    """The gang is not asked about. is_known: whether its last reason is still valid."""

    is_known: bool = False
    due_seconds: float = NO_HURRY


Outcome = GangPlaced | GangWaits | PassedOver
Step = Callable[[Attempt, PassState], Attempt | Outcome]
