"""Identical pods that fit on one node: the best node, without a search.

Any such node uses the fewest domains. Of these nodes the best is the one on which the gang takes the fewest
GPUs from pods of the mix (see usable_gpus); then the leftover, the headroom score, the preferences and the
names decide (see model.Objective). The result is proven. Results are cached with each block that does not
change. If some of its nodes change, only theirs are computed again.
"""

from collections.abc import Iterable, Sequence
from itertools import compress, count, islice
from operator import is_not
from typing import Final, NamedTuple

from webhook.placement.budget import Budget
from webhook.placement.capacity import columns_of, count_slots_by_node
from webhook.placement.cards.choose import is_hard
from webhook.placement.costs import Score
from webhook.placement.mix import Mix
from webhook.placement.model import Mode, Objective, PodClass
from webhook.placement.names import natural
from webhook.placement.question import Question, is_usable
from webhook.placement.snapshot import (
    MOST_CACHED,
    Block,
    NodeState,
    Snapshot,
    block_key,
    key_of,
    shared_key,
)
from webhook.placement.tree import score_of

STEPS: Final = 2
"""Budget steps per node, of which most have a cached value."""

UNKNOWN: Final = -1

MOST_ASKED: Final = 512
"""The most questions that have keys in caches."""


class OneNode(NamedTuple):
    """The best node, and the objective of using it."""

    node: NodeState
    objective: Objective


class _Asked:
    """Identical pods, their number, and the mix; a key that equals itself alone."""

    def __init__(self, pod: PodClass, pods: int, mix: Mix) -> None:
        self.pod, self.pods, self.mix = pod, pods, mix
        self.slots = shared_key("slots", pod)
        """The key of nodes' free slots for the class, whatever the mix."""


class _Values(NamedTuple):
    """Values of a block's nodes in these states, such as their free slots; UNKNOWN until computed."""

    states: tuple[NodeState, ...]
    values: list[int]


def _values(block: Block, kind: str, key: object) -> list[int]:
    """The values of a block's nodes of a kind, known for the nodes that have not changed since.

    The caller adds the others. They are cached with the layout, which outlives the states.
    """
    cache: dict[object, _Values] = block.of_layout.setdefault(kind, {})
    if len(cache) >= MOST_CACHED:
        cache.clear()
    known = cache.get(key)
    if known is None:
        values = [UNKNOWN] * len(block.states)
    else:
        values = known.values.copy()
        for number in compress(count(), map(is_not, known.states, block.states)):
            values[number] = UNKNOWN
    cache[key] = _Values(block.states, values)
    return values


class _Candidates:
    """The nodes of a block with capacity for all pods, and of these the ones that lose the fewest GPUs."""

    def __init__(self, block: Block, slots: Sequence[int], asked: _Asked) -> None:
        self.block, self.slots = block, slots
        self.numbers = [number for number, free in enumerate(slots) if free >= asked.pods]
        self.lost = 0
        self._losses = _values(block, "losses", asked)
        self._best: tuple[tuple[int, ...], NodeState] | None = None

    @property
    def missing(self) -> list[int]:
        """The numbers of the candidates whose loss is not known."""
        return [number for number in self.numbers if self._losses[number] == UNKNOWN]

    def keep_best(self, missing: Iterable[int], losses: Iterable[int]) -> None:
        """Leave those that lose the least. losses: of the missing ones."""
        for number, lost in zip(missing, losses, strict=True):
            self._losses[number] = lost
        every = [self._losses[number] for number in self.numbers]
        self.lost = min(every)
        self.numbers = [n for n, lost in zip(self.numbers, every, strict=True) if lost == self.lost]

    def best(self, levels: int, score: Score) -> tuple[tuple[int, ...], NodeState]:
        """The best node and what compares: leftover from nodes up, then the penalty.

        Of equal ones it is the first in the order of the topology.
        """
        if self._best is None:
            leftover, among = _tightest(self.block, levels, self.slots, self.numbers)
            penalty, first = min([(score.penalty(self.block.states[number]), number) for number in among])
            self._best = (*leftover, penalty), self.block.states[first]
        return self._best


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
    if _exceeds_each_node(question, snapshot):
        return None
    budget.take(STEPS * len(snapshot.nodes))
    score = score_of(question, snapshot)
    found = _candidates(question, snapshot, _asked(question, snapshot.mix, score))
    if not found:
        return None
    lost = min([each.lost for each in found])
    compared = [each.best(question.levels, score) for each in found if each.lost == lost]
    (*leftover, penalty), node = min(compared, key=lambda each: (each[0], _order(each[1])))
    ties = question.ties
    preference = penalty & (1 << ties) - 1
    domains = (1,) * (question.levels + 1)
    objective = Objective(domains, lost, tuple(leftover), penalty >> ties, preference_penalty=preference)
    return OneNode(node, objective)


