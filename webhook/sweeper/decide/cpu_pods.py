"""Places for the CPU-only pods of a gang: as near to its other pods as there is room, after these. Pure.

They are asked about after the others, so they change nothing for these. The placement core counts no domain
that the others use, so that the fewest further ones, the coarsest first, are the nearest. Where there is no
room near or far, or where kube-scheduler heeds what is not counted here (volumes, affinity), a companion goes
wherever kube-scheduler sends it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement import (
    Anchor,
    Assignment,
    Budget,
    Gang,
    Mode,
    NoFit,
    Options,
    Snapshot,
    place,
)
from webhook.scheduling import convert
from webhook.scheduling.podrules import rules_of
from webhook.sweeper.decide.gang_question import ClassOf, GangQuestion, members_of
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View

ONE_BY_ONE: Final = 8
"""CPU-only pods up to which each is asked about alone where there is no room for all of them."""


@dataclass(frozen=True)
class Beside:
    """What was asked about CPU-only pods, and where they go. free: those that kube-scheduler places."""

    steps: tuple[tuple[GangQuestion, Assignment], ...] = ()
    free: tuple[Pod, ...] = ()

    @property
    def pods(self) -> dict[str, Pod]:
        """uid -> companion."""
        placed = (asked.pods for asked, _ in self.steps)
        return {uid: pod for pods in placed for uid, pod in pods.items()} | {
            pod.metadata.uid: pod for pod in self.free
        }

    @property
    def nodes(self) -> dict[str, str]:
        """uid -> node, "" for those that kube-scheduler places."""
        placed = {uid: node for _, answer in self.steps for uid, node in answer.nodes.items()}
        return placed | {pod.metadata.uid: "" for pod in self.free}


def beside(
    gang: PodGang,
    pods: Iterable[Pod],
    others: Mapping[str, str],
    snapshot: Snapshot,
    *,
    avoid: frozenset[str] = frozenset(),
    options: Options,
    class_of: ClassOf = convert.pod_class_of,
) -> Beside:
    """Where these CPU-only pods of a gang go. others: uid -> node of its other pods, as in the snapshot."""
    pods = list(pods)
    near = [pod for pod in pods if others and _is_counted(pod)]
    options = replace(options, mode=Mode.BEST_FIT)
    budget = Budget(options.bound)
    steps: list[tuple[GangQuestion, Assignment]] = []
    placed: set[str] = set()
    for some in _attempts(near):
        if all(pod.metadata.uid in placed for pod in some):
            continue
        try:
            asked = _question(gang, some, others, avoid, class_of)
            answer = place(asked.gang, snapshot, options, budget)
        except ValueError:  # what it asks for cannot be read: kube-scheduler's to judge
            continue
        if not isinstance(answer, NoFit):
            steps.append((asked, answer))
            placed |= asked.pods.keys()
            snapshot = snapshot.assume(answer, asked.gang)
    return Beside(tuple(steps), tuple(pod for pod in pods if pod.metadata.uid not in placed))


def _is_counted(pod: Pod) -> bool:
    """Whether all is counted here by which kube-scheduler places it."""
    return not pod.spec.volumes and not rules_of(pod)


def nobody(gang: PodGang, snapshot: Snapshot) -> tuple[GangQuestion, Assignment]:
    """What is asked and answered about a gang of whose pods none but CPU-only pods waits."""
    asked = GangQuestion(Gang(str(gang.key), ()), {})
    answer = place(asked.gang, snapshot)
    assert isinstance(answer, Assignment)
    return asked, answer


def wait_for_nobody(gang: PodGang, waiting: Iterable[Pod], view: View) -> bool:
    """Whether those that wait are CPU-only pods of pods that all have their places."""
    if any(pod.metadata.uid not in gang.cpu_pods for pod in waiting):
        return False
    placed = view.placed_on(gang.workers)
    return bool(placed) and len(placed) == len(gang.workers)


def _attempts(pods: Sequence[Pod]) -> list[Sequence[Pod]]:
    """All at once, so that they are near to one another too; then, of few, each alone."""
    if not pods:
        return []
    return [pods, *([pod] for pod in pods if 1 < len(pods) <= ONE_BY_ONE)]


def _question(
    gang: PodGang, pods: Sequence[Pod], others: Mapping[str, str], avoid: frozenset[str], class_of: ClassOf
) -> GangQuestion:
    members = members_of(gang, pods, class_of)
    anchors = tuple(Anchor(node) for node in sorted(set(others.values())))
    asked = Gang(f"{gang.key} (beside)", members, anchors=anchors, excluded_nodes=avoid)
    return GangQuestion(asked, {pod.metadata.uid: pod for pod in pods})
