"""Who may go so that a more important gang fits: gangs as a whole, and single pods of others. Pure.

Of a gang that went through us all pods are bound, of lower priority, and none of them is one that would stay
or come again at once: else nothing of it may go. What it has above its minimum it can spare.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from webhook.kube.objects import Pod
from webhook.kube.placements import Placement, VictimGroup
from webhook.placement.units import Unit
from webhook.placement.whole import WholeVictims
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.pods import name_of
from webhook.sweeper.observe.view import View

MOST_PODS: Final = 5_000
"""Pods that go for one gang: they stand in its plan, which is one object."""


Keeps = Callable[[Sequence[Pod]], str]
"""Why a gang with these pods on nodes is rather not to go for others, "" if it may."""


def nobody_kept(_pods: Sequence[Pod]) -> str:
    """Every gang may go."""
    return ""


@dataclass(frozen=True)
class PossibleVictims:
    """units: who may go. leaving: uids of pods that go in any case. promised: those that go for others."""

    units: tuple[Unit, ...]
    leaving: frozenset[str]
    promised: tuple[VictimGroup, ...] = ()

    def groups(self, choice: WholeVictims, nodes: Set[str], view: View) -> tuple[VictimGroup, ...]:
        """Who goes, as a plan says it: those that are chosen, and those that go for others from its nodes."""
        chosen = tuple(VictimGroup(pods=list(each.pods), whole=each.is_broken) for each in choice.going)
        pods = view.by_uid
        beside = (
            group
            for group in self.promised
            if any(uid in pods and pods[uid].spec.node_name in nodes for uid in group.pods)
        )
        return (*chosen, *beside)


def candidates(
    view: View,
    below: int,
    staying: Set[str],
    keeps: Keeps,
    promised: Iterable[VictimGroup] = (),
) -> PossibleVictims:
    """Who may go for a gang of that priority.

    staying: names of pods that may not. keeps: who is rather not to go.
    promised: groups that go for others.
    """

    def may_go(pod: Pod) -> bool:
        return (pod.spec.priority or 0) < below and name_of(pod) not in staying

    units: list[Unit] = []
    leaving = {pod.metadata.uid for pod in view.leaving if may_go(pod)}
    going = []
    for group in promised:
        pods = [pod for uid in group.pods if (pod := view.by_uid.get(uid)) is not None]
        if all(map(may_go, pods)):
            going.append(group)
            leaving.update(group.pods)
    for key, pods_of_gang in view.bound_gangs.items():
        pods = [pod for pod in pods_of_gang if pod.metadata.uid not in leaving]
        if not pods or not all(map(may_go, pods)) or keeps(pods):
            continue
        priority = max(pod.spec.priority or 0 for pod in pods)
        uids = frozenset(pod.metadata.uid for pod in pods)
        units.append(Unit(f"{key}/{key.id}", priority, uids, spare(key, len(pods), view.placements)))
    units += [
        Unit(name_of(pod), pod.spec.priority or 0, frozenset((pod.metadata.uid,)))
        for pod in view.bound_strangers
        if may_go(pod)
    ]
    return PossibleVictims(tuple(units), frozenset(leaving), tuple(going))


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
        pods = [
            pod
            for entry in placement.spec.pods
            if (pod := gated.get(entry.uid)) is not None
            and pod.metadata.namespace == placement.metadata.namespace
            and (planned := view.planned.get(entry.uid)) is not None
            and planned.node == entry.node
        ]
        if pods:
            yield placement, pods
