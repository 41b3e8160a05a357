"""Of the sets of pods that a node may take by its amounts, those that find cards on it as well.

Nearly all that do are found by first-fit, all sets at once. The others are asked of the exact search, in the
steps that there are for it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from webhook.placement.budget import Budget
from webhook.placement.cards.choose import choose
from webhook.placement.cards.choose import fits as find_cards
from webhook.placement.cards.first_fit import first_fit, steps_of
from webhook.placement.cards.state import CardState, is_searched, left_by
from webhook.placement.model import PodClass
from webhook.placement.prices import PART, added
from webhook.placement.question import pods_of
from webhook.placement.snapshot import NodeState
from webhook.placement.unlike.takes import Array, Takes, thinned

TRIED: Final = 1000
"""Sets of one node that are tried on its cards; of more some, evenly over all."""

SEARCHED: Final = 40
"""Sets of one node that are asked of the exact search; likewise the numbers of pods whose cards are searched
for, such as linked ones.
"""


class CardedSets:
    """The classes of one question, some of which want cards, on the cards of its nodes."""

    def __init__(self, classes: Sequence[PodClass]) -> None:
        wanting = [number for number, pod in enumerate(classes) if pod.wants_cards]
        self.searched = [number for number in wanting if is_searched(classes[number])]
        self.others = [number for number in wanting if number not in self.searched]
        self.searched_classes = [classes[number] for number in self.searched]
        self.other_classes = [classes[number] for number in self.others]

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
            for each in rest[:: len(rest) // SEARCHED + 1].tolist():
                if not searching.left > 0:
                    break
                fits[some[each]] = self._is_fitting(sets[each].tolist(), states, searching)
        return Takes(found.pods[fits], found.left[fits])

    def _by_searched(
        self, pods: Array, node: NodeState, budget: Budget
    ) -> Iterator[tuple[Array, Sequence[CardState]]]:
        """Which sets have the same pods whose cards are searched for, and the cards once these have theirs;
        not those whose pods find none.
        """
        groups, of_sets = np.unique(pods[:, self.searched], axis=0, return_inverse=True)
        for number, counts in enumerate(groups[:SEARCHED].tolist()):
            searched = pods_of(self.searched_classes, counts)
            states: Sequence[CardState] | None = node.cards
            if searched:
                slots = choose(node.cards, searched, 0, budget).slots
                states = None if slots is None else left_by(node.cards, searched, slots)
            if states is not None:
                yield np.flatnonzero(of_sets.ravel() == number), states

    def _is_fitting(self, counts: Sequence[int], states: Sequence[CardState], budget: Budget) -> bool:
        """Whether so many pods of the other classes do; what is not decided counts as not."""
        pods = pods_of(self.other_classes, counts)
        budget.take(PART + len(pods))
        return bool(find_cards(states, pods, budget))
