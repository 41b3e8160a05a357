"""One gang on its way to a place: what each step is given, and what it answers. Pure.

A step gets an Attempt and the state of the pass. It answers with a place, or why there is none, or with the
attempt as the next step is to have it. What has been decided so far in a pass is a value too: each gang that
is placed makes another PassState, on which those after it are placed.

A gang is complete once its expected size is there, or it has been quiet for as long as that takes. A pod that
ends does not make a gang younger, and one that never becomes quiet is placed all the same. But one that was
whole has lost a pod just now: its controller is given as long to make it again as to make it.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from labeler.contract import keys
from webhook.kube.objects import Pod
from webhook.kube.placements import VictimGroup
from webhook.placement import Assignment, Budget, Gang, NoFit, PodClass, Snapshot
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.scheduling.volume_counts import Claim, VolumeCounts
from webhook.sweeper.decide.asking import DivideGang, Variant, undivided
from webhook.sweeper.decide.backoff import Backoff
from webhook.sweeper.decide.gang_question import GangQuestion, question
from webhook.sweeper.decide.node_exclusions import NOTHING, NOTHING_EXCLUDED, ExcludedNodes, GangExclusions
from webhook.sweeper.decide.orders import NO_HURRY, Cause, NewPlan
from webhook.sweeper.decide.preemption import Keeps, lowest_priority, may_preempt, none_protected
from webhook.sweeper.decide.release_queue import ReleaseQueue, Timestamps
from webhook.sweeper.decide.reservations import ReservationLedger, Reserved, reserved_sentence
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.membership import unknown_owner
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings
from webhook.text import joined
from webhook.workloads.owners import OwnerRules

RETRY_SECONDS: Final = 60.0
"""A gang that found no place is asked about again after this long even if nothing has changed."""


# --- what is remembered of a gang ---------------------------------------------------------------------


@dataclass(frozen=True)
class Growth:
    """How a gang has come to what it is; losing it only delays. Times are of a clock that only goes on.

    members: uids in the last pass. grown_at: when one was new, or all that are expected were there.
    waiting_since: since when some wait for others, None while none does.
    """

    members: frozenset[str]
    grown_at: float
    waiting_since: float | None = None


def grown(known: Growth | None, gang: PodGang, waiting: Collection[Pod], now: float) -> Growth:
    """What a gang is in a new pass. known: in the last one; waiting: its pods that have no place."""
    members = frozenset(pod.metadata.uid for pod in gang.pods)
    if known is None or members - known.members or _is_whole(gang):
        known = Growth(members, now, known.waiting_since if known is not None else None)
    since = known.waiting_since
    if not waiting:
        since = None
    elif since is None and not _needs_nobody(gang):
        since = now
    return replace(known, members=members, waiting_since=since)


def seconds_to_complete(gang: PodGang, growth: Growth, settings: Settings, now: float) -> float:
    """0 for a gang that is complete, else how much longer its present pods must stay the only ones."""
    if _needs_nobody(gang):
        return 0.0
    if gang.size is not None and not gang.staged:
        return max(0.0, growth.grown_at + settings.patience_seconds - now)
    # Waiting for all would be waiting for ever, and so would be waiting until no more come.
    since = now if growth.waiting_since is None else growth.waiting_since
    settled = growth.grown_at + settings.settle_seconds
    return max(0.0, min(settled, since + settings.patience_seconds) - now)


def _needs_nobody(gang: PodGang) -> bool:
    return gang.is_stage_complete or _is_whole(gang)


def _is_whole(gang: PodGang) -> bool:
    return gang.size is not None and len(gang.pods) >= gang.size


@dataclass(frozen=True)
class Failure:
    """A gang found no place: by what it was asked, of which state of the cluster, and when."""

    members: frozenset[str]
    avoid: frozenset[str]
    usage_version: int
    at: float

    def still_holds(self, other: "Failure") -> bool:
        """Whether asking again would answer the same: our own releases take capacity and never free any."""
        same = (self.members, self.usage_version) == (other.members, other.usage_version)
        return same and self.avoid <= other.avoid and other.at - self.at < RETRY_SECONDS


@dataclass(frozen=True)
class GangMemory:
    """What is known of a gang from earlier passes: it only saves work, and losing it delays.

    failure: its last one, if nothing but that is known since. victims: names of those that go for it, which
    have been logged.
    """

    growth: Growth
    failure: Failure | None = None
    victims: tuple[str, ...] = ()


# --- what a pass goes by ------------------------------------------------------------------------------


@dataclass(frozen=True)
class PassInput:
    """What gangs are placed by in one pass.

    timestamps: for plans of this pass. blocked: nodes to go to only if there is no other way. usage_version:
    see Changes. going: gangs that are evicted as a whole in this pass. backoff: after refusals, as of this
    pass. excluded: nodes that gangs do not use. keeps: tells which gangs are rather not to go for others.
    divide: the ways to ask about a gang.
    """

    view: View
    snapshot: Snapshot
    settings: Settings
    queue: ReleaseQueue
    timestamps: Timestamps
    blocked: frozenset[str] = frozenset()
    usage_version: int = 0
    going: Set[GangKey] = frozenset()
    backoff: Backoff = field(default_factory=Backoff)
    excluded: ExcludedNodes = NOTHING_EXCLUDED
    keeps: Keeps = none_protected
    divide: DivideGang = undivided


@dataclass(frozen=True)
class Stopwatch:
    """What bounds a pass in time, and so how many gangs are asked about in it.

    seconds: by a clock that only goes on. heartbeat: called as the pass goes on.
    """

    seconds: Callable[[], float]
    heartbeat: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class KnownAnswer:
    """The answer for a gang that found no place, for those that ask the same.

    shape: of what it asked. lasts: whether that holds until the cluster changes, or in this pass alone.
    capacity: for how many of its pods there is capacity.
    """

    to: GangKey
    shape: Hashable
    asked: Gang
    sentence: str
    cause: Cause
    lasts: bool = True
    capacity: int = 0

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
    """How far a pass has come.

    ledger: what is reserved for whom. volumes: what is left of them. beside: the pods that have a node, None
    as long as they are those of the view. promised: who is to go for gangs that have a plan. plans: those
    that were made in this pass. claims: those that one pod alone may use, with the pod that has it by one of
    these. answers: by the shape of a question, what was answered that found no place. none_begins: why no
    gang of several stages begins any more, "" while they may.
    """

    given: PassInput
    snapshot: Snapshot
    ledger: ReservationLedger
    volumes: VolumeCounts | None = None
    beside: Neighbourhood | None = None
    promised: tuple[VictimGroup, ...] = ()
    plans: tuple[NewPlan, ...] = ()
    claims: Mapping[Claim, str] = field(default_factory=dict)
    answers: Mapping[Hashable, KnownAnswer] = field(default_factory=dict)
    none_begins: str = ""

    @property
    def view(self) -> View:
        """The cluster in this pass."""
        return self.given.view

    @property
    def at(self) -> float:
        """When it began, by a clock that only goes on."""
        return self.view.now.seconds

    @property
    def settings(self) -> Settings:
        """The operator's choices."""
        return self.given.settings

    def with_plan(self, plan: NewPlan) -> "PassState":
        """What comes after it is placed on what this plan leaves."""
        snapshot = self.snapshot
        for asked, answer in plan.steps:
            snapshot = snapshot.assume(answer, asked.gang)
        claims = {claim: pod.metadata.name for pod in plan.pods.values() for claim in self.claims_of(pod)}
        volumes, near = self.volumes, self.near
        if volumes is not None:
            volumes = volumes.with_promised(plan.pods.values())
        if near is not None:
            near = near.with_added((plan.pods[entry.uid], entry.node) for entry in plan.entries)
        ledger = self.ledger.promise(plan.later_pod_nodes)
        if not plan.preempts:
            ledger = ledger.placed(plan.gang.key)
        return replace(
            self,
            snapshot=snapshot,
            ledger=ledger,
            volumes=volumes,
            beside=near,
            plans=(*self.plans, plan),
            claims={**self.claims, **claims},
        )

    def with_answer(self, known: KnownAnswer) -> "PassState":
        """Who asks the same after it gets the same answer."""
        return replace(self, answers={**self.answers, known.shape: known})

    @property
    def near(self) -> Neighbourhood | None:
        """The pods that have a node by now, see View.near."""
        return self.view.near if self.beside is None else self.beside

    def class_of(self, pod: Pod) -> PodClass:
        """What a pod that waits asks for, see View.class_of."""
        return self.view.class_beside(pod, self.volumes, self.near)

    def claims_of(self, pod: Pod) -> Sequence[Claim]:
        """The claims of a pod that waits which one pod alone may use."""
        return self.view.volumes.by_one.get(pod.metadata.uid, ()) if self.view.volumes is not None else ()

    def question(self, gang: PodGang, pods: Sequence[Pod], avoid: frozenset[str]) -> GangQuestion:
        """What is asked for some pods of a gang. Raises PlacementError, see question."""
        view = self.view
        return question(gang, pods, view.placed_on(gang.pods), avoid, self.class_of, view.is_ours, self.near)


