"""The objective and the feasibility of small gangs by trying everything; shares no code with the solver."""

from collections.abc import Iterator
from itertools import combinations, groupby

from tests.placement.cards import feasible
from webhook.placement import Gang, NoFit, Objective, PodClass, Snapshot, place
from webhook.placement.snapshot import NodeState

Counts = dict[str, int]


def slots_of(pod: PodClass, state: NodeState) -> int:
    if any(state.node.labels.get(key) != value for key, value in pod.rules.selector):
        return 0
    count = min(max(0, state.free.get(resource, 0)) // amount for resource, amount in pod.requests)
    if pod.wants_cards:
        return next((n for n in range(count) if not feasible(state.cards, [pod] * (n + 1))), count)
    return count


def fits(pods: list[PodClass], state: NodeState) -> bool:
    need: Counts = {}
    for pod in pods:
        if not slots_of(pod, state):
            return False
        for resource, amount in pod.requests:
            need[resource] = need.get(resource, 0) + amount
    if any(state.free.get(resource, 0) < amount for resource, amount in need.items()):
        return False
    with_cards = [pod for pod in pods if pod.wants_cards]
    return not with_cards or feasible(state.cards, with_cards)


def domain(state: NodeState, level: int) -> tuple[str, ...]:
    if level == 3 or state.path is None:
        return ("node", state.name)
    return state.path[: level + 2]


class Instance:
    """A gang and a snapshot. The value of an assignment depends on the set of nodes used alone, so all sets
    of at most as many nodes as pods are tried from the best value down, each with every distribution on it.
    """

    def __init__(self, gang: Gang, snapshot: Snapshot) -> None:
        pods = [member.pod_class for member in gang.members]
        by_kind = groupby(sorted(pods, key=pods.index), key=lambda pod: pod)
        self.kinds = [(kind, len(list(same))) for kind, same in by_kind]
        self.reference = max(pods, key=lambda pod: (pods.count(pod), -pods.index(pod)))
        self.level = None if gang.required_level is None else snapshot.topology.level(gang.required_level)
        self.slices = [(snapshot.topology.level(part.level), part.size) for part in gang.slices]
        self.snapshot = snapshot
        self.anchors = [snapshot.nodes[a.node] for a in gang.anchors if a.node in snapshot.nodes]
        states = sorted(snapshot.nodes.values(), key=lambda state: state.name)
        if self.level is not None and self.level < 3:
            states = [state for state in states if state.path is not None]
        self.states = [state for state in states if state.name not in gang.excluded_nodes]
        self.anchored = [{domain(state, at) for state in self.anchors} for at in range(4)]
        self.capacity: list[dict[tuple[str, ...], int]] = [{} for _ in range(4)]
        for state in self.states:
            for at, capacity in enumerate(self.capacity):
                capacity[domain(state, at)] = capacity.get(domain(state, at), 0) + slots_of(
                    self.reference, state
                )
        self.penalties = {state.name: self.penalty(state) for state in self.states}

    def penalty(self, state: NodeState) -> int:
        wanted = dict(self.reference.requests)
        shares = []
        for resource in {"cpu", "memory"} | {r for r in wanted if "/" in r}:
            largest = max(s.node.allocatable.get(resource, 0) for s in self.snapshot.nodes.values())
            if largest:
                left = state.free.get(resource, 0) - wanted.get(resource, 0)
                shares.append(min(100, 100 * max(0, left) // largest))
        return 100 - sum(shares) // len(shares) if shares else 100

    def value(self, used: tuple[NodeState, ...]) -> Objective:
        domains, leftover = [], []
        for at in range(4):
            mine = {domain(state, at) for state in used} - self.anchored[at]
            domains.append(len(mine))
            leftover.append(sum(self.capacity[at][key] for key in mine))
        penalty = sum(self.penalties[s.name] for s in used)
        return Objective(tuple(domains), 0, tuple(reversed(leftover)), penalty)

    def sets(self) -> Iterator[tuple[NodeState, ...]]:
        """The sets of nodes that could hold the gang as far as sums and the required level show."""
        can = [state for state in self.states if any(slots_of(kind, state) for kind, _ in self.kinds)]
        for size in range(1, sum(count for _, count in self.kinds) + 1):
            for used in combinations(can, size):
                if self.level is not None:
                    where = {domain(state, self.level) for state in [*used, *self.anchors]}
                    if len(where) > 1:
                        continue
                if all(sum(slots_of(kind, state) for state in used) >= count for kind, count in self.kinds):
                    yield used

    def holds(self, used: tuple[NodeState, ...]) -> bool:
        """Whether some distribution keeps all rules and uses each of these nodes."""

        def spread(number: int, counted: list[list[PodClass]]) -> bool:
            if number == len(self.kinds):
                return all(counted) and self.sliced(used, counted)
            kind, count = self.kinds[number]
            return any(spread(number + 1, more) for more in ways(kind, count, 0, counted))

        def ways(
            kind: PodClass, count: int, at: int, counted: list[list[PodClass]]
        ) -> Iterator[list[list[PodClass]]]:
            if at == len(used):
                if not count:
                    yield counted
                return
            for takes in range(count + 1):
                here = [*counted[at], *[kind] * takes]
                if takes and not fits(here, used[at]):
                    return
                yield from ways(kind, count - takes, at + 1, [*counted[:at], here, *counted[at + 1 :]])

        return spread(0, [[] for _ in used])

    def sliced(self, used: tuple[NodeState, ...], counted: list[list[PodClass]]) -> bool:
        for at, size in self.slices:
            per: dict[tuple[str, ...], int] = {}
            for state, pods in zip(used, counted, strict=True):
                count = pods.count(self.kinds[0][0])
                per[domain(state, at)] = per.get(domain(state, at), 0) + count
            if any(count % size for count in per.values()):
                return False
        return True


def best(gang: Gang, snapshot: Snapshot) -> Objective | None:
    instance = Instance(gang, snapshot)
    values = sorted((instance.value(used), n, used) for n, used in enumerate(instance.sets()))
    return next((value for value, _, used in values if instance.holds(used)), None)


def agrees(gang: Gang, snapshot: Snapshot) -> None:
    """Assert that the solver finds the best objective, or rightly nothing."""
    expected, found = best(gang, snapshot), place(gang, snapshot)
    if isinstance(found, NoFit):
        assert expected is None, f"missed {expected}: {found.sentence}"
        assert found.proven
    else:
        assert found.objective == expected
        assert found.proven
