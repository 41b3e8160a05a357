"""Rules on other pods, by our reckoning and by the real kube-scheduler's, at random.

Topology spread, pod affinity and anti-affinity over any label. A pod is led to a node by a resource that only
that node has: a pin would change what kube-scheduler counts.
"""

import itertools
import os
import random
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pytest

from hack.local.cluster import Cluster
from tests.scheduling.agreement import as_created, create_pods, decoded, is_scheduled, judged, register
from tests.scheduling.drawn_rules import SLOTS, Body, World, draw, is_taken, offer, only_here, pod
from tests.support import create_namespace, delete_namespace
from webhook.kube import objects
from webhook.placement import Assignment, Gang, Member, NoFit, Options, Snapshot, Topology, capacity
from webhook.scheduling import convert
from webhook.scheduling.acceptance import Acceptance
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.scheduling.nodes import node_of
from webhook.sweeper.decide.pod_rules import ask_by_rules

PAIRS = int(os.environ.get("TOPOGATE_RULE_PAIRS", "60"))
GANGS = int(os.environ.get("TOPOGATE_RULE_GANGS", "25"))
"""More of them take minutes."""

SEED = int(os.environ.get("TOPOGATE_RULE_SEED", "17"))

HERE = "example.com/here"
MOST = 6
"""Pods of a gang."""


@pytest.fixture
def namespaces(cluster: Cluster, namespace: str) -> Iterator[dict[str, dict[str, str]]]:
    """Two namespaces with their labels, the second of another team."""
    other = create_namespace(cluster, {"team": "b"})
    yield {namespace: {}, other: {"team": "b"}}
    delete_namespace(cluster, other)


Nodes = Mapping[str, objects.Node]


def nodes_of(worlds: Sequence[World]) -> Nodes:
    """The nodes of all worlds: with nodeAffinityPolicy Ignore they count for every pod."""
    bodies = (body for world in worlds for body in world.nodes)
    return {body["metadata"]["name"]: msgspec.convert(body, objects.Node) for body in bodies}


def neighbourhood(
    nodes: Nodes, residents: Sequence[Body], labels: Mapping[str, Mapping[str, str]]
) -> Neighbourhood:
    there = [(each := decoded(body), each.spec.node_name) for body in residents]
    return Neighbourhood(nodes, there, labels)


def snapshot(world: World) -> Snapshot:
    nodes = [node_of(msgspec.convert(body, objects.Node)) for body in world.nodes]
    return Snapshot.build(nodes, [], Topology())


@pytest.mark.promise("R111", "I22")
@pytest.mark.timeout(900 + 3 * PAIRS)
def test_where_its_rules_allow_a_pod_is_what_kube_scheduler_decides(
    cluster: Cluster, namespaces: dict[str, dict[str, str]]
) -> None:
    dice = random.Random(SEED)
    worlds = [draw(dice, f"w{number}", list(namespaces)) for number in range(PAIRS)]
    waiting = {}
    for world in worlds:
        target = dice.choice(world.nodes)
        offer(target, HERE)
        waiting[world.name] = only_here(pod(dice, f"{world.name}-pod", world.name, list(namespaces)), HERE)
    register(cluster, [body for world in worlds for body in world.nodes])
    there = create_pods(cluster, [body for world in worlds for body in world.residents])
    made = create_pods(cluster, waiting.values())
    judgements = judged(cluster, namespaces)
    scheduled = {name: is_scheduled(body) for name, body in judgements.items()}
    nodes = nodes_of(worlds)
    wrong = []
    for world in worlds:
        residents = [there[body["metadata"]["name"]] for body in world.residents]
        body = made[f"{world.name}-pod"]
        reason = our_decision(world, neighbourhood(nodes, residents, namespaces), body)
        if (reason == "") != scheduled[f"{world.name}-pod"]:
            conditions = judgements[body["metadata"]["name"]]["status"].get("conditions")
            wrong.append((reason, conditions, body["spec"], body["metadata"]["labels"], world))
    assert not wrong, f"{len(wrong)} of {PAIRS}: {wrong[:2]}"
    bound = sum(scheduled[f"{world.name}-pod"] is True for world in worlds)
    assert PAIRS // 5 < bound < PAIRS * 4 // 5, f"{bound} of {PAIRS} bound: the pairs do not tell enough"


