"""Free slots of a node for pods of one class or of several: by free amounts, pod count and cards."""

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from webhook.placement.budget import Budget
from webhook.placement.cards import choose as cards
from webhook.placement.cards.choose import OVERDRAWN, FreeSlots
from webhook.placement.cards.packing import LONGEST, STEPS
from webhook.placement.eligibility import reason_against
from webhook.placement.model import PodClass
from webhook.placement.snapshot import Block, CacheKey, NodeState, shared_key

UNBOUNDED = 10**9
"""The free slots for pods without requests on a node without a pod limit."""


def reason_against_node(pod_class: PodClass, state: NodeState) -> str:
    """Why such a pod cannot run on the node, whatever is free, in a few words; "" if it can."""
    node, rules = state.node, pod_class.rules
    if node.problem:
        return node.problem
    if not (rules.has_preferences or node.taints or node.unschedulable) and node.ready:
        return ""
    return reason_against(rules, node.name, node.labels, node.taints, node.unschedulable, node.ready)


class SlotCounts(NamedTuple):
    """Free slots of each node. undecided: numbers of the nodes that may have more."""

    counts: list[int]
    undecided: frozenset[int] = frozenset()


def count_slots(
    pod_class: PodClass,
    state: NodeState,
    most: int = UNBOUNDED,
    budget: Budget | None = None,
    longest: int = LONGEST,
) -> FreeSlots:
    """How many more pods of the class fit on the node, without regard to the rules of the class.

    budget: pays for the search for cards; once it is exhausted, no further search is made. longest: see
    cards.choose.count_slots.
    """
    free = state.free
    count = _fitting([(free.get(resource, 0), amount) for resource, amount in pod_class.requests], most)
    if pod_class.cards and count and pod_class.wants_cards:
        return cards.count_slots(state.cards, pod_class, count, budget, longest)
    return FreeSlots(count, True)


MOST_COLUMNS = 32
"""Resources, and sets of them, whose free amounts a block caches. Users may name any number of resources."""


class Columns:
    """The free amounts of many nodes by resource, for questions about several pod classes."""

    def __init__(self, states: Sequence[NodeState]) -> None:
        self.states = states
        self._free: dict[str, list[int]] = {}
        self._groups: dict[tuple[str, ...], NodeGroups] = {}

    def free(self, resource: str) -> list[int]:
        """The free amount of a resource on each node."""
        if resource not in self._free:
            if len(self._free) >= MOST_COLUMNS:
                self._free.clear()
            self._free[resource] = [state.free.get(resource, 0) for state in self.states]
        return self._free[resource]

    def groups(self, resources: tuple[str, ...]) -> "NodeGroups":
        """The nodes grouped by their free amounts of these resources."""
        if resources not in self._groups:
            if len(self._groups) >= MOST_COLUMNS:
                self._groups.clear()
            numbers: dict[tuple[int, ...], int] = {}
            rows = zip(*map(self.free, resources), strict=True)
            of_nodes = [numbers.setdefault(free, len(numbers)) for free in rows]
            self._groups[resources] = NodeGroups(of_nodes or [0] * len(self.states), list(numbers) or [()])
        return self._groups[resources]

    @cached_property
    def are_open(self) -> bool:
        """Whether each node takes any pod that has no rules of its own."""
        return all(map(is_open, self.states))


class NodeGroups(NamedTuple):
    """of_nodes: the group number of each node; free: the free amounts in each group."""

    of_nodes: list[int]
    free: list[tuple[int, ...]]


def columns_of(block: Block) -> Columns:
    """The columns of all nodes of a block, cached with the block."""
    columns: Columns = block.worked_out("columns", lambda: Columns(block.states))
    return columns


def card_steps(classes: Iterable[PodClass], blocks: Iterable[Block], steps: int) -> int:
    """Steps for the card search on one node: an equal share for each distinct set of cards.

    steps: for all nodes. Without shares, the first nodes would take all of them. A share is a power of two,
    so that cached results of other nodes stay valid when one node's cards change.
    """
    hard = sum(map(cards.is_hard, classes))
    if not hard:
        return LONGEST
    signatures: set[object] = set()
    for block in blocks:
        signatures |= _card_signatures(block)
    share = steps // max(1, hard * len(signatures))
    return min(LONGEST, 1 << share.bit_length() >> 1)


def _card_signatures(block: Block) -> frozenset[object]:
    groups: frozenset[object] = block.worked_out(
        "cards", lambda: frozenset(cards_key(each) for each in block.states if each.cards)
    )
    return groups


def count_slots_by_node(
    pod_class: PodClass,
    nodes: Sequence[NodeState] | Columns,
    budget: Budget | None = None,
    longest: int = LONGEST,
) -> SlotCounts:
    """Free slots of each node for a class, 0 where its rules exclude the node: `count_slots` for many nodes.

    It computes the slots once for all nodes with the same free amounts, or resource by resource where these
    amounts vary much. Both are several times faster than node by node.
    """
    columns = nodes if isinstance(nodes, Columns) else Columns(nodes)
    states = columns.states
    counts = _counts(pod_class, columns)
    rules = pod_class.rules
    if rules.has_preferences or not columns.are_open:
        counts = [
            count if count and not reason_against_node(pod_class, state) else 0
            for count, state in zip(counts, states, strict=True)
        ]
    return (
        _card_slot_counts(pod_class, states, counts, budget, longest)
        if pod_class.wants_cards
        else SlotCounts(counts)
    )


