"""The pods whose eviction makes a gang fit, for preemption and for reserving their nodes.

Nodes are ordered by the pods to evict: the lowest priorities first, then the fewest pods. A binary search
finds the shortest sufficient prefix of that order, so a question costs about log2(nodes) placements. These
ask for any placement. The best one is searched for once, on the nodes that suffice. Then every pod on the
chosen nodes that need not be evicted is removed from the victims, the highest priority first. So no single
victim is superfluous, but a smaller set on other nodes may exist: finding the smallest set is a set cover
problem.

The pods of a gang (Usage.gang) are evicted together or not at all.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from typing import Final

from webhook.placement.budget import Budget
from webhook.placement.check import faults_on
from webhook.placement.model import Assignment, Gang, NoFit, Options, Usage
from webhook.placement.place import place
from webhook.placement.snapshot import Snapshot

SHARE: Final = 4
"""Each further question has at least one part in so many of the steps of one question."""


@dataclass(frozen=True, slots=True)
class Victims:
    """The gang's placement without these pods. names: sorted, see Usage.name."""

    assignment: Assignment
    names: tuple[str, ...]

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of the assignment."""
        return frozenset(self.assignment.nodes.values())


_Pod = tuple[str, int]
"""A node's name, and the number of the pod among its usages."""


@dataclass(frozen=True, slots=True, eq=False)
class _Unit:
    """Pods that are evicted together. priority: the highest of them; name: the tie-breaker."""

    name: str
    priority: int
    pods: tuple[_Pod, ...]


def find(
    gang: Gang,
    snapshot: Snapshot,
    options: Options,
    may_evict: Callable[[Usage], bool],
    budget: Budget | None = None,
) -> Victims | None:
    """The gang's placement that evicts the lowest priorities and the fewest pods; no victims if it fits.

    may_evict: whether a pod may be a victim; a gang is a victim only if all its pods may be. It returns None
    if no placement exists even without all of these, or if the budget is exhausted first. The default budget
    is four times that of one question. If it ends early, the result may have more victims than needed.
    Raises PlacementError as `place` does.
    """
    budget = budget or Budget(4 * options.bound)
    search = _Emptying(gang, snapshot, options, _units(snapshot, may_evict), budget)
    best = search.fewest_nodes()
    if best is None:
        return None
    count, answer = best
    needed = _needed(answer, gang, snapshot, search.gone(count))
    return Victims(answer, tuple(sorted(filter(None, (_use(snapshot, pod).name for pod in needed)))))


class _Emptying:
    """Empties nodes of their units one by one, the lowest priorities first."""

    def __init__(
        self, gang: Gang, snapshot: Snapshot, options: Options, units: Iterable[_Unit], budget: Budget
    ) -> None:
        self._gang, self._snapshot, self._options, self._budget = gang, snapshot, options, budget
        self._on_node: dict[str, list[_Unit]] = {}
        for unit in units:
            for node in {node for node, _ in unit.pods}:
                self._on_node.setdefault(node, []).append(unit)
        self._order = sorted(self._on_node, key=self._importance)

    def _importance(self, node: str) -> tuple[int, int, str]:
        units = self._on_node[node]
        return max(unit.priority for unit in units), len(units), node

    def gone(self, count: int) -> list[_Unit]:
        """The units that are evicted with the first so many nodes."""
        return list(dict.fromkeys(unit for node in self._order[:count] for unit in self._on_node[node]))

    def _placed(self, count: int, further: int, *, any_place: bool = True) -> Assignment | NoFit:
        """A placement, or the best one, once so many nodes are emptied.

        further: the number of questions that may follow and need steps.
        """
        pods = {pod for unit in self.gone(count) for pod in unit.pods}
        left = {node: _others(self._snapshot, node, pods) for node, _ in pods}
        without = self._snapshot.with_usages(left)
        steps = self._budget.left
        part = self._budget.part(max(steps - further * self._options.bound // SHARE, steps // (further + 1)))
        options = replace(self._options, any_place=any_place)
        return place(self._gang, without, options, part, explained=False)

    def fewest_nodes(self) -> tuple[int, Assignment] | None:
        """The fewest emptied nodes that suffice, by binary search within the budget; None if all do not."""
        low, high = 0, len(self._order)
        answer = self._placed(high, high.bit_length() + 1)
        if isinstance(answer, NoFit):
            return None
        while low < high and not self._budget.exhausted:
            middle = (low + high) // 2
            tried = self._placed(middle, (high - low).bit_length())
            if isinstance(tried, NoFit):
                low = middle + 1
            else:
                high, answer = middle, tried
        best = answer if answer.proven else self._placed(high, 0, any_place=False)
        return high, answer if isinstance(best, NoFit) else best


def _units(snapshot: Snapshot, may_evict: Callable[[Usage], bool]) -> list[_Unit]:
    """The possible victims: whole gangs, and pods without a gang."""
    gangs: dict[str, list[_Pod]] = {}
    units: list[_Unit] = []
    for node, state in snapshot.nodes.items():
        for number, use in enumerate(state.usages):
            if use.gang:
                gangs.setdefault(use.gang, []).append((node, number))
            elif may_evict(use):
                units.append(_Unit(use.name, use.priority, ((node, number),)))
    for gang, members in gangs.items():
        uses = [_use(snapshot, pod) for pod in members]
        if all(map(may_evict, uses)):
            units.append(_Unit(gang, max(use.priority for use in uses), tuple(members)))
    return units


def _use(snapshot: Snapshot, pod: _Pod) -> Usage:
    return snapshot.nodes[pod[0]].usages[pod[1]]


def _others(snapshot: Snapshot, node: str, gone: Set[_Pod]) -> tuple[Usage, ...]:
    """The pods that stay on a node."""
    usages = snapshot.nodes[node].usages
    return tuple(use for number, use in enumerate(usages) if (node, number) not in gone)


def _needed(answer: Assignment, gang: Gang, snapshot: Snapshot, gone: Iterable[_Unit]) -> set[_Pod]:
    """The pods among `gone` whose eviction the assignment needs."""
    members = {member.name: member for member in gang.members}
    residents = answer.residents
    units = [unit for unit in gone if any(node in residents for node, _ in unit.pods)]
    needed = {pod for unit in units for pod in unit.pods}
    for unit in sorted(units, key=lambda u: (-u.priority, -len(u.pods), u.name)):
        needed.difference_update(unit.pods)
        for node in {node for node, _ in unit.pods} & residents.keys():
            state = snapshot.nodes[node].with_usages(_others(snapshot, node, needed))
            if any(faults_on(state, residents[node], members)):
                needed.update(unit.pods)
                break
    return needed