# --- one gang -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AllowedNodes:
    """Which nodes a gang may use.

    reserved: what is reserved for others. exclusions: nodes that it does not use. refusing: those that
    did not take a pod of it. closed: where its variant may not be, and always_closed: where none of its
    variants may be; note: a sentence on these.
    """

    reserved: Reserved = field(default_factory=Reserved)
    exclusions: GangExclusions = NOTHING
    refusing: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()
    always_closed: frozenset[str] = frozenset()
    note: str = ""

    @cached_property
    def hard_excluded(self) -> frozenset[str]:
        """Nodes that are out of the question, but for those that have refused it and other domains."""
        return self.reserved.nodes | self.exclusions.hard

    @cached_property
    def excluded(self) -> frozenset[str]:
        """All nodes that are out of the question."""
        return self.refusing | self.hard_excluded | self.closed

    @property
    def elsewhere(self) -> frozenset[str]:
        """Where it would not go if nothing were held for others."""
        return self.refusing | self.exclusions.hard | self.always_closed


_NOTHING_ASKED: Final = GangQuestion(Gang("", ()), {})
_NO_ANSWER: Final = NoFit("", 0, 0, 0, {})


@dataclass(frozen=True)
class Attempt:
    """A gang, and what is known of its way to a place.

    gang: by its first variant, once it is divided. waiting: its pods without a place. budget: what it may
    still ask of the placement core. variants: further ones, which are asked about if the first fits nowhere.
    failure: what is to be remembered if it finds none. shape: on what the answer depends, see shape_of.
    asked, answer: the last question. without_refusals: what would be answered if no node had refused it, None
    where that does not matter. ledger: with what is reserved for it now, None where nothing is.
    """

    gang: PodGang
    waiting: tuple[Pod, ...]
    memory: GangMemory
    budget: Budget
    nodes: AllowedNodes = field(default_factory=AllowedNodes)
    variants: Iterator[Variant] = field(default_factory=lambda: iter(()))
    failure: Failure | None = None
    shape: Hashable = None
    asked: GangQuestion = _NOTHING_ASKED
    answer: Assignment | NoFit = _NO_ANSWER
    without_refusals: "Attempt | None" = None
    ledger: ReservationLedger | None = None

    @cached_property
    def workers(self) -> tuple[Pod, ...]:
        """Those that wait, but for CPU-only pods."""
        return tuple(pod for pod in self.waiting if pod.metadata.uid not in self.gang.cpu_pods)

    @cached_property
    def cpu_pods(self) -> tuple[Pod, ...]:
        """Pods that wait and ask for no GPU: they go near the others."""
        return tuple(pod for pod in self.waiting if pod.metadata.uid in self.gang.cpu_pods)

    def note(self, capacity: int, settings: Settings) -> str:
        """The note beside the reason why it waits. capacity: of how many of its pods."""
        of_owner = _unknown_owner_note(self.gang, settings.owner_rules, capacity)
        reserved = reserved_sentence(self.nodes.reserved.others, self.gang.key.namespace)
        return joined(of_owner, reserved, self.nodes.exclusions.sentence)


