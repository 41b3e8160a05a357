"""The order in which pods with rules on one another are released, against all orders there are."""

import itertools
import random

import msgspec
import pytest

from tests.scheduling.drawn_rules import World, draw, pod
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


def is_taken(rules: Acceptance, order: Places) -> bool:
    """Whether each may go to its node beside those before it, asked one by one."""
    rules.reset()
    for name, node in order:
        if rules.reason(name, node):
            return False
        rules.add(name, node)
    return True


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
        elif len(rules.kinds) == 1:
            assert not any(is_taken(rules, list(each)) for each in itertools.permutations(places)), seed
            missed += 1
    assert found > 20
    assert missed > 20
