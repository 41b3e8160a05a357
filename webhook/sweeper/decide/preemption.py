"""Who goes for a more important gang: gangs as a whole, and single pods of others. Pure.

Of a gang that went through us all pods are bound, of lower priority, and none of them is one that would stay
or come again at once: else nothing of it may go. What it has above its minimum it can spare.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from webhook.kube.objects import Pod
from webhook.kube.placements import Placement, VictimGroup
from webhook.kube.planned import PlannedPod
from webhook.placement import Assignment, Budget, Snapshot
from webhook.placement.victim_gangs import Unit, VictimGangs, choose
from webhook.sweeper.decide.gang_question import GangQuestion, in_order
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.pods import Sort, name_of
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

MOST_PODS: Final = 5_000
"""Pods that go for one gang: they stand in its plan, which is one object."""


Keeps = Callable[[Sequence[Pod]], str]
"""Why a gang with these pods on nodes is rather not to go for others, "" if it may."""


def none_protected(_pods: Sequence[Pod]) -> str:
    """Every gang may go."""
    return ""


@dataclass(frozen=True)
class PossibleVictims:
    """units: who may go. leaving: uids of pods that go in any case. promised: those that go for others."""

    units: tuple[Unit, ...]
    leaving: frozenset[str]
    promised: tuple[VictimGroup, ...] = ()

    def groups(self, choice: VictimGangs, nodes: Set[str], view: View) -> tuple[VictimGroup, ...]:
        """Who goes, as a plan says it: those that are chosen, and those that go for others from its nodes."""
        chosen = tuple(VictimGroup(pods=list(each.pods), whole=each.is_broken) for each in choice.going)
        pods = view.by_uid
        beside = (
            group
            for group in self.promised
            if any(uid in pods and pods[uid].spec.node_name in nodes for uid in group.pods)
        )
        return (*chosen, *beside)


@dataclass(frozen=True)
class Preemption:
    """Where a gang goes once its victims have gone. names: of these, for the log. highest: their priority."""

    assignment: Assignment
    victims: tuple[VictimGroup, ...]
    names: tuple[str, ...]
    highest: int


@dataclass(frozen=True)
class VictimSearch:
    """Looks for nodes where only gangs and pods of lower priority stand in the way, and which of these go.

    promised: who goes for gangs that have a plan already. keeps: who is rather not to go.

    Gangs that are kept (by a PodDisruptionBudget, or as their Job would fail for good) go where the others do
    not suffice: nor does kube-scheduler spare them then. Of those that are as important they are taken that
    end in time; nobody more important, as else a long grace period would put others in the place of its pod.
    Who is chosen so is chosen once.
    """

    gang: PodGang
    view: View
    snapshot: Snapshot
    promised: tuple[VictimGroup, ...]
    keeps: Keeps
    settings: Settings
    budget: Budget

    def find(self, asked: GangQuestion, avoided: Sequence[frozenset[str]]) -> Preemption | None:
        """Where the gang goes so. avoided: nodes used last, see GangExclusions.steps."""
        if not self.settings.preempt or not may_preempt(self.gang) or asked.parts:
            return None
        if any(member.pod_class.wants_cards for member in asked.gang.members):
            return None  # kube-scheduler counts a node's sum: it would bind beside the pod that has the card
        tried = (self._among_all(asked.without(step)) for step in avoided)
        return next((found for found in tried if found is not None), None) or self._among_all(asked)

    def _among_all(self, asked: GangQuestion) -> Preemption | None:
        view = self.view
        # Not these: a DaemonSet makes its pod anew at once; a pod that is not bound yet is not evicted, and
        # would stay behind, pinned to a node that is full; what ends late already has been chosen, or
        # deleted, before.
        staying = view.uids(Sort.LASTING, Sort.UNBOUND, Sort.LATE)
        heeded, found = self.keeps, self._without(asked, staying, self.keeps)
        if found is None:
            heeded, found = none_protected, self._without(asked, staying, none_protected)
        if found is None or not self._are_slow(found):
            return found
        sooner = self._without(asked, staying | view.uids(Sort.SLOW), heeded)
        return found if sooner is None or sooner.highest > found.highest else sooner

    def _without(self, asked: GangQuestion, staying: Set[str], keeps: Keeps) -> Preemption | None:
        """The same where none of these pods, nor who is kept, may go."""
        herd = candidates(self.view, lowest_priority(self.gang), staying, keeps, self.promised)
        options = self.settings.options
        found = choose(asked.gang, self.snapshot, options, herd.units, herd.leaving, self.budget)
        if found is None or asked.rules is None:
            return self._of(found, found.assignment, herd) if found is not None else None
        checked = in_order(
            found.assignment, asked.rules
        )  # beside the victims: until they are gone they count
        return None if checked is None else self._of(found, checked, herd)

    def _of(self, found: VictimGangs, assignment: Assignment, herd: PossibleVictims) -> Preemption | None:
        victims = herd.groups(found, frozenset(assignment.nodes.values()), self.view)
        if sum(len(group.pods) for group in victims) > MOST_PODS:
            return None
        units = [each.unit for each in found.going]
        highest = max((unit.priority for unit in units), default=0)
        return Preemption(assignment, victims, tuple(unit.name for unit in units), highest)

    def _are_slow(self, found: Preemption) -> bool:
        """Whether some of the victims may take longer to end than anybody waits for that."""
        slow = self.view.uids(Sort.SLOW)
        return any(uid in slow for group in found.victims for uid in group.pods)


def lowest_priority(gang: PodGang) -> int:
    """The priority that a victim must be below, for each member that waits may have to preempt it."""
    return min((pod.spec.priority or 0 for pod in _waiting(gang)), default=0)


def may_preempt(gang: PodGang) -> bool:
    """Whether the classes of all that wait allow it."""
    return all(pod.spec.preemption_policy != "Never" for pod in _waiting(gang))


def _waiting(gang: PodGang) -> list[Pod]:
    """Those that wait, but for CPU-only pods: nobody goes for these."""
    return [pod for pod in gang.gated if pod.metadata.uid not in gang.cpu_pods]


def candidates(
    view: View,
    below: int,
    staying: Set[str],
    keeps: Keeps,
    promised: Iterable[VictimGroup] = (),
) -> PossibleVictims:
    """Who may go for a gang of that priority.

    staying: uids of pods that may not. keeps: who is rather not to go.
    promised: groups that go for others.
    """

    def may_evict(pod: Pod) -> bool:
        return (pod.spec.priority or 0) < below and pod.metadata.uid not in staying

    def all_may_be_evicted(uids: Iterable[str]) -> bool:
        return all(may_evict(pod) for uid in uids if (pod := view.by_uid.get(uid)) is not None)

    going = tuple(group for group in promised if all_may_be_evicted(group.pods))
    leaving = {pod.metadata.uid for pod in view.leaving if may_evict(pod)}.union(
        *(each.pods for each in going)
    )
    alone = (_unit(name_of(pod), [pod]) for pod in view.bound_foreign_pods if may_evict(pod))
    units = (*_gang_units(view, leaving, may_evict, keeps), *alone)
    return PossibleVictims(units, frozenset(leaving), going)


def _gang_units(
    view: View, leaving: Set[str], may_evict: Callable[[Pod], bool], keeps: Keeps
) -> Iterator[Unit]:
    """The gangs of which all pods may go. leaving: uids of pods that go in any case."""
    for key, pods_of_gang in view.bound_gangs.items():
        pods = [pod for pod in pods_of_gang if pod.metadata.uid not in leaving]
        if pods and all(map(may_evict, pods)) and not keeps(pods):
            yield _unit(f"{key}/{key.id}", pods, spare(key, len(pods), view.placements))


def _unit(name: str, pods: Sequence[Pod], spare: int = 0) -> Unit:
    """Pods that go together, but for so many that can be spared."""
    priority = max(pod.spec.priority or 0 for pod in pods)
    return Unit(name, priority, frozenset(pod.metadata.uid for pod in pods), spare)


def spare(key: GangKey, count: int, placements: Mapping[str, Placement]) -> int:
    """How many of so many pods an elastic gang can lose without being broken; 0 for others."""
    placement = placements.get(key.placement_key)
    least = placement.spec.minimum if placement is not None else 0
    return max(0, count - least) if least else 0


def preempting(view: View) -> Iterator[tuple[Placement, list[Pod]]]:
    """The plans that wait for victims and still hold, each with its pods that wait."""
    gated: dict[str, Pod] = {}
    plans = (each for each in view.placements.values() if each.spec.preempts and each.spec.victims)
    for placement in sorted(plans, key=lambda each: each.key):
        gated = gated or {pod.metadata.uid: pod for pod in view.gated}
        entries = [entry for entry in placement.spec.pods if entry.uid in gated]
        pods = [gated[entry.uid] for entry in entries if _holds(placement, entry, gated[entry.uid], view)]
        if pods:
            yield placement, pods


def _holds(placement: Placement, entry: PlannedPod, pod: Pod, view: View) -> bool:
    """Whether an entry of a plan is the one that still holds for its pod."""
    planned = view.planned.get(entry.uid)
    is_of_the_plan = pod.metadata.namespace == placement.metadata.namespace
    return is_of_the_plan and planned is not None and planned.node == entry.node
