"""What one node can take of several classes of pods together."""

from collections.abc import Callable, Iterator, Sequence

from webhook.placement import capacity
from webhook.placement.model import PodClass
from webhook.placement.snapshot import NodeState
from webhook.placement.tree import Question, Vertex

State = tuple[int, ...]
"""How many pods of each class."""


def node_options(
    question: Question, vertex: Vertex, every: bool = False, step: Callable[[], None] = lambda: None
) -> list[State]:
    """What a node can take: the states that no other one covers, or every one but the empty.

    step: called for each state that is looked at. What fits without one pod fits, so a state is covered
    exactly if it is with one more pod of some class.
    """
    assert vertex.state is not None
    most = tuple(map(min, vertex.rooms, question.counts))
    if len(most) == 1:
        return [(count,) for count in (range(1, most[0] + 1) if every else most)]
    options = []
    for state in _together(question.classes, most, vertex.state):
        step()
        options.append(state)
    if every:
        return [state for state in options if any(state)]
    known = set(options)
    kept = [state for state in options if any(state) and not any(more in known for more in _with_one(state))]
    kept.sort(key=lambda state: (-sum(state), [-x for x in state]))
    return kept


def _with_one(state: State) -> Iterator[State]:
    """The state with one more pod, of each class in turn."""
    for number, count in enumerate(state):
        yield (*state[:number], count + 1, *state[number + 1 :])


def _together(classes: Sequence[PodClass], most: State, state: NodeState) -> Iterator[State]:
    """All the combinations that fit on the node; a combination that does not fit is not extended."""

    present = [number for number, top in enumerate(most) if top]

    def extend(taken: tuple[int, ...], pods: tuple[PodClass, ...]) -> Iterator[State]:
        if len(taken) == len(present):
            found = dict(zip(present, taken, strict=True))
            yield tuple([found.get(number, 0) for number in range(len(most))])
            return
        number = present[len(taken)]
        for count in range(most[number] + 1):
            more = pods + (classes[number],) * count
            if count and not capacity.fits_together(more, state):
                return
            yield from extend((*taken, count), more)

    return extend((), ())