def _card_slot_counts(
    pod_class: PodClass,
    states: Sequence[NodeState],
    counts: Sequence[int],
    budget: Budget | None,
    longest: int,
) -> SlotCounts:
    """Free slots by the cards of each node, at most those by its free amounts."""
    known: dict[object, FreeSlots] = {0: FreeSlots(0, True)}
    asked = shared_key(pod_class, longest)
    found = []
    for count, state in zip(counts, states, strict=True):
        key = (count, cards_key(state)) if count else 0
        slots = known.get(key)
        if slots is None:
            slots = _slots_by_cards(pod_class, state, count, budget or Budget(UNBOUNDED), longest, asked)
            known[key] = slots
        found.append(slots)
    undecided = frozenset(number for number, each in enumerate(found) if not each.exact)
    return SlotCounts([each.pods for each in found], undecided)


def _slots_by_cards(
    pod_class: PodClass, state: NodeState, count: int, budget: Budget, longest: int, asked: CacheKey
) -> FreeSlots:
    """Free slots by the cards of a node, cached with the node; it takes the same steps from the cache.

    asked: the key of the class and `longest`.
    """
    key = asked, count, budget.exhausted, budget.left > -OVERDRAWN
    known: tuple[FreeSlots, int] | None = state.notes.get(key)
    if known is not None:
        budget.take(known[1])
        return known[0]
    before = budget.spent
    found = cards.count_slots(state.cards, pod_class, count, budget, longest)
    state.note(key, (found, budget.spent - before))
    return found


def cards_key(state: NodeState) -> CacheKey:
    """A key that is equal for nodes whose cards serve the same pods, cached with the node."""
    known: CacheKey | None = state.notes.get("cards")
    if known is None:
        known = shared_key(*map(cards.signature, state.cards))
        state.note("cards", known)
    return known


def _counts(pod_class: PodClass, columns: Columns) -> list[int]:
    """Free slots by the free amounts of each node."""
    groups = columns.groups(tuple([resource for resource, _ in pod_class.requests]))
    if 2 * len(groups.free) <= len(groups.of_nodes):
        amounts = tuple([amount for _, amount in pod_class.requests])
        slots_of = [_slots_in(free, amounts) for free in groups.free]
        return list(map(slots_of.__getitem__, groups.of_nodes))
    counts = [UNBOUNDED] * len(columns.states)
    for resource, amount in pod_class.requests:
        counts = [
            count if available >= amount * count else available // amount
            for count, available in zip(counts, columns.free(resource), strict=True)
        ]
    return [count if count > 0 else 0 for count in counts]


@lru_cache(maxsize=1 << 16)  # the same groups recur in many blocks
def _slots_in(free: tuple[int, ...], amounts: tuple[int, ...]) -> int:
    """How many pods that ask for these amounts fit what is free."""
    return _fitting(zip(free, amounts, strict=True), UNBOUNDED)


def _fitting(amounts: Iterable[tuple[int, int]], most: int) -> int:
    """How many pods fit, at most `most`. amounts: for each resource the free amount and the request of a pod.

    A free amount may be below 0.
    """
    for available, amount in amounts:
        if available < amount * most:
            most = max(0, available // amount)
    return most


def is_open(state: NodeState) -> bool:
    """Whether the node takes any pod that has no rules of its own."""
    return takes_pods(state) and not state.node.taints


def takes_pods(state: NodeState) -> bool:
    """Whether the node takes some pods."""
    node = state.node
    return node.ready and not (node.unschedulable or node.problem)


def fits_together(
    pods: Sequence[PodClass], state: NodeState, budget: Budget | None = None, looks: int = STEPS
) -> bool | None:
    """Whether these pods fit on the node together, without regard to rules; None: not decided.

    looks: see cards.choose.fits.
    """
    wanted: dict[str, int] = {}
    for pod in pods:
        for resource, amount in pod.requests:
            wanted[resource] = wanted.get(resource, 0) + amount
    if any(amount > state.free.get(resource, 0) for resource, amount in wanted.items()):
        return False
    with_cards = [pod for pod in pods if pod.wants_cards]
    return cards.fits(state.cards, with_cards, budget, looks) if with_cards else True


def shortage(pod_class: PodClass, state: NodeState, budget: Budget | None = None) -> str:
    """The scarcest resource of a node without free slots, cards if all amounts suffice; "" if a pod fits.

    That is the resource whose free amount is the smallest share of the request; names decide ties.
    """
    short = [
        (max(0, state.free.get(resource, 0)) * 10**6 // amount, resource)
        for resource, amount in pod_class.requests
        if state.free.get(resource, 0) < amount
    ]
    if short:
        return f'resource "{min(short)[1]}"'
    if pod_class.wants_cards and not cards.count_slots(state.cards, pod_class, 1, budget).pods:
        return state.node.without_cards or "cards"
    return ""
