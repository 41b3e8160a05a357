"""Gangs spread over zones, which are no level of the topology, against every way to place them."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.placement.small import gang_of, node
from webhook.kube.objects import Node, Pod
from webhook.placement import Assignment, Gang, Options, Snapshot
from webhook.scheduling.acceptance import Acceptance
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.sweeper.decide.limits import least_share
from webhook.sweeper.decide.pod_rules import ask_by_rules


def zoned(dice: random.Random) -> Snapshot:
    """Two to four blocks, most of which lie in one zone; one or two racks each, of one or two nodes."""
    made = []
    for block in range(dice.randint(2, 4)):
        zone = dice.choice("ab")
        for rack in range(dice.randint(1, 2)):
            for host in range(dice.randint(1, 2)):
                name = f"n{block}-{rack}-{host}"
                each = node(name, (f"b{block}", f"r{rack}", name), dice.randint(0, 3))
                at = dice.choice("ab") if dice.random() < 0.05 else zone
                labels = {**each.labels, keys.ZONE_LABEL: at, keys.HOSTNAME_LABEL: name}
                made.append(replace(each, labels=labels))
    return Snapshot.build(made[:9], [])


def pod(name: str, spec: dict[str, Any]) -> Pod:
    return msgspec.convert({"metadata": {"name": name, "labels": {"app": "g"}}, "spec": spec}, Pod)


def spread(gang: Gang, snapshot: Snapshot, rules: dict[str, int], there: dict[str, int]) -> Acceptance:
    """Pods with topology spread. rules: skew by label; there: pods that run, by their nodes."""
    selector = {"matchLabels": {"app": "g"}}
    wanted = [
        {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        for key, skew in rules.items()
    ]
    members = {each.name: pod(each.name, {"topologySpreadConstraints": wanted}) for each in gang.members}
    nodes = {
        name: msgspec.convert({"metadata": {"name": name, "labels": dict(state.node.labels)}}, Node)
        for name, state in snapshot.nodes.items()
    }
    running = [(pod(f"{node}-{n}", {}), node) for node, count in there.items() for n in range(count)]
    return Acceptance(Neighbourhood(nodes, running), members)


def ways(slot_counts: list[int], wanted: int) -> Iterator[tuple[int, ...]]:
    """How many pods each node may get."""
    for counts in itertools.product(*(range(most + 1) for most in slot_counts)):
        if sum(counts) == wanted:
            yield counts


def keeps(counts: dict[str, int], placed: dict[str, int], skew: int) -> bool:
    final = {value: count + counts.get(value, 0) for value, count in placed.items()}
    return all(final[value] <= min(final.values()) + skew for value, count in counts.items() if count)


@pytest.mark.promise("R115")
def test_no_layout_uses_fewer_domains_than_one_that_is_called_proven() -> None:
    proven = 0
    for seed in range(80):
        dice = random.Random(seed)
        snapshot = zoned(dice)
        gang = gang_of(dice.randint(2, 6))
        zones = {name: state.node.labels[keys.ZONE_LABEL] for name, state in snapshot.nodes.items()}
        there = {name: dice.choice((0, 0, 1)) for name in zones if seed % 2}
        rules = {keys.ZONE_LABEL: dice.choice((1, 1, 2))}
        if dice.random() < 0.5:
            rules[keys.HOSTNAME_LABEL] = dice.randint(1, 4)
        acceptance = spread(gang, snapshot, rules, there)
        found = ask_by_rules(gang, acceptance, snapshot, Options())
        if not isinstance(found, Assignment) or not found.proven:
            continue
        proven += 1
        placed = dict.fromkeys(zones.values(), 0)
        for name, count in there.items():
            placed[zones[name]] += count
        slot_counts = [least(snapshot, gang, name) for name in zones]
        best = min(
            used(snapshot, counts)
            for places in ways(slot_counts, len(gang.members))
            if keeps(
                by_zone(counts := dict(zip(zones, places, strict=True)), zones),
                placed,
                rules[keys.ZONE_LABEL],
            )
            and (
                keys.HOSTNAME_LABEL not in rules
                or keeps(counts, {name: there.get(name, 0) for name in zones}, rules[keys.HOSTNAME_LABEL])
            )
        )
        assert found.objective.domains == best, seed
    assert proven > 5


def test_a_gang_too_large_to_be_placed_pod_by_pod_is_shared_among_zones_of_which_one_fills_up() -> None:
    slots = {"n0": 30, **{f"n{number}": 2 for number in range(1, 36)}}
    zones = {name: "a" if name == "n0" else "b" for name in slots}
    made = [node(name, (f"b{name}", "r", name), count) for name, count in slots.items()]
    made = [replace(each, labels={**each.labels, keys.ZONE_LABEL: zones[each.name]}) for each in made]
    snapshot, gang = Snapshot.build(made, []), gang_of(70)
    found = ask_by_rules(gang, spread(gang, snapshot, {keys.ZONE_LABEL: 20}, {}), snapshot, Options())
    assert isinstance(found, Assignment)
    assert Counter(zones[each.node] for each in found.placed) == {"a": 30, "b": 40}


@pytest.mark.parametrize(("slots", "is_proven"), [(2, True), (1, False)])
def test_shares_are_proven_where_the_least_share_of_each_zone_uses_as_many_domains(
    slots: int, is_proven: bool
) -> None:
    """Of four pods zone a may also have one alone, for which one of its nodes is enough."""
    made = [
        replace(each, labels={**each.labels, keys.ZONE_LABEL: each.name[0]})
        for each in (
            node(name, (f"b{name}", "r", name), 4 if name == "b0" else slots) for name in ("a0", "a1", "b0")
        )
    ]
    snapshot, gang = Snapshot.build(made, []), gang_of(4)
    found = ask_by_rules(gang, spread(gang, snapshot, {keys.ZONE_LABEL: 2}, {}), snapshot, Options())
    assert isinstance(found, Assignment)
    assert found.proven is is_proven


def test_two_nodes_of_one_host_name_are_one_domain_also_beside_nodes_that_are_left_out() -> None:
    hosts = {"n0": "x", "n1": "x", "n2": "y", "n3": "z"}
    made = [
        replace(node(name, ("b", f"r{host}", name), 1), labels={keys.HOSTNAME_LABEL: host})
        for name, host in hosts.items()
    ]
    gang = gang_of(2)
    acceptance = spread(gang, Snapshot.build(made, []), {keys.HOSTNAME_LABEL: 1}, {})
    found = ask_by_rules(gang, acceptance, Snapshot.build(made[:3], []), Options())
    assert isinstance(found, Assignment)
    assert {hosts[each.node] for each in found.placed} == {"x", "y"}


def least(snapshot: Snapshot, gang: Gang, name: str) -> int:
    """For how many of the pods a node has capacity."""
    free = snapshot.nodes[name].free
    return min(free.get(resource, 0) // amount for resource, amount in gang.members[0].pod_class.requests)


def by_zone(counts: dict[str, int], zones: dict[str, str]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for name, count in counts.items():
        found[zones[name]] += count
    return found


def used(snapshot: Snapshot, counts: dict[str, int]) -> tuple[int, ...]:
    """Domains of each level, and nodes."""
    names = [name for name, count in counts.items() if count]
    paths = [(*(snapshot.nodes[name].path or ()), name) for name in names]
    return tuple(len({path[:length] for path in paths}) for length in range(2, len(paths[0]) + 1))


def test_a_domain_s_least_share_is_the_least_of_all_ways_to_share() -> None:
    for seed in range(150):
        dice = random.Random(seed)
        placed = {value: dice.randint(0, 3) for value in "abcd"[: dice.randint(1, 4)]}
        wanted, skew, floor_is_zero = dice.randint(1, 6), dice.randint(1, 3), dice.random() < 0.3
        shared = [
            counts
            for places in ways([wanted] * len(placed), wanted)
            if is_shared(counts := dict(zip(placed, places, strict=True)), placed, skew, floor_is_zero)
        ]
        for value in placed:
            share = least_share(value, placed, wanted, skew, floor_is_zero=floor_is_zero)
            if shared:
                assert share <= min(counts[value] for counts in shared), (seed, value)
            if shared and not floor_is_zero and len(set(placed.values())) == 1:
                assert share == min(counts[value] for counts in shared), (seed, value)


def is_shared(counts: dict[str, int], placed: dict[str, int], skew: int, floor_is_zero: bool) -> bool:
    if not floor_is_zero:
        return keeps(counts, placed, skew)
    return all(placed[value] + count <= skew for value, count in counts.items() if count)
