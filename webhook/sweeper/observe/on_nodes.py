"""What pods take on nodes: worked out anew for those nodes alone whose pods, or plans for them, changed."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from webhook.kube.objects import Pod
from webhook.placement import Usage
from webhook.sweeper.observe.converted import Texts
from webhook.sweeper.observe.plans import OfCards

Usages = Mapping[str, tuple[Usage, ...]]
"""What pods take, by node."""

Placed = tuple[Pod, Texts | None]
"""A pod on a node, and the annotations that say which cards it has, None where its own do."""


@dataclass(frozen=True)
class PodsOnNodes:
    """The pods that have a node, by it.

    bound: others, as they stand there. coming: those that are sent or planned there. cards: what plans say of
    the cards of bound ones; turns: by node another number after each change of that.
    """

    bound: Mapping[str, tuple[Pod, ...]]
    coming: Mapping[str, tuple[Placed, ...]]
    cards: Mapping[OfCards, Texts]
    turns: Mapping[str, int]

    def on(self, node: str) -> list[Placed]:
        """All pods of a node. The cards of a pod that we placed are those of its plan."""
        found: list[Placed] = []
        for pod in self.bound.get(node, ()):
            found.append((pod, self.cards.get((pod.metadata.namespace, pod.metadata.uid, node))))
        return [*found, *self.coming.get(node, ())]

    def differing_from(self, before: "PodsOnNodes") -> set[str]:
        """The nodes on which other pods stand than before, or with other cards."""
        names = set[str]()
        # What has not changed is the very same object: as a whole in most passes, else by node.
        if self.bound is not before.bound:
            names.update(name for name, pods in self.bound.items() if before.bound.get(name) is not pods)
            names.update(before.bound.keys() - self.bound.keys())
        if self.turns is not before.turns:
            names.update(name for name, turn in self.turns.items() if before.turns.get(name) != turn)
            names.update(before.turns.keys() - self.turns.keys())
        for name in self.coming.keys() | before.coming.keys():
            if self.coming.get(name) != before.coming.get(name):
                names.add(name)
        return names


class OnNodes:
    """Remembers what each node's pods take for as long as all of them are the very same."""

    def __init__(self) -> None:
        self._standing = PodsOnNodes({}, {}, {}, {})
        self._usages: Usages = {}
        self._filled: set[str] = set()
        self._by: object = None

    def usages(
        self,
        standing: PodsOnNodes,
        by: object,
        usage_of: Callable[[Pod, Texts | None], Usage | None],
        fill: Callable[[str], Usage],
    ) -> Usages:
        """By node, what its pods take; what was handed out before stays as it was.

        by: the identity of all else on which usage_of depends. A pod for which that is None takes what `fill`
        says of its node, which is asked each time: it depends on the node.
        """
        if by is not self._by:
            self._by, self._standing, self._usages = by, PodsOnNodes({}, {}, {}, {}), {}
        names = standing.differing_from(self._standing) | self._filled
        self._standing = standing
        if not names:
            return self._usages
        found, self._filled = dict(self._usages), set()
        for name in names:
            usages = [usage_of(pod, annotations) for pod, annotations in standing.on(name)]
            readable = tuple(each for each in usages if each is not None)
            if len(readable) < len(usages):
                self._filled.add(name)
                readable = (*readable, fill(name))
            if readable:
                found[name] = readable
            else:
                found.pop(name, None)
        self._usages = found
        return found


def amended(
    standing: PodsOnNodes,
    usages: Usages,
    nodes: Container[str],
    concerns: Callable[[Pod], object],
    amend: Callable[[Pod, str, Usage], Usage],
) -> dict[str, tuple[Usage, ...]]:
    """What pods take of these nodes where some are concerned, with what is added to the use of each.

    A pod that could not be read fills its node, so that it does not matter whose usage is whose there.
    """
    found = {}
    for name, taken in usages.items():
        pods = standing.on(name)
        if name in nodes and any(concerns(pod) for pod, _ in pods):
            own = (amend(pod, name, each) for (pod, _), each in zip(pods, taken, strict=False))
            found[name] = (*own, *taken[len(pods) :])
    return found
