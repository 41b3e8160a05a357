"""Which pods would have to go so that a gang fits: to preempt them for it, or to keep their nodes for it.

Nodes are ordered by what would have to go: the least important pods first, then the fewest. The shortest
sufficient beginning of that order is found by halving, so a question costs about log2(nodes) placements.
Then, on the nodes chosen, every pod that need not go is spared, the most important first. So no victim can be
spared alone, but a smaller set on other nodes may exist: the fewest of all is a set cover problem.

Pods of one gang (Usage.gang) go together or not at all.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from webhook.placement.budget import Budget
from webhook.placement.check import faults_on
from webhook.placement.model import Assignment, Gang, NoFit, Options, Placed, Usage
from webhook.placement.place import place
from webhook.placement.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Victims:
    """Where the gang would go once the pods of these names (Usage.name, sorted) are gone."""

    assignment: Assignment
    names: tuple[str, ...]

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of the assignment."""
        return frozenset(self.assignment.nodes.values())


_Pod = tuple[str, int]
"""A node's name and the number of the pod among its usages."""


@dataclass(frozen=True, slots=True, eq=False)
class _Unit:
    """Pods that go together. priority: the highest of them; name: decides between equals."""

    name: str
    priority: int
    pods: tuple[_Pod, ...]


def find(
    gang: Gang,
    snapshot: Snapshot,
    options: Options,
    may_go: Callable[[Usage], bool],
    budget: Budget | None = None,
) -> Victims | None:
    """The gang's place for which the least important and the fewest pods have to go; none of them if it fits.

    may_go: whether a pod may be a victim; of a gang all pods must be. None if there is no place even without
    all that may go, or if none was found within the budget (which is exhausted then): by default four times
    what one question may take. What was found by its end may have more victims than needed.
    Raises PlacementError as place does.
    """
    budget = budget or Budget(4 * options.bound)
    on_node: dict[str, list[_Unit]] = {}
    for unit in _units(snapshot, may_go):
        for node in {node for node, _ in unit.pods}:
            on_node.setdefault(node, []).append(unit)
    order = sorted(
        on_node, key=lambda node: (max(u.priority for u in on_node[node]), len(on_node[node]), node)
    )

    def gone(count: int) -> list[_Unit]:
        return list(dict.fromkeys(unit for node in order[:count] for unit in on_node[node]))

    def placed(count: int) -> Assignment | NoFit:
        pods = {pod for unit in gone(count) for pod in unit.pods}
        left = {node: _others(snapshot, node, pods) for node, _ in pods}
        return place(gang, snapshot.with_usages(left), options, budget, explained=False)

    found = {len(order): placed(len(order))}
    if isinstance(found[len(order)], NoFit):
        return None

    def is_enough(count: int) -> bool:
        if budget.exhausted:
            return False
        found[count] = placed(count)
        return not isinstance(found[count], NoFit)

    _least(len(order), is_enough)
    count, answer = min((n, each) for n, each in found.items() if not isinstance(each, NoFit))
    needed = _needed(answer, gang, snapshot, gone(count))
    return Victims(answer, tuple(sorted(filter(None, (_use(snapshot, pod).name for pod in needed)))))


def _units(snapshot: Snapshot, may_go: Callable[[Usage], bool]) -> list[_Unit]:
    """Who may go: gangs as a whole, and pods without a gang."""
    gangs: dict[str, list[_Pod]] = {}
    pods: list[_Pod] = []
    for node, state in snapshot.nodes.items():
        for number, use in enumerate(state.usages):
            if use.gang:
                gangs.setdefault(use.gang, []).append((node, number))
            elif may_go(use):
                pods.append((node, number))
    units = [_Unit(use.name, use.priority, (pod,)) for pod in pods for use in [_use(snapshot, pod)]]
    for gang, members in gangs.items():
        uses = [_use(snapshot, pod) for pod in members]
        if all(map(may_go, uses)):
            units.append(_Unit(gang, max(use.priority for use in uses), tuple(members)))
    return units


def _use(snapshot: Snapshot, pod: _Pod) -> Usage:
    return snapshot.nodes[pod[0]].usages[pod[1]]


def _others(snapshot: Snapshot, node: str, gone: Set[_Pod]) -> tuple[Usage, ...]:
    """The pods that stay on a node."""
    usages = snapshot.nodes[node].usages
    return tuple(use for number, use in enumerate(usages) if (node, number) not in gone)


def _least(high: int, is_enough: Callable[[int], bool]) -> int:
    """The least count in 0..high that is enough, given that high is."""
    low = 0
    while low < high:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _needed(answer: Assignment, gang: Gang, snapshot: Snapshot, gone: Iterable[_Unit]) -> set[_Pod]:
    """Those of the pods that are gone without whose going the assignment does not hold."""
    residents: dict[str, list[Placed]] = {}
    for placed in answer.placed:
        residents.setdefault(placed.node, []).append(placed)
    members = {member.name: member for member in gang.members}
    units = [unit for unit in gone if any(node in residents for node, _ in unit.pods)]
    needed = {pod for unit in units for pod in unit.pods}

    def holds(node: str) -> bool:
        state = snapshot.nodes[node].with_usages(_others(snapshot, node, needed))
        return node not in residents or not list(faults_on(state, residents[node], members))

    for unit in sorted(units, key=lambda u: (-u.priority, -len(u.pods), u.name)):
        needed.difference_update(unit.pods)
        if not all(holds(node) for node in {node for node, _ in unit.pods}):
            needed.update(unit.pods)
    return needed