def our_decision(world: World, near: Neighbourhood, body: Body) -> str:
    """Why the pod may not go to the node that has what it wants; "" if it may."""
    own = decoded(body)
    (node,) = (each["metadata"]["name"] for each in world.nodes if HERE in each["status"]["allocatable"])
    kind = near.pod_class(own, convert.pod_class_of(own))
    state = snapshot(world).nodes[node]
    return capacity.reason_against_node(kind, state) or Acceptance(near, {"pod": own}).reason("pod", node)


@pytest.mark.promise("R111")
@pytest.mark.timeout(900 + 9 * GANGS)
def test_a_gang_with_rules_is_bound_pod_by_pod_in_the_order_of_its_release(
    cluster: Cluster, namespaces: dict[str, dict[str, str]]
) -> None:
    dice = random.Random(SEED + 1)
    worlds = [draw(dice, f"g{number}", list(namespaces), nodes=6) for number in range(GANGS)]
    gangs: dict[str, list[Body]] = {}
    for world in worlds:
        for body in world.nodes:
            offer(body, SLOTS, dice.choice((2, 3, 4)))
        templates = [pod(dice, "", world.name, list(namespaces)) for _ in range(dice.choice((1, 1, 1, 2)))]
        gangs[world.name] = [
            only_here(named(dice.choice(templates), f"{world.name}-p{number}"), SLOTS)
            for number in range(dice.randint(2, MOST))
        ]
    there = {body["metadata"]["name"]: body for body in as_created(cluster, residents_of(worlds))}
    releases: list[list[Body]] = [[] for _ in range(MOST)]
    nodes = nodes_of(worlds)
    missed = placed = 0
    for world in worlds:
        residents = [there[body["metadata"]["name"]] for body in world.residents]
        near = neighbourhood(nodes, residents, namespaces)
        pods = {body["metadata"]["name"]: decoded(body) for body in as_created(cluster, gangs[world.name])}
        answer = answered(near, pods, snapshot(world))
        if isinstance(answer, NoFit):
            missed += exists(near, pods, snapshot(world))
            continue
        placed += 1
        by_name = {body["metadata"]["name"]: body for body in gangs[world.name]}
        by_node = {body["metadata"]["name"]: body for body in world.nodes}
        for step, each in enumerate(answer.placed):
            offer(by_node[each.node], f"example.com/turn-{step}")
            releases[step].append(only_here(by_name[each.member], f"example.com/turn-{step}"))
    register(cluster, [body for world in worlds for body in world.nodes])
    create_pods(cluster, residents_of(worlds))
    for released in releases:
        create_pods(cluster, released)
        scheduled = {name: is_scheduled(body) for name, body in judged(cluster, namespaces).items()}
        refused = [body for body in released if not scheduled[body["metadata"]["name"]]]
        assert not refused, refused
    assert placed > GANGS // 5, f"only {placed} gangs found a place"
    assert missed <= GANGS // 20, (
        f"{missed} of {GANGS} gangs were told that there is no way, and there is one"
    )


def residents_of(worlds: Sequence[World]) -> list[Body]:
    return [body for world in worlds for body in world.residents]


def named(body: Body, name: str) -> Body:
    return {**body, "metadata": {**body["metadata"], "name": name}}


def answered(near: Neighbourhood, pods: Mapping[str, objects.Pod], there: Snapshot) -> Assignment | NoFit:
    members = tuple(
        Member(name, number, near.pod_class(each, convert.pod_class_of(each)))
        for number, (name, each) in enumerate(pods.items())
    )
    return ask_by_rules(Gang("g", members), Acceptance(near, pods), there, Options())


def exists(near: Neighbourhood, pods: Mapping[str, objects.Pod], there: Snapshot) -> bool:
    """Whether there is any way for a gang of up to four pods, by trying all of them."""
    if len(pods) > 4:
        return False
    kinds = {name: near.pod_class(each, convert.pod_class_of(each)) for name, each in pods.items()}
    rules = Acceptance(near, pods)
    free = {name: state.free.get(SLOTS, 0) for name, state in there.nodes.items()}
    for nodes in itertools.product(there.nodes, repeat=len(pods)):
        places = list(zip(pods, nodes, strict=True))
        if any(nodes.count(node) > free[node] for node in nodes):
            continue
        if any(capacity.reason_against_node(kinds[name], there.nodes[node]) for name, node in places):
            continue
        if any(is_taken(rules, order) for order in itertools.permutations(places)):
            return True
    return False
