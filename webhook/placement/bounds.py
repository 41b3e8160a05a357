"""Capacities of the domains below a vertex, level by level, and the cost bounds that follow from them.

Facts about the inside of a domain are computed once for each vertex and cached in its notes.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, combinations
from operator import add
from typing import Final, NamedTuple

from webhook.placement.budget import Budget
from webhook.placement.costs import COUNT_BITS, Costs
from webhook.placement.model import Gang, Mode, Options
from webhook.placement.question import Impossible, ask
from webhook.placement.snapshot import CacheKey, Snapshot, shared_key
from webhook.placement.tree import build
from webhook.placement.vertex import Vertex


def slot_sums(vertex: Vertex) -> list[list[int]]:
    """For each level below a vertex: the sums of the 1, 2, ... largest domain capacities."""
    if "sums" not in vertex.notes:
        vertex.notes["sums"] = [
            list(accumulate(sorted(slot_counts, reverse=True))) for slot_counts in slot_counts_below(vertex)
        ]
    sums: list[list[int]] = vertex.notes["sums"]
    return sums


def slot_counts_below(vertex: Vertex) -> list[list[int]]:
    """Capacities of the domains of each level below a vertex."""
    if "slot_counts" in vertex.notes:
        known: list[list[int]] = vertex.notes["slot_counts"]
        return known
    if (leaves := vertex.leaves) is not None:  # computing it is faster than caching it
        return [[]] * leaves.top + [leaves.slot_counts] * (leaves.costs.depth - leaves.top)
    slot_counts: list[list[int]] = []
    for part in vertex.parts:
        inside = [] if part.state is not None else slot_counts_below(part)
        while len(slot_counts) < max(len(inside), part.bottom + 1):
            slot_counts.append([])
        for level in range(part.bottom + 1, len(inside)):
            slot_counts[level] += inside[level]
        for level in range(part.top, part.bottom + 1):
            slot_counts[level].append(part.free_slots)
    vertex.notes["slot_counts"] = slot_counts
    return slot_counts


def slot_counts_at(vertex: Vertex, level: int) -> list[int]:
    """Capacities of a domain's subdomains at a level; its own capacity if the vertex covers that level."""
    return [vertex.free_slots] if vertex.bottom >= level else slot_counts_below(vertex)[level]


def node_slot_counts(vertex: Vertex) -> list[int]:
    """Capacities of the nodes of a domain, or of a node alone."""
    return [vertex.free_slots] if vertex.state is not None else slot_counts_below(vertex)[-1]


class SmallestSets(NamedTuple):
    """Sets of the fewest children that fit so many pods on the fewest nodes, by upper bounds of capacities.

    slots: the least capacity of such a set. children: the numbers of all children in sets of that capacity,
    empty if it is too small. number: the children in a set. nodes: a lower bound of the nodes.
    """

    slots: int = 0
    children: Sequence[int] = ()
    number: int = 0
    nodes: int = 0


NO_SETS: Final = SmallestSets()


def least_cost(vertex: Vertex, wanted: int, costs: Costs, smallest: SmallestSets = NO_SETS) -> int:
    """A lower bound of the cost of placing so many pods inside a domain, each level taken alone.

    smallest: raises the bounds of the children and the nodes. The cost of using the domain itself is not
    included.
    """
    total, every = 0, slot_sums(vertex)
    for level, sums in enumerate(every):
        if sums:
            nodes = smallest.nodes if smallest.nodes and sums == every[-1] else 0
            slots = smallest.slots if level == vertex.bottom + 1 else 0
            total += least_cost_at(level, sums, wanted, costs, nodes, slots)
    return total


def least_cost_at(level: int, sums: Sequence[int], wanted: int, costs: Costs, number: int, slots: int) -> int:
    """A lower bound of the cost of a level's domains. sums: see slot_sums.

    number, slots: other lower bounds of the domains used, and of their capacity.
    """
    fewest = max(number, bisect_left(sums, wanted) + 1)
    leftover = max(slots, _least_leftover(sums, fewest, wanted))
    return (fewest << costs.domains[level]) + (leftover << costs.leftover[level])


