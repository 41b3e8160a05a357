"""What the answer depends on that a gang has no place, and so for how long it is valid. Pure.

A proof that a gang fits nowhere stays valid until a node that the gang may use gains capacity. For a gang
that may preempt others, the capacity counts that would be free if all of its possible victims were gone: so
the end of a victim changes nothing. What only takes capacity away never invalidates a proof. A node with new
labels or other facts counts as one that gains capacity.

A search that ended at its work budget proves nothing: with less capacity it might have taken another path.
Its answer is valid only while the search would read the same again.

From pass to pass the states of all nodes are kept, those after the last gang of a pass: what a plan took that
was not written in the end counts as gained. If it was written, the pods are other usages than those of the
plan, so a search beside it is repeated.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from webhook.placement import Gang, Snapshot
from webhook.placement.capacity import reason_against_node
from webhook.placement.cards.state import CardState
from webhook.placement.snapshot import NodeState
from webhook.placement.victims import pods_of
from webhook.sweeper.decide.preemption import NONE_PROTECTED, Keeps, PossibleVictims, candidates, not_victims
from webhook.sweeper.decide.waiting_plans import plans_with_victims
from webhook.sweeper.observe.pods import PodTrait
from webhook.sweeper.observe.view import View

States = Mapping[str, NodeState]
"""Nodes by name."""


class NodeChanges:
    """The differences between the nodes of two times."""

    def __init__(self, before: States, after: States) -> None:
        self.before, self.after = before, after

    @cached_property
    def _other(self) -> tuple[tuple[NodeState | None, NodeState], ...]:
        """The nodes whose state is another one, with the state before."""
        if self.before is self.after:
            return ()
        pairs = ((self.before.get(name), state) for name, state in self.after.items())
        return tuple(pair for pair in pairs if pair[0] is not pair[1])

    @cached_property
    def gained(self) -> tuple[NodeState, ...]:
        """The nodes that may have more free capacity than before, or are others."""
        return tuple(now for old, now in self._other if old is None or _has_more(old, now))

    @cached_property
    def used(self) -> tuple[NodeState, ...]:
        """The nodes whose pods are others, or use them in another way."""
        return tuple(now for old, now in self._other if old is None or old.usages != now.usages)

    @cached_property
    def are_others(self) -> bool:
        """Whether some node is new or gone, or has other labels or other facts."""
        is_other = self.before.keys() != self.after.keys()
        return is_other or any(not _is_same_node(old, now) for old, now in self._other)


@dataclass(frozen=True, eq=False)
class AnswerBasis:
    """What the answer to a question depends on, beside the question itself.

    asked: the question; of a gang with several, one that may use the nodes of all. is_proven: whether the
    gang fits nowhere; otherwise its search ended at the work budget. below: its possible victims are of lower
    priority than that; None if it has none. closed: nodes that could not be reserved for it, None if it was
    not yet due for a reservation. search: what else the search has read, None for a proof.
    """

    asked: Gang
    is_proven: bool = True
    below: int | None = None
    closed: frozenset[str] | None = None
    search: object = None

    @property
    def emptied_below(self) -> int | None:
        """Pods below this priority do not count on the nodes."""
        return self.below if self.is_proven else None

    def is_valid(self, changes: NodeChanges) -> bool:
        """Whether the answer is still valid after these changes."""
        if not self.is_proven:
            return not changes.are_others and not any(map(self._may_use, changes.used))
        anchors = {anchor.node for anchor in self.asked.anchors}
        if any(not _is_same_node(changes.before.get(name), changes.after.get(name)) for name in anchors):
            return False
        return not any(map(self._may_use, changes.gained))

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
    """The nodes of a pass without the possible victims of gangs of a priority. keeps: see VictimSearch."""

    def __init__(self, view: View, keeps: Keeps = NONE_PROTECTED) -> None:
        self._view = view
        self._keeps = keeps
        self._possible: dict[int, PossibleVictims] = {}
        self._unprotected: dict[int, object] = {}

    def states(self, snapshot: Snapshot, below: int | None) -> States:
        """The nodes. below: see AnswerBasis."""
        victims = self._victims_of(below) if below is not None else frozenset[str]()
        if not victims:
            return snapshot.nodes
        emptied = {
            name: state.with_usages(tuple(use for use in state.usages if use.uid not in victims))
            for name, state in snapshot.nodes.items()
            if any(use.uid in victims for use in state.usages)
        }
        return {**snapshot.nodes, **emptied}

    def search_input(self, below: int) -> object:
        """All that a search for victims reads of pods, equal while it would read the same."""
        if below not in self._unprotected:
            slow = self._view.uids(PodTrait.SLOW) & self._victims_of(below)
            self._unprotected[below] = self._candidates(below, self._keeps), slow
        return self._candidates_of_all(below), self._unprotected[below]

    def _victims_of(self, below: int) -> Set[str]:
        """The uids of all possible victims, as VictimSearch finds them where nothing else suffices."""
        found = self._candidates_of_all(below)
        return pods_of(found.units) | found.leaving

    def _candidates_of_all(self, below: int) -> PossibleVictims:
        if below not in self._possible:
            self._possible[below] = self._candidates(below, NONE_PROTECTED)
        return self._possible[below]

    def _candidates(self, below: int, keeps: Keeps) -> PossibleVictims:
        view = self._view
        promised = chain.from_iterable(each.spec.victims for each, _ in plans_with_victims(view))
        return candidates(view, below, not_victims(view), keeps, promised)
