"""What one node can take of several classes of pods together."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.model import PodClass
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState
from webhook.placement.vertex import Vertex


class NodeOptions(NamedTuple):
    """States of a node; exact: whether it can take no others."""

    states: list[Counts]
    exact: bool


def node_options(question: Question, vertex: Vertex, budget: Budget, each: int = 1) -> NodeOptions:
    """What a node can take: the states that no other one covers.

    each: steps for a state that is looked at. What fits without one pod fits, so a state is covered exactly
    if it is with one more pod of some class. Raises OutOfSteps.
    """
    assert vertex.state is not None
    most = tuple(map(min, vertex.rooms, question.counts))
    if len(most) == 1:
        return NodeOptions([most], True)
    together = _Together(question.classes, most, vertex.state, budget)
    options = []
    for state in together.states((), ()):
        budget.spend(each * (5 + sum(state)))
        options.append(state)
    known = set(options)
    kept = [state for state in options if any(state) and not any(more in known for more in _with_one(state))]
    kept.sort(key=lambda state: (-sum(state), [-x for x in state]))
    return NodeOptions(kept, together.exact)


def _with_one(state: Counts) -> Iterator[Counts]:
    """The state with one more pod, of each class in turn."""
    for number, count in enumerate(state):
        yield (*state[:number], count + 1, *state[number + 1 :])


class _Together:
    """All the combinations that fit on a node; a combination that does not fit is not extended."""

    def __init__(self, classes: Sequence[PodClass], most: Counts, node: NodeState, budget: Budget) -> None:
        self.classes = classes
        self.most = most
        self.node = node
        self.budget = budget
        self.present = [number for number, top in enumerate(most) if top]
        self.exact = True

    def states(self, taken: Counts, pods: tuple[PodClass, ...]) -> Iterator[Counts]:
        """Those that begin with these counts of the classes present, which are these pods."""
        if len(taken) == len(self.present):
            found = dict(zip(self.present, taken, strict=True))
            yield tuple([found.get(number, 0) for number in range(len(self.most))])
            return
        number = self.present[len(taken)]
        for count in range(self.most[number] + 1):
            more = pods + (self.classes[number],) * count
            if count:
                fits = capacity.fits_together(more, self.node, self.budget)
                self.exact = self.exact and fits is not None
                if not fits:
                    return
            yield from self.states((*taken, count), more)
