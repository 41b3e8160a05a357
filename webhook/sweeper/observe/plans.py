"""What all plans say together, and of which pods: worked out anew for those plans alone that have changed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain

from labeler.contract import keys
from webhook.identity_cache import IdentityMap, changed_keys
from webhook.kube.placements import Placement
from webhook.kube.planned import PlannedPod

PodId = tuple[str, str]
"""Namespace and uid. A uid alone proves nothing: a plan speaks for the pods of its own namespace only."""
Texts = Mapping[str, str]
CardsByPod = Mapping[PodId, Texts]
"""What plans say of the cards of pods on one node."""


@dataclass(frozen=True)
class _Plan:
    """What one plan says. cards: by node. entries: by uid."""

    placement: Placement
    named: frozenset[PodId]
    cards: Mapping[str, CardsByPod]
    entries: Mapping[str, PlannedPod]


class Plans:
    """The plans of one moment, and what they say.

    cards: by node, what plans say of the cards of pods there: the very same mapping for as long as they say
    the same of the node. What has been handed out stays as it was.
    """

    def __init__(self) -> None:
        self.cards: Mapping[str, CardsByPod] = {}
        self._read = IdentityMap[str, _Plan]()
        self._plans: Mapping[str, _Plan] = {}
        self._naming = Counter[PodId]()
        self._on_nodes: dict[str, tuple[_Plan, ...]] = {}

    def update(self, placements: Mapping[str, Placement]) -> None:
        """Take in the Placements that there are, by "namespace/name"."""
        before = self._plans
        self._plans = self._read.of(lambda key: self._plan(key, placements), placements)
        changed = changed_keys(before, self._plans)
        if changed:
            gone = [before[key] for key in changed if key in before]
            self._replace(gone, [self._plans[key] for key in changed if key in self._plans])

    def _plan(self, key: str, placements: Mapping[str, Placement]) -> _Plan | None:
        """What a plan says: the same as before if only its status has changed, as it does some times."""
        placement, before = placements.get(key), self._plans.get(key)
        if placement is None or (before is not None and _is_same_plan(before.placement, placement)):
            return before if placement is not None else None
        return _read(placement)

    def _replace(self, gone: Sequence[_Plan], come: Sequence[_Plan]) -> None:
        naming = Counter(self._naming)
        naming.subtract(_named_by(gone))
        naming.update(_named_by(come))
        for pod in _named_by(gone):
            if not naming[pod]:
                del naming[pod]
        self._naming = naming
        cards = dict(self.cards)
        for node, plans in self._moved(gone, come).items():
            if plans:
                self._on_nodes[node], cards[node] = plans, _cards_on(node, plans)
            else:
                del self._on_nodes[node], cards[node]
        self.cards = cards

    def _moved(self, gone: Iterable[_Plan], come: Iterable[_Plan]) -> dict[str, tuple[_Plan, ...]]:
        """The plans of each node of which any goes or comes."""
        found: dict[str, tuple[_Plan, ...]] = {}
        for plan in gone:
            for node in plan.cards:
                there = found.get(node, self._on_nodes[node])
                found[node] = tuple(each for each in there if each is not plan)
        for plan in come:
            for node in plan.cards:
                found[node] = (*found.get(node, self._on_nodes.get(node, ())), plan)
        return found

    @property
    def named(self) -> Set[PodId]:
        """The pods that plans name, released or not."""
        return self._naming.keys()

    def entries_of(self, waiting: Mapping[str, str]) -> Iterator[PlannedPod]:
        """All entries of plans for these pods (uid -> namespace), of plans of the pods' own namespaces."""
        # A plan speaks for pods of its own namespace alone, whoever wrote it.
        known = {uid for uid, namespace in waiting.items() if (namespace, uid) in self._naming}
        plans = sorted(self._plans.items()) if known else ()
        for _, plan in plans:
            for uid in sorted(plan.entries.keys() & known):
                if waiting[uid] == plan.placement.metadata.namespace:
                    yield plan.entries[uid]


def is_newer(entry: Texts, than: Texts | None) -> bool:
    """Which of two plans for one pod counts: a pod may have changed its gang between them."""
    if than is None:
        return True
    stamp = keys.GAS_TIMESTAMP_ANNOTATION
    return entry.get(stamp, "") > than.get(stamp, "")


def _is_same_plan(before: Placement, after: Placement) -> bool:
    return before.metadata.uid == after.metadata.uid and before.spec == after.spec


def _read(placement: Placement) -> _Plan:
    namespace = placement.metadata.namespace
    cards: dict[str, dict[PodId, Texts]] = {}
    entries: dict[str, PlannedPod] = {}
    for each in placement.spec.pods:
        _add(cards.setdefault(each.node, {}), (namespace, each.uid), each.annotations)
        known = entries.get(each.uid)
        if known is None or is_newer(each.annotations, known.annotations):
            entries[each.uid] = each
    return _Plan(placement, frozenset((namespace, uid) for uid in entries), cards, entries)


def _named_by(plans: Iterable[_Plan]) -> Iterator[PodId]:
    return chain.from_iterable(plan.named for plan in plans)


def _cards_on(node: str, plans: Iterable[_Plan]) -> CardsByPod:
    """What these plans say of a node; the newer counts where several name one pod."""
    found: dict[PodId, Texts] = {}
    for plan in sorted(plans, key=lambda each: each.placement.key):
        for pod, annotations in plan.cards[node].items():
            _add(found, pod, annotations)
    return found


def _add(cards: dict[PodId, Texts], pod: PodId, annotations: Texts) -> None:
    if is_newer(annotations, cards.get(pod)):
        cards[pod] = annotations