def _exceeds_each_node(question: Question, snapshot: Snapshot) -> bool:
    """Whether all pods together request more of a resource than any node has."""
    pods = question.counts[0]
    requests = question.classes[0].requests
    return any(pods * amount > snapshot.largest(resource) for resource, amount in requests)


def _order(node: NodeState) -> list[object]:
    return [natural(part) for part in block_key(node)]


def _asked(question: Question, mix: Mix, score: Score) -> _Asked:
    """The same object for the same question and mix, unless other pods affect preferences."""
    pod, pods = question.classes[0], question.counts[0]
    if question.ranking is not None and question.ranking.key is None:
        return _Asked(pod, pods, mix)
    known: dict[object, _Asked] = mix.notes.setdefault("asked", {})
    key = pod, pods, score.key
    if key not in known:
        if len(known) >= MOST_ASKED:
            known.clear()
        known[key] = _Asked(pod, pods, mix)
    return known[key]


def _candidates(question: Question, snapshot: Snapshot, asked: _Asked) -> list[_Candidates]:
    """The candidates of each block that has some, from the block's cache if they are there."""
    found: list[_Candidates] = []
    new: list[_Candidates] = []
    for block in snapshot.blocks.values():
        if question.labelled_only and block.states[0].path is None:
            continue
        is_excluding = bool(question.excluded) and any(s.name in question.excluded for s in block.states)
        known = None if is_excluding else block.cache.get(asked)
        if known is None:
            known = _Candidates(block, _slots(question, block, asked), asked)
            new.append(known)
            if not is_excluding:
                block.keep(asked, known)
        found.append(known)
    _choose(new, asked)
    return [each for each in found if each.numbers]


def _choose(new: Sequence[_Candidates], asked: _Asked) -> None:
    """Leave the candidates that lose the fewest GPUs; those of all blocks are computed at once."""
    missing = [(each, each.missing) for each in new if each.numbers]
    lost = iter(_lost([each.block.states[n] for each, numbers in missing for n in numbers], asked))
    for each, numbers in missing:
        each.keep_best(numbers, islice(lost, len(numbers)))


def _slots(question: Question, block: Block, asked: _Asked) -> Sequence[int]:
    """The free slots of each node; 0 on excluded ones."""
    slots: list[int] = block.worked_out(asked.slots, lambda: _all_slots(block, asked))
    if not question.excluded:
        return slots
    pairs = zip(slots, block.states, strict=True)
    return [count if is_usable(question, state) else 0 for count, state in pairs]


def _all_slots(block: Block, asked: _Asked) -> list[int]:
    values = _values(block, "slots", asked.slots)
    missing = [number for number, value in enumerate(values) if value == UNKNOWN]
    if missing:
        is_new = len(missing) == len(values)  # then a search of the block needs the same columns
        nodes = columns_of(block) if is_new else [block.states[number] for number in missing]
        counts = count_slots_by_node(asked.pod, nodes).counts
        for number, slots in zip(missing, counts, strict=True):
            values[number] = slots
    return values


def _lost(nodes: Sequence[NodeState], asked: _Asked) -> list[int]:
    """What each node loses for pods of the mix; see Objective.lost."""
    if not nodes or not asked.mix.classes:
        return [0] * len(nodes)
    # Numpy takes a tenth of a second to load, so it is imported on the first use.
    from webhook.placement.usable_gpus import of_mix

    return of_mix(asked.mix).lost(nodes, asked.pod, asked.pods)


def _tightest(
    block: Block, levels: int, slots: Sequence[int], among: list[int]
) -> tuple[list[int], list[int]]:
    """The nodes among these whose domains have the fewest free slots, finest level first, and how many."""
    leftover = []
    for domain_of, members in reversed(_domains(block, levels)):
        domains = {domain_of[number] for number in among}
        sums = {domain: sum([slots[number] for number in members[domain]]) for domain in domains}
        least = min(sums.values())
        among = [number for number in among if sums[domain_of[number]] == least]
        leftover.append(least)
    return leftover, among


class _Domains(NamedTuple):
    """Domains of one level in a block: that of each node, and the numbers of the nodes in each."""

    domain_of: list[int]
    members: list[list[int]]


def _domains(block: Block, levels: int) -> list[_Domains]:
    """The domains of each level, and then the nodes as domains."""
    if "domains" not in block.of_layout:
        places = [key_of(state, levels) for state in block.states]
        block.of_layout["domains"] = [
            _domains_of([place[: level + 2] for place in places]) for level in range(levels + 1)
        ]
    found: list[_Domains] = block.of_layout["domains"]
    return found


def _domains_of(keys: Iterable[object]) -> _Domains:
    known: dict[object, int] = {}
    domain_of = [known.setdefault(key, len(known)) for key in keys]
    members: list[list[int]] = [[] for _ in known]
    for number, domain in enumerate(domain_of):
        members[domain].append(number)
    return _Domains(domain_of, members)
