"""Identical pods that fit on one node: the best node, without a search.

Any such node uses the fewest domains. Of these nodes the best is the one on which the gang takes the fewest
GPUs from pods of the mix (see usable_gpus); then the leftover, the headroom score, the preferences and the
names decide (see model.Objective). The result is proven. Results are cached with each node and block that
does not change.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.placement.budget import Budget
from webhook.placement.capacity import count_slots_by_node
from webhook.placement.cards.choose import is_hard
from webhook.placement.costs import Score
from webhook.placement.mix import Mix, resource_names
from webhook.placement.model import Mode, Objective, PodClass
from webhook.placement.names import natural
from webhook.placement.question import Question, is_usable
from webhook.placement.snapshot import Block, NodeState, Snapshot, key_of
from webhook.placement.tree import score_of

if TYPE_CHECKING:
    from webhook.placement.usable_gpus import Amounts, UsableGpus

STEPS: Final = 2
"""Budget steps per node, of which most have a cached value."""

MOST_PAIRS: Final = 512
"""The most states of nodes for which the state with the pods is cached, by question."""

MOST_ASKED: Final = 128
"""The most classes of pods for which results are cached."""


class OneNode(NamedTuple):
    """The best node, and the objective of using it."""

    node: NodeState
    objective: Objective


@dataclass(slots=True, eq=False)
class _Asked:
    """Identical pods, their number, and the mix; a key that equals itself alone.

    nodes: a key of what is computed for nodes; it is the same for all mixes that request these resources.
    """

    pod: PodClass
    pods: int
    mix: Mix
    nodes: "_NodeKey"


class _NodeKey:
    """A key of nodes' notes, see _Asked.nodes. pairs: by the amounts before, these and the amounts later."""

    def __init__(self) -> None:
        self.pairs: dict[Amounts, tuple[Amounts, Amounts]] = {}


class _Value(NamedTuple):
    """A node's free slots.

    amounts: before and with the pods; None without capacity for all of them, and without a mix.
    """

    free_slots: int
    amounts: "tuple[Amounts, Amounts] | None" = None


class _Best(NamedTuple):
    """The best node of a block, and what compares: lost, leftover from the coarsest level on, penalty."""

    rank: tuple[int, ...]
    node: NodeState


def serves(question: Question) -> bool:
    """Whether the gang may be placed like this: identical pods that ask for no other node than the best."""
    return (
        question.is_identical
        and question.options.mode is Mode.BEST_FIT
        and question.spread is None
        and not question.anchored
        and not question.confined
        and question.named[:1] in ((), (None,))
        and not is_hard(question.classes[0])
    )


def best(question: Question, snapshot: Snapshot, budget: Budget) -> OneNode | None:
    """The best node; None if no single node has capacity for all pods."""
    budget.take(STEPS * len(snapshot.nodes))
    score = score_of(question, snapshot)
    asked = _asked(question, snapshot.mix, score)
    found: tuple[tuple[int, ...], Block, NodeState] | None = None
    for block in snapshot.blocks.values():
        mine = _best_of_block(question, block, asked, score)
        if mine is None:
            continue
        if (
            found is None
            or mine.rank < found[0]
            or (mine.rank == found[0] and _order(block) < _order(found[1]))
        ):
            found = mine.rank, block, mine.node
    if found is None:
        return None
    (lost, *leftover, penalty), _, node = found
    ties = question.ties
    preference = penalty & (1 << ties) - 1
    domains = (1,) * (question.levels + 1)
    objective = Objective(domains, lost, tuple(leftover), penalty >> ties, preference_penalty=preference)
    return OneNode(node, objective)


def _order(block: Block) -> list[object]:
    if "order" not in block.of_layout:
        block.of_layout["order"] = [natural(part) for part in block.key]
    order: list[object] = block.of_layout["order"]
    return order


_known: dict[object, _NodeKey] = {}
"""A key of nodes for each question, see _Asked.nodes."""


def _asked(question: Question, mix: Mix, score: Score) -> _Asked:
    """The same object for the same question and mix, unless other pods affect preferences."""
    pod, pods = question.classes[0], question.counts[0]
    if question.ranking is not None and question.ranking.key is None:
        return _Asked(pod, pods, mix, _NodeKey())
    known: dict[object, _Asked] = mix.notes.setdefault("asked", {})
    key = pod, pods, score.key
    if key not in known:
        if len(known) >= MOST_ASKED:
            known.clear()
        known[key] = _Asked(pod, pods, mix, _key_of_nodes((*key, resource_names(mix))))
    return known[key]


