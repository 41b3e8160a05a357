"""Who comes before whom, and who goes for a gang. Pure."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from webhook.kube.objects import Pod
from webhook.kube.placements import VictimGroup
from webhook.placement import Assignment
from webhook.placement.whole import WholeVictims, choose
from webhook.sweeper.decide.judged import in_order
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.decide.rounds import Round
from webhook.sweeper.decide.victims import MOST_PODS, Keeps, PossibleVictims, candidates, nobody_kept
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import exclusive_over
from webhook.sweeper.observe.pods import name_of
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings


@dataclass(frozen=True)
class Preemption:
    """Where a gang goes once its victims have gone. names: of these, for the log. highest: their priority."""

    assignment: Assignment
    victims: tuple[VictimGroup, ...]
    names: tuple[str, ...]
    highest: int


def preemption(
    gang: PodGang, asked: GangQuestion, now: Round, settings: Settings, keeps: Keeps
) -> Preemption | None:
    """Nodes where only gangs and pods of lower priority stand in the way, and which of these go.

    Gangs that are kept (by a PodDisruptionBudget, or as their Job would fail for good) go where the others do
    not suffice: nor does kube-scheduler spare them then. Of those that are as important they are taken that
    end in time; nobody more important, as else a long grace period would put others in the place of its pod.
    Who is chosen so is chosen once. Nodes that the gang passes over are used where the others do not suffice.
    """
    for step in now.shunned.steps:
        found = _preemption(gang, asked.without(step), now, settings, keeps)
        if found is not None:
            return found
    return _preemption(gang, asked, now, settings, keeps)


def _preemption(
    gang: PodGang, asked: GangQuestion, now: Round, settings: Settings, keeps: Keeps
) -> Preemption | None:
    if not settings.preempt or not may_preempt(gang) or asked.parts:
        return None
    if any(member.pod_class.wants_cards for member in asked.gang.members):
        return None  # kube-scheduler counts a node's sum: it would bind beside the pod that has the card
    lowest, view = lowest_priority(gang), now.view
    promised = [*now.promised, *(group for plan in now.plans for group in plan.victims)]
    # Not these: a DaemonSet makes its pod anew at once; a pod that is not bound yet is not evicted, and
    # would stay behind, pinned to a node that is full; what ends late already has been chosen, or deleted,
    # before; gangs placed earlier in this pass are at least as important, but stand there without priority.
    staying: Set[str] = view.lasting | view.unbound | view.ending_late | now.assumed

    def find(staying: Set[str], keeps: Keeps) -> Preemption | None:
        herd = candidates(view, lowest, staying, keeps, promised)
        found = choose(asked.gang, now.snapshot, settings.options, herd.units, herd.leaving, now.budget)
        if found is None or asked.rules is None:
            return _of(found, found.assignment, herd, now) if found is not None else None
        kept = in_order(found.assignment, asked.rules)  # beside the victims: until they are gone they count
        return None if kept is None else _of(found, kept, herd, now)

    heeded = keeps
    found = find(staying, heeded)
    if found is None:
        heeded, found = nobody_kept, find(staying, nobody_kept)
    if found is None or not _are_slow(found, view):
        return found
    sooner = find(staying | view.slow_to_end, heeded)
    return found if sooner is None or sooner.highest > found.highest else sooner


def _of(found: WholeVictims, assignment: Assignment, herd: PossibleVictims, now: Round) -> Preemption | None:
    victims = herd.groups(found, frozenset(assignment.nodes.values()), now.view)
    if sum(len(group.pods) for group in victims) > MOST_PODS:
        return None
    units = [each.unit for each in found.going]
    highest = max((unit.priority for unit in units), default=0)
    return Preemption(assignment, victims, tuple(unit.name for unit in units), highest)


def _are_slow(found: Preemption, view: View) -> bool:
    """Whether some of the victims may take longer to end than anybody waits for that."""
    pods = (view.by_uid.get(uid) for group in found.victims for uid in group.pods)
    return any(pod is not None and name_of(pod) in view.slow_to_end for pod in pods)


def lowest_priority(gang: PodGang) -> int:
    """The priority that a victim must be below, for each member that waits may have to preempt it."""
    return min((pod.spec.priority or 0 for pod in _waiting(gang)), default=0)


def may_preempt(gang: PodGang) -> bool:
    """Whether the classes of all that wait allow it."""
    return all(pod.spec.preemption_policy != "Never" for pod in _waiting(gang))


def _waiting(gang: PodGang) -> list[Pod]:
    """Those that wait, but for companions: nobody goes for these."""
    return [pod for pod in gang.gated if pod.metadata.uid not in gang.companions]


def may_go_unpinned(gang: PodGang, waiting: Sequence[Pod], view: View) -> bool:
    """Whether kube-scheduler may choose the nodes of the waiting pods without a promise being broken.

    That they all start, or lie as the gang requires, or have cards, we alone see to.
    """
    if gang.required_level is not None or gang.slices or gang.parts or gang.later:
        return False
    if any(map(exclusive_over, gang.pods)):
        return False
    if any(view.class_of(pod).wants_cards for pod in waiting):
        return False
    placement = view.placements.get(gang.key.placement_key)
    return len(waiting) == 1 or (placement is not None and placement.is_complete)


def held_by_others(waiting: Sequence[Pod], prefix: str) -> list[str]:
    """The gates of others on these pods: quota, another controller."""
    names = {gate.name for pod in waiting for gate in pod.spec.scheduling_gates}
    return sorted(name for name in names if not name.startswith(prefix))
