"""What pods take on nodes: worked out anew for those nodes alone whose pods, or plans for them, changed."""

from collections.abc import Callable, Mapping, Sequence

from webhook.kube.objects import Pod
from webhook.placement import Usage
from webhook.sweeper.observe.converted import Texts

Placed = tuple[Pod, Texts | None]
"""A pod on a node, and the annotations that say which cards it has, None where its own do."""


class OnNodes:
    """Remembers what each node's pods take for as long as all of them are the very same."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Sequence[Placed], tuple[Usage, ...]]] = {}
        self._by: object = None

    def usages(
        self,
        placed: Mapping[str, Sequence[Placed]],
        by: object,
        usage_of: Callable[[Pod, Texts | None], Usage | None],
        fill: Callable[[str], Usage],
    ) -> dict[str, tuple[Usage, ...]]:
        """By node, what its pods take.

        by: the identity of all else on which usage_of depends. A pod for which that is None takes what `fill`
        says of its node, which is asked each time: it depends on the node.
        """
        before, self._known = self._known if by is self._by else {}, {}
        self._by = by
        found: dict[str, tuple[Usage, ...]] = {}
        for name, pods in placed.items():
            known = before.get(name)
            if known is None or known[0] != pods:
                usages = [usage_of(pod, annotations) for pod, annotations in pods]
                readable = tuple(each for each in usages if each is not None)
                if len(readable) < len(usages):
                    found[name] = (*readable, fill(name))
                    continue
                known = pods, readable
            self._known[name] = known
            found[name] = known[1]
        return found
