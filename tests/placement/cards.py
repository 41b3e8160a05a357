"""Nodes and pods with cards, and whether pods fit on cards by trying everything."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from labeler.contract import keys
from webhook.kube import objects
from webhook.kube.containers import Container, Resources
from webhook.placement import CardRequest, PodClass, Snapshot
from webhook.placement.cards.choose import choose
from webhook.placement.cards.state import CardState
from webhook.scheduling import convert
from webhook.scheduling.nodes import node_of


def feasible(states: Sequence[CardState], pods: Sequence[PodClass]) -> bool:  # noqa: C901
    """By trying every set of cards for every container."""
    demands: list[tuple[PodClass, list[CardRequest]]] = []
    for pod in pods:
        if pod.same_card:
            demands.append((pod, [pod.cards[i] for i in pod.same_card]))
        demands += [(pod, [w]) for i, w in enumerate(pod.cards) if w.count and i not in pod.same_card]
    free = [dict(state.free) for state in states]
    dead: set[tuple[int, str]] = set()
    """Numbers of demands with the free amounts that do not suffice from there on."""

    def usable(pod: PodClass, number: int) -> bool:
        card = states[number].card
        allowed = pod.allowed_cards is None or card.name in pod.allowed_cards
        return allowed and not card.disabled and card.name not in pod.denied_cards

    def linked(first: int, second: int) -> bool:
        a, b = states[first], states[second]
        ends = [(x, y) for x, name, y in a.card.links if name == b.card.name]
        ends += [(y, x) for x, name, y in b.card.links if name == a.card.name]
        return any(x in a.tiles and y in b.tiles for x, y in ends)

    def paired(numbers: Sequence[int]) -> bool:
        if not numbers:
            return True
        first, *others = numbers
        return any(
            linked(first, other) and paired([each for each in others if each != other]) for other in others
        )

    def descend(depth: int) -> bool:  # noqa: C901
        if depth == len(demands):
            return True
        here = depth, str(free)
        if here in dead:
            return False
        pod, requests = demands[depth]
        for chosen in combinations(range(len(states)), requests[0].count):
            if not all(usable(pod, number) for number in chosen):
                continue
            if pod.single_numa and len({states[number].card.numa for number in chosen}) > 1:
                continue
            if pod.linked and not paired(chosen):
                continue
            for number in chosen:
                for request in requests:
                    for resource, amount in request.per_card:
                        free[number][resource] -= amount
            good = all(amount >= 0 for number in chosen for amount in free[number].values())
            if good and descend(depth + 1):
                return True
            for number in chosen:
                for request in requests:
                    for resource, amount in request.per_card:
                        free[number][resource] += amount
        dead.add(here)
        return False

    return descend(0)


def resource(name: str) -> str:
    """ "memory_max" is memory.max; other names have no dot."""
    return name.replace("memory_", "memory.")


def gpu_node(numbers: str, **amounts: str) -> objects.Node:
    labels = {keys.GPU_NUMBERS_LABEL: numbers} if numbers else {}
    names = {
        name.replace("memory_", "memory."): text
        for name, text in amounts.items()
        if not name.startswith("label_")
    }
    labels |= {
        keys.INTEL_PREFIX + name.removeprefix("label_").replace("_", "-"): text
        for name, text in amounts.items()
        if name.startswith("label_")
    }
    allocatable: dict[str, Any] = {keys.INTEL_PREFIX + name: text for name, text in names.items()}
    return objects.Node(
        metadata=objects.NodeMetadata(name="n", labels=labels),
        status=objects.NodeStatus(allocatable={"pods": "110", **allocatable}),
    )


def gpu_pod(*containers: dict[str, int], **annotations: str) -> objects.Pod:
    made = [
        Container(
            name=f"c{number}",
            resources=Resources(
                requests={
                    keys.INTEL_PREFIX + name.replace("memory_", "memory."): n for name, n in wants.items()
                }
            ),
        )
        for number, wants in enumerate(containers, start=1)
    ]
    texts = {name.replace("_", "-"): value for name, value in annotations.items()}
    return objects.Pod(
        metadata=objects.PodMetadata(name="p", annotations=texts), spec=objects.PodSpec(containers=made)
    )


def text_of(node: objects.Node, pod: objects.Pod, used: Sequence[objects.Pod] = ()) -> str:
    """The cards in the annotation's form, or why there are none."""
    kind = convert.pod_class_of(pod)
    if kind.problem:
        return kind.problem
    usage = [("n", convert.usage_of(other)) for other in used]
    snapshot = Snapshot.build([node_of(node)], usage)
    if snapshot.nodes["n"].node.problem:
        return "no"
    found = choose(snapshot.nodes["n"].cards, [kind]).slots
    if found is None:
        return "no"
    return "|".join(",".join(s.card + "".join(f":gt{t}" for t in s.tiles) for s in slot) for slot in found[0])
