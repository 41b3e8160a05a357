"""Gangs that want to be in one zone, which is no level of the topology, against each zone for itself."""

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.placement.small import gang_of, node
from webhook.kube.objects import Node, Pod
from webhook.placement import Assignment, Budget, Gang, Member, NoFit, Options, Snapshot, place
from webhook.placement.bounds import least_domains
from webhook.scheduling.acceptance import Acceptance
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.sweeper.decide.pod_rules import ask_by_rules

ZONES = "abc"


def zoned(dice: random.Random) -> Snapshot:
    """Blocks that lie in one zone each, but for one; two racks a block, some capacity on each host."""
    made = []
    for block in range(dice.randint(3, 7)):
        zone = dice.choice(ZONES)
        for rack in range(2):
            for host in range(dice.randint(1, 3)):
                name = f"n{block}-{rack}-{host}"
                each = node(name, (f"b{block}", f"r{rack}", name), dice.randint(0, 3))
                at = dice.choice(ZONES) if block == 0 else zone
                made.append(replace(each, labels={**each.labels, keys.ZONE_LABEL: at}))
    return Snapshot.build(made, [])


def together(count: int, snapshot: Snapshot) -> tuple[Gang, Acceptance]:
    term = {"topologyKey": keys.ZONE_LABEL, "labelSelector": {"matchLabels": {"app": "g"}}}
    spec: dict[str, Any] = {
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
    gang = gang_of(count)
    pods = {
        each.name: msgspec.convert(
            {"metadata": {"name": each.name, "labels": {"app": "g"}}, "spec": spec}, Pod
        )
        for each in gang.members
    }
    nodes = {
        name: msgspec.convert({"metadata": {"name": name, "labels": dict(state.node.labels)}}, Node)
        for name, state in snapshot.nodes.items()
    }
    return gang, Acceptance(Neighbourhood(nodes, []), pods)


@pytest.mark.promise("R115")
def test_the_zone_that_is_chosen_is_the_one_in_which_the_gang_lies_best() -> None:
    fits = 0
    for seed in range(100):
        dice = random.Random(seed)
        snapshot = zoned(dice)
        gang, rules = together(dice.randint(2, 10), snapshot)
        best = [
            found.objective.domains
            for zone in ZONES
            if isinstance(found := place(gang, snapshot.only(in_zone(snapshot, zone))), Assignment)
        ]
        answer = ask_by_rules(gang, rules, snapshot, Options())
        if not best:
            assert isinstance(answer, NoFit)
            continue
        fits += 1
        assert isinstance(answer, Assignment), answer
        assert answer.objective.domains == min(best)
        assert answer.proven
    assert fits > 20


@pytest.mark.promise("R115")
def test_no_zone_is_called_the_best_while_another_was_not_looked_at_to_the_end() -> None:
    worse = 0
    for seed in range(140, 150):
        dice = random.Random(seed)
        snapshot = zoned(dice)
        gang, rules = together(dice.randint(3, 9), snapshot)
        gang = replace(gang, members=tuple(times(each, dice.randint(1, 2)) for each in gang.members))
        best = ask_by_rules(gang, rules, snapshot, Options())
        for steps in (50, 100, 200):
            answer = ask_by_rules(gang, rules, snapshot, Options(), Budget(steps))
            if isinstance(answer, NoFit) or isinstance(best, NoFit):
                continue
            if answer.objective.domains > best.objective.domains:
                worse += 1
                assert not answer.proven, (seed, steps)
    assert worse


def times(member: Member, count: int) -> Member:
    """The same, which asks for so many times as much."""
    requests = tuple((name, count * amount) for name, amount in member.pod_class.requests)
    return replace(member, pod_class=replace(member.pod_class, requests=requests))


def in_zone(snapshot: Snapshot, zone: str) -> frozenset[str]:
    return frozenset(
        name for name, state in snapshot.nodes.items() if state.node.labels[keys.ZONE_LABEL] == zone
    )


def test_no_placement_uses_fewer_domains_of_a_level_than_the_bound_given_beforehand() -> None:
    tight = 0
    for seed in range(60):
        dice = random.Random(seed)
        snapshot, gang = zoned(dice), gang_of(dice.randint(2, 12))
        least = least_domains(gang, snapshot, Options(), Budget(10**6))
        found = place(gang, snapshot)
        assert (least is None) == isinstance(found, NoFit)
        if least is not None and isinstance(found, Assignment):
            assert all(low <= used for low, used in zip(least, found.objective.domains, strict=True))
            tight += least == found.objective.domains
    assert tight > 20
