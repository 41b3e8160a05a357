"""Proofs that a gang fits nowhere, and how long each stays valid. Pure.

A proof stays valid until a node that the gang may use gains capacity. For a gang that may preempt others, the
capacity counts that would be free if all of its possible victims were gone: so the end of a victim changes
nothing. What only takes capacity away never invalidates a proof. A node with new labels or other facts counts
as one that gains capacity.

From pass to pass the states of all nodes are kept, those after the last gang of a pass: what a plan took that
was not written in the end counts as gained.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import Final

from webhook.placement import Gang, Snapshot
from webhook.placement.capacity import reason_against_node
from webhook.placement.cards.state import CardState
from webhook.placement.snapshot import NodeState
from webhook.placement.victims import pods_of
from webhook.sweeper.decide.preemption import candidates, none_protected, not_victims
from webhook.sweeper.decide.waiting_plans import plans_with_victims
from webhook.sweeper.observe.view import View

EXPENSIVE_STEPS: Final = 20_000
"""Work budget that a question must have taken for its proof to be kept. A cheap question is asked again when
something has changed, as its answer then also names the current capacity."""

States = Mapping[str, NodeState]
"""Nodes by name."""


@dataclass(frozen=True, eq=False)
class Proof:
    """A proof that a gang fits nowhere.

    asked: the question. below: its possible victims are of lower priority than that; None if it has none.
    closed: nodes that could not be reserved for it, None if it was not yet due for a reservation.
    """

    asked: Gang
    below: int | None = None
    closed: frozenset[str] | None = None

    def is_valid(self, before: States, after: States, gained: Iterable[str]) -> bool:
        """Whether it stays valid. before, after: the nodes then and now. gained: see gaining."""
        anchors = {anchor.node for anchor in self.asked.anchors}
        if any(not _is_same_node(before.get(name), after.get(name)) for name in anchors):
            return False
        return not any(self._may_use(after[name]) for name in gained)

    def _may_use(self, state: NodeState) -> bool:
        """Whether some pod of the gang could run on the node if that were empty."""
        if state.name in self.asked.excluded_nodes:
            return False
        allocatable = state.node.allocatable
        return any(
            all(allocatable.get(resource, 0) >= amount for resource, amount in each.requests)
            and not reason_against_node(each, state)
            for each in dict.fromkeys(member.pod_class for member in self.asked.members)
        )


def gaining(before: States, after: States) -> Iterator[str]:
    """The nodes that may have more free capacity than before, or are others."""
    for name, state in after.items():
        old = before.get(name)
        if old is not state and (old is None or _has_more(old, state)):
            yield name


def _has_more(before: NodeState, after: NodeState) -> bool:
    if not _is_same_node(before, after):
        return True
    if any(amount > before.free.get(resource, 0) for resource, amount in after.free.items()):
        return True
    return any(_card_has_more(*pair) for pair in zip(before.cards, after.cards, strict=True))


def _card_has_more(before: CardState, after: CardState) -> bool:
    free = dict(before.free)
    is_freed = any(amount > free.get(resource, 0) for resource, amount in after.free)
    return is_freed or not set(after.tiles) <= set(before.tiles)


def _is_same_node(before: NodeState | None, after: NodeState | None) -> bool:
    if before is None or after is None:
        return before is after
    return before.path == after.path and (before.node is after.node or before.node == after.node)


class Emptied:
    """The nodes of a pass without the possible victims of gangs of a priority."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._victims: dict[int, Set[str]] = {}

    def states(self, snapshot: Snapshot, below: int | None) -> States:
        """The nodes. below: see Proof."""
        victims = self._victims_of(below) if below is not None else frozenset[str]()
        if not victims:
            return snapshot.nodes
        emptied = {
            name: state.with_usages(tuple(use for use in state.usages if use.uid not in victims))
            for name, state in snapshot.nodes.items()
            if any(use.uid in victims for use in state.usages)
        }
        return {**snapshot.nodes, **emptied}

    def _victims_of(self, below: int) -> Set[str]:
        """The uids of all possible victims, as VictimSearch finds them where nothing else suffices."""
        if below not in self._victims:
            view = self._view
            promised = chain.from_iterable(each.spec.victims for each, _ in plans_with_victims(view))
            found = candidates(view, below, not_victims(view), none_protected, promised)
            self._victims[below] = pods_of(found.units) | found.leaving
        return self._victims[below]
