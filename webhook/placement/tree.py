"""The cluster as a tree for one gang: the domains that it may use, their capacities and costs.

Parts that do not depend on the gang itself are cached with each block.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from functools import cached_property
from itertools import repeat
from operator import itemgetter
from typing import Final, NamedTuple

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.costs import Costs, Score
from webhook.placement.model import PodClass
from webhook.placement.question import MANY_CLASSES, Counts, Question, is_in, is_usable
from webhook.placement.snapshot import Block, CacheKey, Domain, NodeState, Path, Snapshot, key_of
from webhook.placement.vertex import Leaves, Vertex

VERTEX: Final = 5
"""Steps per vertex: to make it, count it and read its capacities. Each sixteen classes with capacity in the
block add one."""

BLOCK: Final = 20
"""Steps per block."""

FEW_CLASSES: Final = 4
"""The most classes for which nodes are distinguished by their free slots for each class, as the search for
homogeneous gangs needs it."""


class Tree(NamedTuple):
    """All domains and nodes that the gang may use.

    exact: whether the capacities of all nodes were decided, see cards.choose. steps: the price of making the
    tree and traversing it a few times, also if it comes from the cache.
    """

    root: Vertex
    exact: bool
    steps: int


def build(question: Question, snapshot: Snapshot, budget: Budget) -> Tree:
    """The tree of all domains and nodes that the gang may use. Its root is the cluster and costs nothing.

    budget: steps for the card search; capacities that it does not decide count as 0.
    """
    costs = question.costs()
    score = score_of(question, snapshot)
    key = None
    if _is_lasting(question):
        key = CacheKey("tree", question.classes, score.key, question.card_steps)
    blocks = [_block_tree(question, block, costs, score, budget, key) for block in snapshot.blocks.values()]
    children = [block.vertex for block in blocks if block.vertex is not None]
    free_slots = sum(child.free_slots for child in children)
    root = Vertex(-1, -1, (), free_slots, 0, tuple(children))
    return Tree(root, all(block.exact for block in blocks), sum(block.steps for block in blocks))


def score_of(question: Question, snapshot: Snapshot) -> Score:
    """The headroom score for the gang."""
    kind = question.classes[question.reference]
    return Score(kind, question.options, snapshot.largest, question.ranking, question.ties)


class _BlockTree(NamedTuple):
    """The vertex of a block with capacity for the gang, None without capacity.

    It also has whether the capacities of all nodes were decided, and the steps for making the vertex.
    """

    vertex: Vertex | None
    exact: bool
    steps: int = 0


def _block_tree(
    question: Question, block: Block, costs: Costs, score: Score, budget: Budget, key: CacheKey | None
) -> _BlockTree:
    """A block's part of the tree, from the block's cache if it does not depend on the gang itself.

    key: in that cache, None if the results depend on the gang.
    """
    if not _may_use(question, block):
        return _BlockTree(None, True)
    if key is None or not _is_untouched(question, block):
        return _Builder(question, block, costs, score, budget).tree()
    known: tuple[_BlockTree, int] | None = block.cache.get(key)
    if known is not None and known[1] <= budget.left:
        budget.take(known[1])
        return known[0]
    before = budget.spent
    tree = _Builder(question, block, costs, score, budget).tree()
    if not budget.exhausted:
        block.keep(key, (tree, budget.spent - before))
    return tree


def _may_use(question: Question, block: Block) -> bool:
    """Whether the gang's own request allows any node of a block."""
    if question.inside is not None and not _overlaps(question.inside, block.key):
        return False
    if question.confined and not any(
        domain is None or _overlaps(domain, block.key) for domain in question.confined
    ):
        return False
    return not question.labelled_only or block.states[0].path is not None


def _is_lasting(question: Question) -> bool:
    """Whether results for the gang's classes stay valid as long as the block does not change."""
    return (
        not question.confined
        and question.inside is None
        and len(question.classes) <= MANY_CLASSES
        and not any(each.rules.exclusions for each in question.classes)  # these change from pass to pass
        and (question.ranking is None or question.ranking.key is not None)
    )


def _is_untouched(question: Question, block: Block) -> bool:
    """Whether a block has neither placed pods of the gang nor nodes excluded for it."""
    if block.key in question.anchored:
        return False
    return not (question.excluded and any(state.name in question.excluded for state in block.states))


def _overlaps(inside: tuple[str, ...], key: tuple[str, ...]) -> bool:
    length = min(len(inside), len(key))
    return inside[:length] == key[:length]