def _unknown_owner_note(gang: PodGang, rules: OwnerRules, capacity: int) -> str:
    """What to write where nothing is known of a gang's owner, and some of its pods could run if they need not
    wait; "" where that is not so.

    capacity: for how many of its pods there is capacity.
    """
    if not capacity or gang.minimum is not None or len(gang.pods) < 2:
        return ""
    owner = unknown_owner(gang.pods[0], gang.key, rules)
    if not owner:
        return ""
    return (
        f"nothing is known of {owner}, so its pods wait for one another: if each may run alone, write "
        f"loose_owners: [{owner}] in the sweeper's settings, or {keys.GANG_MIN_SIZE_ANNOTATION}: "
        f'"1" on the pods; if they may not, gang_owners: [{owner}]'
    )


def shape_of(gang: PodGang, asked: GangQuestion) -> Hashable:
    """On what the answer depends, but for names: who asks the same gets the same answer."""
    return asked.shape, lowest_priority(gang), may_preempt(gang), gang.minimum, len(gang.pods)


# --- what a step answers ------------------------------------------------------------------------------


@dataclass(frozen=True)
class GangPlaced:
    """The gang has a place. victims: names of those that go for it, for the log."""

    plan: NewPlan
    victims: tuple[str, ...] = ()


@dataclass(frozen=True)
class GangWaits:
    """The gang has no place, and why.

    known: the answer for those that ask the same. failure: what holds until the cluster changes, None where
    nothing is to be remembered. is_final: whether no capacity helps, so that it holds nothing. due_seconds:
    when it is to be asked about again, whatever changes. none_begins: see PassState. ledger: with what is
    reserved for it now, None where nothing is. unpinned: it goes wherever kube-scheduler sends it, if nobody
    else has anything there.
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


@dataclass(frozen=True)
class PassedOver:
    """The gang is not asked about. is_known: whether what was said of it last still holds."""

    is_known: bool = False
    due_seconds: float = NO_HURRY


Outcome = GangPlaced | GangWaits | PassedOver
Step = Callable[[Attempt, PassState], Attempt | Outcome]
