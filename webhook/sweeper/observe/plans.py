"""What all plans say together, and of which pods: worked out anew for those plans alone that have changed."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Final

from labeler.contract import keys
from webhook.kube.placements import Placement
from webhook.kube.planned import PlannedPod
from webhook.sweeper.observe.converted import Texts

PodId = tuple[str, str]
"""Namespace and uid. A uid alone proves nothing: a plan speaks for the pods of its own namespace only."""
OfCards = tuple[str, str, str]
"""Namespace and uid of a pod, and the node for which its cards were chosen."""

_FEW: Final = 1000


@dataclass(frozen=True)
class _Plan:
    """What one plan says."""

    placement: Placement
    named: frozenset[PodId]
    cards: Mapping[OfCards, Texts]
    entries: Mapping[str, PlannedPod]


class Plans:
    """The plans of one moment, and what they say.

    naming: by pod, released or not, the plans that name it. cards: what plans say of the cards of each.
    turns: by node another number after each change of what plans say of cards there. What has been handed
    out of these stays as it was.
    """

    def __init__(self) -> None:
        self.naming: Mapping[PodId, tuple[str, ...]] = {}
        self.cards: Mapping[OfCards, Texts] = {}
        self.turns: Mapping[str, int] = {}
        self._plans: dict[str, _Plan] = {}
        self._turn = 0

    def saw(self, placements: Mapping[str, Placement]) -> None:
        """Take in the Placements that there are, by "namespace/name"."""
        before = self._plans
        gone = [before[key] for key in before.keys() - placements.keys()]
        come: list[_Plan] = []
        plans: dict[str, _Plan] = {}
        for key, placement in sorted(placements.items()):
            known = before.get(key)
            if known is not None and _says_the_same(known.placement, placement):
                known = known if known.placement is placement else replace(known, placement=placement)
            else:
                gone += [known] if known is not None else []
                known = _read(placement)
                come.append(known)
            plans[key] = known
        self._plans = plans
        if gone or come:
            self._change(gone, come)

    def _change(self, gone: Iterable[_Plan], come: Iterable[_Plan]) -> None:
        naming, cards, turns = dict(self.naming), dict(self.cards), dict(self.turns)
        self._turn += 1
        is_told_once = True
        for plan in gone:
            own = plan.placement.key
            for each in plan.named:
                left = tuple(key for key in naming[each] if key != own)
                if left:
                    naming[each], is_told_once = left, False
                else:
                    del naming[each]
            for of_cards in plan.cards:
                cards.pop(of_cards, None)
                turns[of_cards[2]] = self._turn
        for plan in come:
            alone = (plan.placement.key,)
            for each in plan.named:
                others = naming.get(each, ())
                naming[each] = others + alone if others else alone
                is_told_once &= not others
            turns.update((node, self._turn) for _, _, node in plan.cards)
            cards.update(plan.cards)
        if not is_told_once:
            # Two plans name one pod, as one that has changed its gang: the newer counts, whichever goes.
            cards = {}
            for plan in self._plans.values():
                _add(cards, plan.cards)
            turns = dict.fromkeys((*turns, *(node for _, _, node in cards)), self._turn)
        if len(turns) > 2 * len(cards) + _FEW:  # of nodes that are long gone
            turns = dict.fromkeys((node for _, _, node in cards), self._turn)
        self.naming, self.cards, self.turns = naming, cards, turns

    @property
    def named(self) -> Set[PodId]:
        """The pods that plans name, released or not."""
        return self.naming.keys()

    def entries_of(self, waiting: Mapping[str, str]) -> Iterator[PlannedPod]:
        """All entries of plans for these pods (uid -> namespace), of plans of the pods' own namespaces."""
        # A plan speaks for pods of its own namespace alone, whoever wrote it.
        known = {uid for uid, namespace in waiting.items() if (namespace, uid) in self.naming}
        for plan in self._plans.values() if known else ():
            for uid in sorted(plan.entries.keys() & known):
                if waiting[uid] == plan.placement.metadata.namespace:
                    yield plan.entries[uid]


def is_newer(entry: Texts, than: Texts | None) -> bool:
    """Which of two plans for one pod counts: a pod may have changed its gang between them."""
    if than is None:
        return True
    stamp = keys.GAS_TIMESTAMP_ANNOTATION
    return entry.get(stamp, "") > than.get(stamp, "")


def _says_the_same(before: Placement, after: Placement) -> bool:
    """Whether only the status has changed, as it does some times for each gang."""
    return before is after or (before.metadata.uid == after.metadata.uid and before.spec == after.spec)


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