def _least_leftover(sums: Sequence[int], fewest: int, wanted: int) -> int:
    """A lower bound of the capacity of so many domains that fit so many pods. sums: see slot_sums."""
    if fewest > 1:
        return max(wanted, sums[-1] - sums[-fewest - 1] if fewest < len(sums) else sums[-1])
    fitting = bisect_left(range(1, len(sums)), True, key=lambda n: sums[n] - sums[n - 1] < wanted)
    return sums[fitting] - (sums[fitting - 1] if fitting else 0)


SET: Final = 4
"""Steps per child of a domain to find the smallest sets of its children, beside those for the states."""

MOST_STATES: Final = 60_000
"""The most states of the knapsack for the smallest sets of children, of which most are out of reach."""

EXTENDED: Final = 10
"""States of that knapsack that are extended by one more child in one step."""

PAIRED: Final = 64
"""The most children of which each two are compared, where two fit the gang."""

ADDED: Final = 40
"""Numbers that are added in one step while two children are compared."""


def smallest_sets(vertex: Vertex, wanted: int, budget: Budget, beside: Sequence[int] = ()) -> SmallestSets:
    """The smallest sets of children of a domain for so many pods; none for nodes, or if there are too many.

    beside: the capacities of nodes outside these children, in domains that cost nothing. Raises OutOfSteps.

    Theory. For any price p, n nodes of capacities c have at most the capacity p * n plus the sum of all
    max(0, c - p), their worth. With p just below the capacity of the last of the largest nodes that suffice,
    this excludes most sets of children that have the capacity on more nodes alone.
    """
    if not vertex.parts:
        return NO_SETS
    budget.spend(SET * len(vertex.parts))
    sums = slot_sums(vertex)
    of_nodes = sums[-1]
    if beside:
        of_nodes = list(accumulate(sorted([*slot_counts_below(vertex)[-1], *beside], reverse=True)))
    missing = wanted - sum(beside)
    fewest = bisect_left(sums[vertex.bottom + 1], missing) + 1
    nodes = bisect_left(of_nodes, wanted) + 1
    before = [0, *of_nodes[:nodes]]
    price = max(0, before[nodes] - before[nodes - 1] - 1)
    given = _worth(beside, price)
    if fewest * (len(vertex.parts) - fewest + 1) * (wanted - given - price * nodes) > MOST_STATES:
        return NO_SETS
    worths = [_worth(node_slot_counts(part), price) for part in vertex.parts]
    most = given + sum(sorted(worths)[-fewest:])
    if price:
        nodes = max(nodes, -((most - wanted) // price))
    if fewest == 2 and not beside and len(vertex.parts) <= PAIRED:
        return _smallest_pairs(vertex.parts, wanted, nodes, budget)
    slots, children = _smallest_by_worth(vertex.parts, worths, fewest, wanted - given - price * nodes, budget)
    return SmallestSets(slots, children if slots >= missing else (), fewest, nodes)


def _smallest_pairs(parts: Sequence[Vertex], wanted: int, nodes: int, budget: Budget) -> SmallestSets:
    """The same where two children fit the pods: exact, since each two are compared.

    nodes: a lower bound of the nodes that two children need. Raises OutOfSteps.
    """
    slots = [part.free_slots for part in parts]
    sums = [list(accumulate(sorted(node_slot_counts(part), reverse=True), initial=0)) for part in parts]
    budget.spend((len(parts) ** 2 + sum(map(len, sums))) // EXTENDED)
    pairs = [(slots[one] + slots[other], one, other) for one, other in combinations(range(len(parts)), 2)]
    enough = sorted(pair for pair in pairs if pair[0] >= wanted)
    while True:
        least, children = _pairs_on(nodes, enough, sums, wanted, budget)
        if children:
            return SmallestSets(least, sorted(children), 2, nodes)
        nodes += 1


def _pairs_on(
    nodes: int, pairs: Iterable[tuple[int, int, int]], sums: Sequence[list[int]], wanted: int, budget: Budget
) -> tuple[int, set[int]]:
    """The least capacity of two children that fit the pods on so many nodes, and all such children.

    pairs: the capacity of each two, the least first. sums: by child, of its largest nodes.
    """
    heads = [each[: nodes + 1] + each[-1:] * (nodes + 1 - len(each)) for each in sums]
    least, children = 0, set[int]()
    for total, one, other in pairs:
        if children and total > least:
            break
        budget.spend(1 + nodes // ADDED)
        if max(map(add, heads[one], reversed(heads[other]))) >= wanted:
            least = total
            children |= {one, other}
    return least, children


def _worth(counts: Iterable[int], price: int) -> int:
    """The capacity of nodes beyond the price of each."""
    return sum([count - price for count in counts if count > price])


def _smallest_by_worth(
    parts: Sequence[Vertex], worths: Sequence[int], number: int, need: int, budget: Budget
) -> tuple[int, list[int]]:
    """The least capacity of so many children whose worths reach a need, and all such children.

    Raises OutOfSteps.
    """
    order = sorted(range(len(worths)), key=lambda each: -worths[each])
    slots, bits = _smallest([(worths[each], parts[each].free_slots) for each in order], number, need, budget)
    return slots, sorted(each for at, each in enumerate(order) if bits >> at & 1)


def _smallest(parts: Sequence[tuple[int, int]], number: int, need: int, budget: Budget) -> tuple[int, int]:
    """The least capacity of so many parts whose worths reach a need, and a bit for each part of such sets.

    parts: the worth and the capacity of each, the largest worths first. Some so many parts reach the need.
    Raises OutOfSteps.
    """
    rows: list[dict[int, tuple[int, int]]] = [{} for _ in range(number + 1)]
    rows[0][0] = 0, 0
    sums = list(accumulate([worth for worth, _ in parts], initial=0))
    for at, (worth, slots) in enumerate(parts):
        budget.spend(1 + sum(map(len, rows)) // EXTENDED)
        for taken in range(min(number, at + 1), max(0, number - len(parts) + at), -1):
            row = rows[taken]
            lacking = need - worth - (sums[at + 1 + number - taken] - sums[at + 1])
            for before, (least, bits) in rows[taken - 1].items():
                if before < lacking:  # even the most that the later parts add does not reach the need
                    continue
                after, total, used = min(need, before + worth), least + slots, bits | 1 << at
                known = row.get(after)
                if known is None or total < known[0]:
                    row[after] = total, used
                elif total == known[0]:
                    row[after] = total, used | known[1]
    return rows[number][need]


def census(vertex: Vertex) -> list[tuple[int, int]]:
    """For each level below a vertex: the number of domains and the largest capacity, (0, 0) if none."""
    if "census" not in vertex.notes:
        vertex.notes["census"] = [
            (len(slot_counts), max(slot_counts, default=0)) for slot_counts in slot_counts_below(vertex)
        ]
    known: list[tuple[int, int]] = vertex.notes["census"]
    return known


def canonical_form(vertex: Vertex) -> CacheKey:
    """A key that is equal for two domains, or nodes, that differ only in their names to the gang."""
    if "form" not in vertex.notes:
        leaves = vertex.leaves
        if leaves is not None:
            nodes = zip(leaves.slot_counts, leaves.every[0], leaves.kinds, leaves.penalties, strict=True)
            inside = Counter[object](nodes)
        else:
            inside = Counter(map(canonical_form, vertex.parts))
        mine = vertex.top, vertex.bottom, vertex.own, vertex.free_slots, vertex.slot_counts[:1], vertex.kind
        # One object for equal forms, since comparing two visits everything below.
        vertex.notes["form"] = shared_key(*mine, frozenset(inside.items()))
    form: CacheKey = vertex.notes["form"]
    return form


def first_of_equals(parts: Sequence[Vertex], numbers: Iterable[int], most: int) -> list[int]:
    """The numbers without those of domains that differ only in names from `most` earlier ones."""
    seen = Counter[object]()
    found = []
    for number in numbers:
        form = canonical_form(parts[number])
        seen[form] += 1
        if seen[form] <= most:
            found.append(number)
    return found


def child_slot_counts(vertex: Vertex) -> list[int]:
    """Capacities of the children of a domain."""
    return (
        vertex.leaves.slot_counts if vertex.leaves is not None else [part.free_slots for part in vertex.parts]
    )


def anchored_children(vertex: Vertex, costs: Costs) -> set[int]:
    """Numbers of the children that anchors use. Using them costs nothing at their highest level."""
    level = vertex.bottom + 1
    return {number for number, part in enumerate(vertex.parts) if not _is_paid(part, level, costs)}


def _is_paid(part: Vertex, level: int, costs: Costs) -> bool:
    """Whether using a domain adds one to the number of used domains of a level."""
    return bool(part.own >> costs.domains[level] & (1 << COUNT_BITS) - 1)


def slot_counts_beside(part: Vertex, level: int, costs: Costs) -> tuple[list[int], list[int]]:
    """Capacities of a domain's subdomains at a level: first those that anchors use, then the others.

    Subdomains that anchors use cost nothing.
    """
    if part.bottom >= level:
        return ([], [part.free_slots]) if _is_paid(part, level, costs) else ([part.free_slots], [])
    if not anchored_children(part, costs):  # leaves have none either
        return [], slot_counts_at(part, level)
    below = [slot_counts_beside(each, level, costs) for each in part.parts]
    return [free_slots for free, _ in below for free_slots in free], [
        free_slots for _, paid in below for free_slots in paid
    ]


def fewest_children(
    slot_counts: Sequence[int], anchored: set[int], wanted: int
) -> tuple[dict[int, int], int]:
    """The children that can be in a solution with the fewest paid children, and that fewest number.

    Each child comes with the fewest pods that it holds in such a solution: the pods that do not fit into
    the largest other children. slot_counts: capacities of all children. anchored: numbers of those that cost
    nothing. This holds for the level that is compared first.
    """
    missing = wanted - sum(slot_counts[number] for number in anchored)
    if missing <= 0:
        return dict.fromkeys(sorted(anchored), 0), 0
    others = sorted(
        (free_slots for number, free_slots in enumerate(slot_counts) if number not in anchored), reverse=True
    )
    sums = list(accumulate(others))
    fewest = bisect_left(sums, missing) + 1
    least = missing - (sums[fewest - 2] if fewest > 1 else 0)
    found = {
        number: 0 if number in anchored else least
        for number, free_slots in enumerate(slot_counts)
        if number in anchored or free_slots >= least
    }
    return found, fewest


def least_domains(gang: Gang, snapshot: Snapshot, options: Options, budget: Budget) -> tuple[int, ...] | None:
    """A lower bound of the domains used at each level, coarsest first, and of nodes; None without capacity.

    For each level alone, it counts the largest domains that together have capacity for the gang. It serves
    identical pods without placed members, in mode best-fit. For other gangs it returns (), which bounds
    nothing. So it does where the budget does not decide the capacities of cards, which may then be larger
    than known. Results about the blocks of the snapshot stay cached for `place`. Raises PlacementError as
    `place` does.
    """
    try:
        question, _ = ask(gang, snapshot, options)
    except Impossible:
        return None
    if options.mode is not Mode.BEST_FIT or len(question.counts) != 1 or question.slices or question.anchored:
        return ()
    tree = build(question, snapshot, budget.part(budget.left // 2))
    if not tree.exact:
        return ()
    wanted = question.counts[0]
    if tree.root.free_slots < wanted:
        return None
    return tuple(bisect_left(sums, wanted) + 1 for sums in slot_sums(tree.root))