def _key_of_nodes(question: object) -> _NodeKey:
    """The same object for equal questions; losing one costs time alone."""
    if len(_known) >= MOST_ASKED:
        _known.clear()
    return _known.setdefault(question, _NodeKey())


def _best_of_block(question: Question, block: Block, asked: _Asked, score: Score) -> _Best | None:
    if question.labelled_only and block.states[0].path is None:
        return None
    if question.excluded and any(state.name in question.excluded for state in block.states):
        return _compared(question, block, asked, score)
    if asked not in block.cache:
        block.keep(asked, _compared(question, block, asked, score))
    known: _Best | None = block.cache[asked]
    return known


def _compared(question: Question, block: Block, asked: _Asked, score: Score) -> _Best | None:
    """The best node of a block; of equal ones the first in the order of the topology."""
    values = _values(block.states, asked)
    slots = _slots(question, block, values)
    enough = [number for number, count in enumerate(slots) if count >= asked.pods]
    if not enough:
        return None
    lost = _lost([values[number] for number in enough], asked.mix) or [0] * len(enough)
    fewest = min(lost)
    enough = [number for number, each in zip(enough, lost, strict=True) if each == fewest]
    leftover, enough = _tightest(block, question.levels, slots, enough)
    penalty, first = min([(score.penalty(block.states[number]), number) for number in enough])
    return _Best((fewest, *leftover, penalty), block.states[first])


def _slots(question: Question, block: Block, values: Sequence[_Value]) -> list[int]:
    """The free slots of each node, 0 on excluded ones."""
    if not question.excluded:
        return [value.free_slots for value in values]
    pairs = zip(values, block.states, strict=True)
    return [value.free_slots if is_usable(question, state) else 0 for value, state in pairs]


def _tightest(
    block: Block, levels: int, slots: Sequence[int], among: list[int]
) -> tuple[list[int], list[int]]:
    """The nodes among these whose domains have the fewest free slots, coarsest level first, and how many."""
    leftover = []
    for domains in _domains(block, levels):
        sums = [0] * len(slots)
        for domain, count in zip(domains, slots, strict=True):
            sums[domain] += count
        least = min([sums[domains[number]] for number in among])
        among = [number for number in among if sums[domains[number]] == least]
        leftover.append(least)
    return leftover, among


def _domains(block: Block, levels: int) -> Sequence[Sequence[int]]:
    """For each level, and for nodes, the number of the domain that each node of a block is in."""
    if "domains" not in block.of_layout:
        places = [key_of(state, levels) for state in block.states]
        block.of_layout["domains"] = [
            _numbers(place[: level + 2] for place in places) for level in range(levels + 1)
        ]
    found: list[list[int]] = block.of_layout["domains"]
    return found


def _numbers(keys: Iterable[object]) -> list[int]:
    known: dict[object, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]


def _values(states: Sequence[NodeState], asked: _Asked) -> list[_Value]:
    """Each node's value, cached with the node."""
    missing = [state for state in states if asked.nodes not in state.notes]
    if missing:
        slots = count_slots_by_node(asked.pod, missing).counts
        for state, count in zip(missing, slots, strict=True):
            value = _Value(count)
            if count >= asked.pods:
                value = _Value(count, _amounts(state, asked))
            state.note(asked.nodes, value)
    return [state.notes[asked.nodes] for state in states]


def _amounts(state: NodeState, asked: _Asked) -> "tuple[Amounts, Amounts] | None":
    if not asked.mix.classes:
        return None
    resources = _usable(asked.mix).of
    before: Amounts | None = state.notes.get(resources)
    if before is None:
        before = resources.amounts_of(state)
        state.note(resources, before)
    pairs = asked.nodes.pairs
    if before not in pairs:
        if len(pairs) >= MOST_PAIRS:
            pairs.clear()
        pairs[before] = before, resources.later(before, asked.pod, asked.pods)
    return pairs[before]


def _lost(values: Iterable[_Value], mix: Mix) -> list[int]:
    """What each node loses for pods of the mix; see Objective.lost."""
    pairs = [value.amounts for value in values if value.amounts is not None]
    return _usable(mix).lost(pairs) if pairs else []


def _usable(mix: Mix) -> "UsableGpus":
    """The usable GPUs for a mix."""
    # Numpy takes a tenth of a second to load, so it is imported on the first use.
    from webhook.placement.usable_gpus import of_mix

    return of_mix(mix)
