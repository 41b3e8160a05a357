"""What all plans say together, and of which pods: worked out anew for those plans alone that have changed."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from labeler.contract import keys
from webhook.kube.placements import Placement
from webhook.kube.planned import PlannedPod
from webhook.sweeper.observe.converted import Texts

PodId = tuple[str, str]
"""Namespace and uid. A uid alone proves nothing: a plan speaks for the pods of its own namespace only."""
OfCards = tuple[str, str, str]
"""Namespace and uid of a pod, and the node for which its cards were chosen."""


@dataclass(frozen=True)
class _Plan:
    """What one plan says."""

    placement: Placement
    named: frozenset[PodId]
    cards: Mapping[OfCards, Texts]
    entries: Mapping[str, PlannedPod]


class Plans:
    """The plans of one moment, and what they say.

    named: the pods that plans name, released or not. cards: what plans say of the cards of each of them.
    """

    def __init__(self) -> None:
        self.named: Set[PodId] = frozenset()
        self.cards: Mapping[OfCards, Texts] = {}
        self._plans: dict[str, _Plan] = {}

    def saw(self, placements: Mapping[str, Placement]) -> None:
        """Take in the Placements that there are, by "namespace/name"."""
        before, changed = self._plans, len(placements) != len(self._plans)
        self._plans = {}
        for key, placement in sorted(placements.items()):
            known = before.get(key)
            if known is None or known.placement is not placement:
                known, changed = _read(placement), True
            self._plans[key] = known
        if not changed:
            return
        named: set[PodId] = set()
        cards: dict[OfCards, Texts] = {}
        for plan in self._plans.values():
            named |= plan.named
            _add(cards, plan.cards)
        self.named, self.cards = named, cards

    def entries_of(self, waiting: Mapping[str, str]) -> Iterator[PlannedPod]:
        """All entries of plans for these pods (uid -> namespace), of plans of the pods' own namespaces."""
        for plan in self._plans.values():
            for uid in sorted(plan.entries.keys() & waiting.keys()):
                # A plan speaks for pods of its own namespace alone, whoever wrote it.
                if waiting[uid] == plan.placement.metadata.namespace:
                    yield plan.entries[uid]


def is_newer(entry: Texts, than: Texts | None) -> bool:
    """Which of two plans for one pod counts: a pod may have changed its gang between them."""
    if than is None:
        return True
    stamp = keys.GAS_TIMESTAMP_ANNOTATION
    return entry.get(stamp, "") > than.get(stamp, "")


def _read(placement: Placement) -> _Plan:
    namespace = placement.metadata.namespace
    cards: dict[OfCards, Texts] = {}
    entries: dict[str, PlannedPod] = {}
    for each in placement.spec.pods:
        _add(cards, {(namespace, each.uid, each.node): each.annotations})
        known = entries.get(each.uid)
        if known is None or is_newer(each.annotations, known.annotations):
            entries[each.uid] = each
    return _Plan(placement, frozenset((namespace, uid) for uid in entries), cards, entries)


def _add(cards: dict[OfCards, Texts], more: Mapping[OfCards, Texts]) -> None:
    """Those of another plan as well; the newer counts where both speak of the same."""
    if not cards.keys().isdisjoint(more):
        more = {key: each for key, each in more.items() if is_newer(each, cards.get(key))}
    cards.update(more)
