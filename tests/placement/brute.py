"""The objective and the feasibility of small gangs by trying everything; shares no code with the solver."""

from collections.abc import Iterator
from itertools import groupby

from webhook.placement import Gang, NoFit, Objective, PodClass, Snapshot, place
from webhook.placement.snapshot import NodeState

Counts = dict[str, int]


def rooms(pod: PodClass, state: NodeState) -> int:
    if any(state.node.labels.get(key) != value for key, value in pod.rules.selector):
        return 0
    return min(max(0, state.free.get(resource, 0)) // amount for resource, amount in pod.requests)


def fits(pods: list[PodClass], state: NodeState) -> bool:
    need: Counts = {}
    for pod in pods:
        if not rooms(pod, state):
            return False
        for resource, amount in pod.requests:
            need[resource] = need.get(resource, 0) + amount
    return all(state.free.get(resource, 0) >= amount for resource, amount in need.items())


def domain(state: NodeState, level: int) -> tuple[str, ...]:
    if level == 3 or state.path is None:
        return ("node", state.name)
    return state.path[: level + 2]


def objectives(gang: Gang, snapshot: Snapshot) -> Iterator[Objective]:
    """Of every assignment that keeps the rules."""
    pods = [member.pod_class for member in gang.members]
    states = sorted(snapshot.nodes.values(), key=lambda state: state.name)
    reference = max(pods, key=lambda pod: (pods.count(pod), -pods.index(pod)))
    level = None if gang.required_level is None else snapshot.topology.level(gang.required_level)
    if level is not None and level < 3:
        states = [state for state in states if state.path is not None]
    states = [state for state in states if state.name not in gang.excluded_nodes]
    anchors = [snapshot.nodes[a.node] for a in gang.anchors if a.node in snapshot.nodes]
    slices = [(snapshot.topology.level(part.level), part.size) for part in gang.slices]
    kinds = [(kind, len(list(same))) for kind, same in groupby(sorted(pods, key=pods.index), key=lambda p: p)]

    def descend(
        number: int, left: list[int], on: list[tuple[NodeState, int, list[int]]]
    ) -> Iterator[Objective]:
        if not any(left):
            used = [state for state, count, _ in on if count]
            if level is not None and len({domain(state, level) for state in used + anchors}) > 1:
                return
            for at, size in slices:
                per: dict[tuple[str, ...], int] = {}
                for state, _, takes in on:
                    per[domain(state, at)] = per.get(domain(state, at), 0) + takes[0]
                if any(count % size for count in per.values()):
                    return
            yield value(used)
            return
        if number == len(states):
            return
        state = states[number]
        for takes in choices(left, state):
            after = [a - b for a, b in zip(left, takes, strict=True)]
            yield from descend(number + 1, after, [*on, (state, sum(takes), takes)])

    def choices(left: list[int], state: NodeState) -> Iterator[list[int]]:
        def extend(takes: list[int], held: list[PodClass]) -> Iterator[list[int]]:
            if len(takes) == len(left):
                yield takes
                return
            kind = kinds[len(takes)][0]
            for count in range(left[len(takes)] + 1):
                if count and not fits([*held, *[kind] * count], state):
                    break
                yield from extend([*takes, count], [*held, *[kind] * count])

        yield from extend([], [])

    def value(used: list[NodeState]) -> Objective:
        domains, leftover = [], []
        for at in range(4):
            anchored = {domain(state, at) for state in anchors}
            mine = {domain(state, at) for state in used} - anchored
            domains.append(len(mine))
            leftover.append(sum(rooms(reference, s) for s in states if domain(s, at) in mine))
        return Objective(tuple(domains), 0, tuple(leftover), sum(discord(state) for state in used))

    def discord(state: NodeState) -> int:
        wanted = dict(reference.requests)
        shares = []
        for resource in {"cpu", "memory"} | {r for r in wanted if "/" in r}:
            largest = max(s.node.allocatable.get(resource, 0) for s in snapshot.nodes.values())
            if largest:
                left = state.free.get(resource, 0) - wanted.get(resource, 0)
                shares.append(min(100, 100 * max(0, left) // largest))
        return 100 - sum(shares) // len(shares) if shares else 100

    yield from descend(0, [count for _, count in kinds], [])


def best(gang: Gang, snapshot: Snapshot) -> Objective | None:
    return min(objectives(gang, snapshot), default=None)


def agrees(gang: Gang, snapshot: Snapshot) -> None:
    """Assert that the solver finds the best objective, or rightly nothing."""
    expected, found = best(gang, snapshot), place(gang, snapshot)
    if isinstance(found, NoFit):
        assert expected is None, f"missed {expected}: {found.sentence}"
        assert found.proven
    else:
        assert found.objective == expected
        assert found.proven
