"""What placing goes by: the ground of one pass, how far it has come, what is remembered of gangs."""

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from webhook.kube.objects import Pod
from webhook.kube.placements import VictimGroup
from webhook.placement import Assignment, Budget, Gang, NoFit, Snapshot
from webhook.scheduling.volume_counts import Claim, used_by
from webhook.sweeper.decide.orders import Cause, NewPlan, Verdict
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.decide.shunned import NONE, Shunned
from webhook.sweeper.decide.turns import Turns
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View

_COUNTED_ANEW: Final = (
    "free volumes that several nodes can use have just gone to others, and are counted anew"
)
_SOON_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 60.0
"""A gang that found no place is asked about again after this long even if nothing has changed."""


@dataclass(frozen=True)
class Failure:
    """A gang found no place: by what it was asked, of which state of the cluster, and when."""

    members: frozenset[str]
    avoid: frozenset[str]
    usage_version: int
    at: float

    def still_holds(self, other: "Failure") -> bool:
        """Whether asking again would answer the same: our own releases take room, they never make any."""
        same = (self.members, self.usage_version) == (other.members, other.usage_version)
        return same and self.avoid <= other.avoid and other.at - self.at < RETRY_SECONDS


@dataclass
class Memory:
    """What is known of a gang from earlier passes."""

    no_fit: Failure | None = None
    victims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Said:
    """What a gang was told that found no place, for those that ask the same.

    lasts: whether that holds until the cluster changes, or in this pass alone. room: for how many of its pods
    there is room.
    """

    to: GangKey
    asked: Gang
    sentence: str
    cause: Cause
    lasts: bool = True
    room: int = 0

    def told_of(self, gang: GangKey) -> str:
        """The sentence for another gang, "" if it names pods that this one's people may know nothing of."""
        if gang.namespace != self.to.namespace and self._names_pods:
            return ""
        return self.sentence.replace(self.asked.name, str(gang), 1)

    @cached_property
    def _names_pods(self) -> bool:
        rest = self.sentence.replace(self.asked.name, "", 1)
        return any(member.shown in rest for member in self.asked.members)


@dataclass(frozen=True)
class Ground:
    """What gangs are placed on in one pass.

    blocked: nodes to go to only if there is no other way. usage_version: see Changes. going: gangs that are
    evicted as a whole in this pass.
    """

    view: View
    snapshot: Snapshot
    turns: Turns
    blocked: frozenset[str]
    usage_version: int
    going: Set[GangKey] = frozenset()


@dataclass
class Round:
    """How far a pass has come.

    rank: each gang's place in the order of urgency. no_fit: what those were told that asked the same.
    assumed: uids placed so far. budget: what the gang whose turn it is may still ask of the placement core.
    promised: who is to go for gangs that have a plan already.
    shunned: what that gang passes over. spares: nodes that are kept free.
    claims: those that one pod alone may use, with the pod that has it by a plan of this pass.
    refused: gangs that kube-scheduler may place, with what there is room for but for earlier refusals.
    unlabelled: new nodes that wait for their topology labels. unasked: gangs of which nothing is known anew.
    none_begins: why no gang of several stages begins any more, "" while they may; see stages.
    """

    ground: Ground
    snapshot: Snapshot
    rank: Mapping[GangKey, int]
    due_seconds: float
    assumed: set[str] = field(default_factory=set)
    budget: Budget = field(default_factory=lambda: Budget(0))
    promised: tuple[VictimGroup, ...] = ()
    shunned: Shunned = NONE
    spares: frozenset[str] = frozenset()
    claims: dict[Claim, str] = field(default_factory=dict)
    no_fit: dict[Hashable, Said] = field(default_factory=dict)
    refused: list[tuple[PodGang, GangQuestion, Assignment | NoFit]] = field(default_factory=list)
    plans: list[NewPlan] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    unlabelled: frozenset[str] = frozenset()
    unasked: set[GangKey] = field(default_factory=set)
    none_begins: str = ""

    @property
    def told_of_unlabelled(self) -> str:
        """A sentence on them, "" if there are none."""
        count = len(self.unlabelled)
        return f"new nodes that have no topology labels yet: {count}" if count else ""

    @property
    def view(self) -> View:
        """The cluster in this pass."""
        return self.ground.view

    def goes_on_from(self, plan: NewPlan) -> None:
        """What comes after it is placed on what this plan leaves."""
        self.plans.append(plan)
        for asked, answer in plan.steps:
            self.snapshot = self.snapshot.assume(answer, asked.gang)
        self.assumed |= plan.pods.keys()
        self.claims |= {claim: pod.metadata.name for pod in plan.pods.values() for claim in self._by_one(pod)}
        if self.view.volumes is not None:
            for pod in plan.pods.values():
                self.view.volumes.promise(pod)
        if self.view.near is not None:
            for entry in plan.entries:
                self.view.near.add(plan.pods[entry.uid], entry.node)

    def claimed(self, pods: Sequence[Pod]) -> str:
        """Why pods wait for the next pass, as their claim is used by a plan of this one; "" if none is."""
        found = (claim for pod in pods for claim in self._by_one(pod) if claim in self.claims)
        claim = next(found, None)
        return "" if claim is None else used_by(claim, self.claims[claim])

    def _by_one(self, pod: Pod) -> Sequence[Claim]:
        return self.view.volumes.by_one.get(pod.metadata.uid, ()) if self.view.volumes is not None else ()

    def later(self, seconds: float) -> None:
        """Something is due then, whatever is heard."""
        self.due_seconds = min(self.due_seconds, seconds)

    def puts_off(self, gang: PodGang, waiting: Iterable[Pod]) -> bool:
        """Whether a gang is to be asked about in the next pass, as this one's volumes went to others."""
        if self.view.volumes is None or not self.view.volumes.are_late(waiting):
            return False
        self.waits(gang, _COUNTED_ANEW, Cause.UNDECIDED)
        self.later(_SOON_SECONDS)
        return True

    def waits(self, gang: PodGang, reason: str, cause: Cause) -> None:
        """The gang has no place, and why."""
        self.verdicts.append(Verdict(gang, reason, cause))
