"""Who comes before whom, and who may be preempted for a gang. Pure."""

from collections.abc import Sequence, Set
from dataclasses import replace

from webhook.kube.objects import Pod
from webhook.placement import Snapshot, Usage, victims
from webhook.sweeper.decide.judged import in_order
from webhook.sweeper.decide.question import GangQuestion
from webhook.sweeper.decide.rounds import Round
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import exclusive_over
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings


def preemption(gang: PodGang, asked: GangQuestion, now: Round, settings: Settings) -> victims.Victims | None:
    """Nodes where only pods of lower priority stand in the way, for kube-scheduler to preempt.

    Of pods that are as important those are taken that end in time; nobody more important, as else a long
    grace period would put others in the place of its pod. Who is chosen so is chosen once: then it ends.
    """
    if not settings.preempt or not may_preempt(gang) or asked.parts:
        return None
    if any(member.pod_class.wants_cards for member in asked.gang.members):
        return None  # kube-scheduler counts a node's sum: it would bind beside the pod that has the card
    lowest, view = lowest_priority(gang), now.view
    # Not these: a DaemonSet makes its pod anew at once; a pod that is not bound yet is not evicted, and
    # would stay behind, pinned to a node that is full; what ends late already has been chosen, or deleted,
    # before; gangs placed earlier in this pass are at least as important, but stand there without priority.
    staying: Set[str] = view.lasting | view.unbound | view.ending_late | now.assumed

    def find(staying: Set[str]) -> victims.Victims | None:
        def may_go(use: Usage) -> bool:
            return use.priority < lowest and use.name not in staying

        found = victims.find(asked.gang, now.snapshot, settings.options, may_go, now.budget)
        if found is None or asked.rules is None:
            return found
        kept = in_order(found.assignment, asked.rules)  # beside the victims: until they are gone they count
        return None if kept is None else replace(found, assignment=kept)

    found = find(staying)
    if found is None or view.slow_to_end.isdisjoint(found.names):
        return found
    sooner = find(staying | view.slow_to_end)
    if sooner is None or _highest(sooner, now.snapshot) > _highest(found, now.snapshot):
        return found
    return sooner


def _highest(found: victims.Victims, snapshot: Snapshot) -> int:
    """The priority of the most important victim."""
    uses = (use for node in found.nodes for use in snapshot.nodes[node].usages)
    return max((use.priority for use in uses if use.name in found.names), default=0)


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
