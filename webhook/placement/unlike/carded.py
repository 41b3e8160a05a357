"""Of the sets of pods that a node may take by its amounts, those that find cards on it as well.

Nearly all that do are found by first-fit, all sets at once. The others are asked of the exact search, in the
steps that there are for it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from webhook.placement.budget import Budget
from webhook.placement.cards.choose import choose, signature
from webhook.placement.cards.choose import fits as find_cards
from webhook.placement.cards.first_fit import first_fit, steps_of
from webhook.placement.cards.packing import EACH
from webhook.placement.cards.state import CardState, is_searched, left_by
from webhook.placement.model import PodClass
from webhook.placement.prices import PART, added
from webhook.placement.question import Counts, pods_of
from webhook.placement.snapshot import NodeState
from webhook.placement.unlike.takes import Array, Takes, thinned

TRIED: Final = 1000
"""Sets of one node that are tried on its cards; of more some, evenly over all."""

SEARCHED: Final = 40
"""Sets of one node that are asked of the exact search; likewise the numbers of pods whose cards are searched
for, such as linked ones.
"""

LOOKS: Final = 128
"""At least, of that search for one set: most that fit are found in half as many; to refuse one takes more."""


class CardedSets:
    """The classes of one question, some of which want cards, on the cards of its nodes."""

    def __init__(self, classes: Sequence[PodClass]) -> None:
        self.classes = classes
        wanting = [number for number, pod in enumerate(classes) if pod.wants_cards]
        self.searched = [number for number in wanting if is_searched(classes[number])]
        self.others = [number for number in wanting if number not in self.searched]
        self.searched_classes = [classes[number] for number in self.searched]
        self.other_classes = [classes[number] for number in self.others]
        self.left: dict[tuple[tuple[object, ...], Counts], Sequence[CardState] | None] = {}
        """What nodes with the same cards have left; see _left."""

    def fitting(self, found: Takes, node: NodeState, steps: int, budget: Budget) -> Takes:
        """The sets that find cards on a node, or most of them; steps: to search for cards for those that
        first-fit finds none for. Raises OutOfSteps.
        """
        if not len(found.pods):
            return found
        found = thinned(found, TRIED)
        budget.spend(4 * PART + added(8 * found.pods.size, True))
        fits = np.zeros(len(found.pods), dtype=np.bool_)
        searching = budget.part(steps)
        for some, states in self._by_searched(found.pods, node, budget):
            sets = found.pods[some][:, self.others]
            budget.spend(steps_of(states, self.other_classes, len(some)))
            fits[some] = first_fit(states, self.other_classes, sets)
            rest = np.flatnonzero(~fits[some])
            some = some[rest[:: len(rest) // SEARCHED + 1]]
            for number, each in enumerate(some.tolist()):
                if not searching.left > 0:
                    break
                looks = max(LOOKS, searching.left // EACH // (len(some) - number))
                fits[each] = self._is_fitting(found.pods[each].tolist(), node, searching, looks)
        return Takes(found.pods[fits], found.left[fits])

    def _by_searched(
        self, pods: Array, node: NodeState, budget: Budget
    ) -> Iterator[tuple[Array, Sequence[CardState]]]:
        """Which sets have the same pods whose cards are searched for, and the cards once these have theirs;
        not those whose pods find none.
        """
        groups, of_sets = np.unique(pods[:, self.searched], axis=0, return_inverse=True)
        alike = tuple(map(signature, node.cards))
        for number, counts in enumerate(groups[:SEARCHED].tolist()):
            key = (alike, tuple(counts))
            if key not in self.left:
                self.left[key] = self._left(counts, node, budget)
            if (states := self.left[key]) is not None:
                yield np.flatnonzero(of_sets.ravel() == number), states

    def _left(self, counts: Sequence[int], node: NodeState, budget: Budget) -> Sequence[CardState] | None:
        """The cards of a node once so many pods have theirs that cards are searched for."""
        searched = pods_of(self.searched_classes, counts)
        if not searched:
            return node.cards
        slots = choose(node.cards, searched, 0, budget).slots
        return None if slots is None else left_by(node.cards, searched, slots)

    def _is_fitting(self, counts: Sequence[int], node: NodeState, budget: Budget, looks: int) -> bool:
        """Whether so many pods of each class do, wherever those are put whose cards are searched for; what is
        not decided counts as not.
        """
        pods = [pod for pod in pods_of(self.classes, counts) if pod.wants_cards]
        budget.take(PART + len(pods))
        return bool(find_cards(node.cards, pods, budget, looks))
