"""Mode headroom against its definition, tried out on random clusters without the solver's code."""

import random
from fractions import Fraction

import pytest

from tests.placement.brute import slots_of
from tests.placement.small import gang_of, node, placed, pod_class
from webhook.placement import Gang, Member, Mode, NoFit, Options, PodClass, Snapshot, Usage, place
from webhook.placement.snapshot import NodeState

LEVELS = (None, "block", "subblock", "host")
HEADROOM = Options(mode=Mode.HEADROOM)


class Case:
    """A random cluster of up to three blocks, partly in use, and a gang of identical pods."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        nodes = [
            node(
                f"n{block}{rack}{host}",
                (f"b{block}", f"r{rack}", f"h{host}") if dice.random() < 0.95 else None,
                dice.choice((2, 4, 8)),
                memory=dice.choice((500, 1000)),
                **{"nvidia.com/gpu": dice.choice((0, 4, 8))},
            )
            for block in range(dice.randint(1, 3))
            for rack in range(dice.randint(1, 3))
            for host in range(dice.randint(1, 4))
        ]
        usage = [
            (each.name, Usage({"memory": dice.randrange(500), "cpu": 1000 * dice.randrange(3), "pods": 1}))
            for each in nodes
        ]
        self.kind: PodClass = pod_class(
            dice.choice((1, 2)), memory=dice.choice((10, 100)), **({"nvidia.com/gpu": dice.choice((1, 2))})
        )
        level = dice.choice(LEVELS)
        self.gang: Gang = gang_of(dice.randint(1, 8), self.kind, required_level=level)
        self.snapshot = Snapshot.build(nodes, usage)
        self.required = 0 if level is None else LEVELS.index(level)

    def penalty(self, state: NodeState) -> int:
        wanted, shares = dict(self.kind.requests), []
        for resource in ("cpu", "memory", "nvidia.com/gpu"):
            most = max(each.node.allocatable.get(resource, 0) for each in self.snapshot.nodes.values())
            if most:
                left = max(0, state.free.get(resource, 0) - wanted.get(resource, 0))
                shares.append(min(100, 100 * left // most))
        return 100 - sum(shares) // len(shares)

    def domains(self, level: int) -> list[list[NodeState]]:
        """Nodes of each domain; 0 is the cluster, 4 a node. Unlabelled nodes are in no domain of a label."""
        found: dict[tuple[str, ...], list[NodeState]] = {}
        for state in self.snapshot.nodes.values():
            if self.required and state.path is None:
                continue
            if level == 4:
                found[(state.name,)] = [state]
            elif level == 0:
                found.setdefault((), []).append(state)
            elif state.path is not None:
                found.setdefault(state.path[: level + 1], []).append(state)
        return list(found.values())

    def value(self, domain: list[NodeState]) -> Fraction:
        """The mean penalty of the nodes that the mode uses in a domain with capacity for all."""
        wanted = len(self.gang.members)
        usable = [
            (self.penalty(state), -slots_of(self.kind, state))
            for state in domain
            if slots_of(self.kind, state)
        ]
        whole = [each for each in usable if -each[1] >= wanted]
        if whole:
            return Fraction(min(whole)[0])
        used = []
        for penalty, slots in sorted(usable):
            if wanted > 0:
                used.append(penalty)
                wanted += slots
        return Fraction(sum(used), len(used))


@pytest.mark.promise("O87")
@pytest.mark.parametrize("seed", range(150))
def test_the_smallest_domain_with_the_most_headroom_is_filled_from_the_best_node_down(seed: int) -> None:
    case = Case(seed)
    wanted = len(case.gang.members)
    lowest = next(
        (
            fitting
            for level in range(4, case.required - 1, -1)
            if (
                fitting := [
                    domain
                    for domain in case.domains(level)
                    if sum(slots_of(case.kind, state) for state in domain) >= wanted
                ]
            )
        ),
        None,
    )
    found = place(case.gang, case.snapshot, HEADROOM)
    if lowest is None:
        assert isinstance(found, NoFit)
        return
    used = set(placed(case.gang, case.snapshot, HEADROOM).nodes.values())
    penalties = [case.penalty(case.snapshot.nodes[name]) for name in used]
    assert any(used <= {state.name for state in domain} for domain in lowest)
    assert Fraction(sum(penalties), len(penalties)) == min(map(case.value, lowest))


@pytest.mark.promise("O87")
def test_gangs_of_different_pods_are_placed_as_by_best_fit() -> None:
    nodes = [node("large", ("b", "r", "h0"), 8, memory=1000), node("small", ("b", "r", "h1"), 3, memory=300)]
    snapshot = Snapshot.build(nodes, [])
    asked = Gang("g", (Member("p", 0, pod_class(1)), Member("q", 1, pod_class(2))))
    assert (
        placed(asked, snapshot, HEADROOM).nodes
        == placed(asked, snapshot).nodes
        == {"p": "small", "q": "small"}
    )


@pytest.mark.promise("O87")
def test_a_single_pod_is_placed_where_most_stays_free_and_best_fit_would_not() -> None:
    nodes = [node("large", ("b", "r", "h0"), 8, memory=1000), node("small", ("b", "r", "h1"), 2, memory=300)]
    snapshot = Snapshot.build(nodes, [])
    assert placed(gang_of(1), snapshot, HEADROOM).nodes == {"p-0": "large"}
    assert placed(gang_of(1), snapshot).nodes == {"p-0": "small"}