class _Builder:
    """Turns a block's layout into vertices, without domains and nodes that have no capacity for the gang."""

    def __init__(self, question: Question, block: Block, costs: Costs, score: Score, budget: Budget) -> None:
        self.question = question
        self.block = block
        self.states = block.states
        self.costs = costs
        self.score = score
        self.budget = budget
        self.exact = True
        self.vertices = 0
        self.columns = capacity.columns_of(block)
        self.nothing = [0] * len(block.states)
        self.slot_counts = [self.nothing] * len(question.listed)
        """For each listed class."""
        for position in self._asked():
            self.slot_counts[position] = self._slot_counts(question.listed[position])
        self.some = [
            number for number, slot_counts in enumerate(self.slot_counts) if slot_counts is not self.nothing
        ]
        """The classes that may have capacity here: few of very many if each pod is pinned to a node."""
        some = [self.slot_counts[number] for number in self.some]
        self.others = [self._usable(None, *self._counted(pod)).counts for pod in question.others]
        some += self.others
        self.used = some[0] if len(some) == 1 else list(map(any, zip(*some, strict=True))) or self.nothing
        """For each node whether any class has capacity there."""
        self.reference = self.slot_counts[question.reference]
        if question.confined:
            self.reference = self._counted(question.classes[question.reference]).counts

    def _asked(self) -> Iterator[int]:
        """The positions of listed classes whose rules name no nodes, or name nodes of the block."""
        here, named = self.question.named_in.get(self.block.key, {}), self.question.named
        listed = enumerate(self.question.listed)
        return (at for at, number in listed if not named or named[number] is None or number in here)

    def _counted(self, pod: PodClass) -> capacity.SlotCounts:
        return capacity.count_slots_by_node(pod, self.columns, self.budget, self.question.card_steps)

    def _slot_counts(self, number: int) -> list[int]:
        """Each node's free slots for a class, 0 if the gang's own request excludes the node."""
        question = self.question
        domain = question.confinement(number)
        if domain is not None and not _overlaps(domain, self.block.key):
            return self.nothing
        if question.named and question.named[number] is not None:
            slot_counts, undecided = self._named_slot_counts(number)
        else:
            slot_counts, undecided = self._counted(question.classes[number])
        slot_counts, undecided = self._usable(domain, slot_counts, undecided)
        self.exact = self.exact and not undecided
        return slot_counts

    def _usable(
        self, domain: Path | None, slot_counts: list[int], undecided: Set[int]
    ) -> capacity.SlotCounts:
        """The free slots on nodes that the gang may use, inside the domain if one is given."""
        question = self.question
        if slot_counts is self.nothing or not (question.excluded or question.inside is not None or domain):
            return capacity.SlotCounts(slot_counts, frozenset(undecided))

        def mine(state: NodeState) -> bool:
            return is_usable(question, state) and is_in(domain, state, question.levels)

        usable = [
            free_slots if free_slots and mine(state) else 0
            for free_slots, state in zip(slot_counts, self.states, strict=True)
        ]
        return capacity.SlotCounts(
            usable, frozenset(number for number in undecided if mine(self.states[number]))
        )

    def _named_slot_counts(self, number: int) -> capacity.SlotCounts:
        """The same for a class whose rules name nodes: for these nodes alone."""
        names = self.question.named_in.get(self.block.key, {}).get(number)
        if names is None:
            return capacity.SlotCounts(self.nothing)
        at = [self.numbers[name] for name in names]
        of_pods = self.question.classes[number]
        states = [self.states[n] for n in at]
        found, undecided = capacity.count_slots_by_node(
            of_pods, states, self.budget, self.question.card_steps
        )
        slot_counts = list(self.nothing)
        for position, free_slots in zip(at, found, strict=True):
            slot_counts[position] = free_slots
        return capacity.SlotCounts(slot_counts, frozenset(at[n] for n in undecided))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each node in the block."""
        return {state.name: number for number, state in enumerate(self.states)}

    def tree(self) -> _BlockTree:
        """The tree of the whole block."""
        vertex = self.vertex(self.block.layout, 0)
        if vertex is not None and 1 < len(self.question.classes) <= FEW_CLASSES:
            vertex.notes["groups"] = self._groups()
        each = VERTEX + len(self.some) // 16
        return _BlockTree(vertex, self.exact, BLOCK + self.vertices * each)

    @cached_property
    def kinds(self) -> Sequence[object]:
        """For each node a key that is equal where nodes are to the gang, but for names and penalties.

        It is 0 for identical pods, whose free slots suffice.
        """
        if len(self.question.classes) == 1:
            return self.nothing
        resources = tuple(sorted({resource for pod in self.question.classes for resource, _ in pod.requests}))
        groups = self.columns.groups(resources)
        cards: Sequence[object] = self.nothing
        if any(pod.wants_cards for pod in self.question.classes):
            cards = list(map(capacity.cards_key, self.states))
        some = zip(*[self.slot_counts[number] for number in self.some], *self.others, strict=True)
        free = map(groups.free.__getitem__, groups.of_nodes)
        found = zip(free, cards, some, repeat(tuple(self.some)))
        known: dict[object, object] = {}
        return [known.setdefault(kind, kind) for kind in found]

    def _groups(self) -> list[tuple[NodeState, Counts]]:
        """One node of each kind."""
        one_of = {kind: number for number, kind in enumerate(self.kinds)}.values()
        return [(self.states[n], tuple([of_class[n] for of_class in self.slot_counts])) for n in one_of]

    def vertex(self, domain: Domain, level: int) -> Vertex | None:
        self.vertices += len(domain.children) != 1
        if domain.index >= 0:
            return self._leaf(domain)
        if domain.flat and domain.key not in self.question.anchored:
            return self._flat(domain, level)
        if len(domain.children) == 1:
            only = self.vertex(domain.children[0], level + 1)
            return None if only is None else self._merged(domain, level, only)
        children = []
        free_slots = 0
        for part in domain.children:
            child = self.vertex(part, level + 1)
            if child is not None:
                children.append(child)
                free_slots += child.free_slots
        if not children:
            return None
        if len(children) == 1:
            return self._merged(domain, level, children[0])
        own = self._own(domain.key, level, free_slots)
        return Vertex(level, level, domain.key, free_slots, own, tuple(children))

    def _flat(self, domain: Domain, level: int) -> Vertex | None:
        """The vertex of a domain in which each child has a single node."""
        first, end = domain.flat[0], domain.flat[-1] + 1
        if end - first == len(domain.flat) and all(self.used[first:end]):  # the usual case, in one step
            states = list(self.states[first:end])
            counts, kinds = self.reference[first:end], self.kinds[first:end]
            every = self._every(counts, lambda slot_counts: slot_counts[first:end])
        else:
            used = [n for n in domain.flat if self.used[n]]
            if not used:
                return None
            if len(used) == 1:
                return self._single(used[0], level)
            pick = itemgetter(*used)  # for many classes several times faster than index by index
            states = list(pick(self.states))
            counts, kinds = list(pick(self.reference)), pick(self.kinds)
            every = self._every(counts, lambda slot_counts: list(pick(slot_counts)))
        leaves = Leaves(level + 1, states, counts, every, kinds, self.score, self.costs)
        free_slots = sum(counts)
        return Vertex(
            level, level, domain.key, free_slots, self._own(domain.key, level, free_slots), (), leaves
        )

    def _every(self, counts: list[int], picked: Callable[[list[int]], list[int]]) -> list[list[int]]:
        """The free slots of nodes for each class. counts: for the reference class. picked: selects nodes."""
        every = [[0] * len(counts)] * len(self.slot_counts)
        for number in self.some:
            slot_counts = self.slot_counts[number]
            every[number] = counts if slot_counts is self.reference else picked(slot_counts)
        return every

    def _single(self, number: int, level: int) -> Vertex:
        """The vertex of a node that covers all levels from one down."""
        state, free_slots, bottom = self.states[number], self.reference[number], self.question.levels
        key = key_of(state, bottom)
        own = self.costs.of_levels(level, bottom, free_slots) + self.score.penalty(state)
        slot_counts = tuple([of_class[number] for of_class in self.slot_counts])
        kind = self.kinds[number]
        return Vertex(level, bottom, key, free_slots, own, (), None, state, slot_counts, kind)

    def _merged(self, domain: Domain, level: int, child: Vertex) -> Vertex:
        """The vertex of an only child, which covers the domain too."""
        child.top = level
        child.own += self._own(domain.key, level, child.free_slots)
        return child

    def _leaf(self, domain: Domain) -> Vertex | None:
        state = self.states[domain.index]
        if not self.used[domain.index]:
            return None
        slot_counts = tuple([of_class[domain.index] for of_class in self.slot_counts])
        level, free_slots = self.question.levels, self.reference[domain.index]
        own = self._own(domain.key, level, free_slots) + self.score.penalty(state)
        kind = self.kinds[domain.index]
        return Vertex(level, level, domain.key, free_slots, own, (), None, state, slot_counts, kind)

    def _own(self, key: Path, level: int, free_slots: int) -> int:
        return 0 if key in self.question.anchored else self.costs.of_domain(level, free_slots)
