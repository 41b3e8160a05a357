"""The order in which pods with rules on one another are released, against all orders there are."""

import itertools
import random
from typing import Any

import msgspec
import pytest

from tests.scheduling.drawn_rules import RACK, ZONE, World, draw, is_taken, pod
from webhook.kube import objects
from webhook.scheduling.acceptance import Acceptance
from webhook.scheduling.neighbourhood import Neighbourhood

NAMESPACES = {"a": {}, "b": {"team": "b"}}
Places = list[tuple[str, str]]


def drawn(seed: int) -> tuple[Acceptance, Places]:
    """Up to five pods of one template or two, and a node for each."""
    dice = random.Random(seed)
    world = draw(dice, "w", list(NAMESPACES))
    templates = [pod(dice, "", "w", list(NAMESPACES)) for _ in range(dice.choice((1, 1, 1, 2)))]
    pods = {}
    for number in range(dice.randint(1, 5)):
        body = dice.choice(templates)
        pods[f"p{number}"] = msgspec.convert(
            {**body, "metadata": {**body["metadata"], "name": f"p{number}"}}, objects.Pod
        )
    names = [body["metadata"]["name"] for body in world.nodes]
    return Acceptance(neighbourhood(world), pods), [(name, dice.choice(names)) for name in pods]


def neighbourhood(world: World) -> Neighbourhood:
    nodes = {body["metadata"]["name"]: msgspec.convert(body, objects.Node) for body in world.nodes}
    there = [(msgspec.convert(body, objects.Pod), body["spec"]["nodeName"]) for body in world.residents]
    return Neighbourhood(nodes, there, NAMESPACES)


@pytest.mark.promise("R111")
@pytest.mark.parametrize("first", range(0, 1200, 200))
def test_an_order_is_found_where_there_is_one_and_each_pod_of_it_is_taken(first: int) -> None:
    found = missed = 0
    for seed in range(first, first + 200):
        rules, places = drawn(seed)
        order, refused = rules.order(places)
        node_of = dict(places)
        if not refused:
            assert sorted(order) == sorted(node_of)
            assert is_taken(rules, [(name, node_of[name]) for name in order]), seed
            found += 1
        elif len(rules.classes) == 1:
            assert not any(is_taken(rules, list(each)) for each in itertools.permutations(places)), seed
            missed += 1
    assert found > 20
    assert missed > 20


def spread_over(key: str, labels: dict[str, str], **more: Any) -> dict[str, Any]:
    return {
        "topologyKey": key,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
        **more,
    }


def test_what_min_domains_ask_of_a_node_alone_is_applied_beside_a_rule_that_sets_the_order() -> None:
    places = {"n1": ("a", "x"), "n2": ("b", "y"), "n3": ("c", "x"), "n4": ("c", "y")}
    nodes = [
        {"metadata": {"name": name, "labels": {ZONE: zone, RACK: rack}}}
        for name, (zone, rack) in places.items()
    ]
    containers = {"containers": [{"name": "c", "image": "x"}]}
    residents = [
        {
            "metadata": {"name": f"r-{name}", "namespace": "a", "labels": {"app": "a"}},
            "spec": {**containers, "nodeName": name},
        }
        for name in ("n1", "n2", "n4")
    ]
    # All zones are level, and take one more each. A pinned pod is judged by its own node alone, where one is.
    rules = [spread_over(RACK, {"v": "1"}), spread_over(ZONE, {"app": "a"}, minDomains=2)]
    body: dict[str, Any] = {
        "metadata": {"namespace": "a", "labels": {"app": "a", "v": "1"}},
        "spec": {**containers, "topologySpreadConstraints": rules},
    }
    pods = {
        name: msgspec.convert({**body, "metadata": {**body["metadata"], "name": name}}, objects.Pod)
        for name in ("p1", "p2", "p3")
    }
    taken = Acceptance(neighbourhood(World("w", nodes, residents)), pods)
    order, refused = taken.order([("p1", "n1"), ("p2", "n2"), ("p3", "n3")])
    assert order == ["p3"]
    assert refused == f"topology spread over {ZONE}"
