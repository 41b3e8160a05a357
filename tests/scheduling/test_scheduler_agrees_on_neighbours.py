"""Which pods may share a node, by our reckoning and by the real kube-scheduler's, at random.

Residents are put on their nodes past the scheduler, so that they may break any rule among themselves.
"""

import itertools
import os
import random
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from hack.local.cluster import Cluster
from hack.local.nodes import SimulatedNode
from tests.scheduling.agreement import as_created, create_pods, decoded, is_scheduled, judged, register
from tests.scheduling.neighbours import (
    HOSTNAME,
    REQUIRED,
    Body,
    Namespaces,
    between,
    is_heterogeneous,
    may_share,
    taken_together,
)
from tests.support import create_namespace, delete_namespace
from webhook.kube import objects
from webhook.placement import Gang, Member, NoFit, Snapshot, check, place
from webhook.scheduling import convert
from webhook.scheduling.nodes import node_of

PAIRS = int(os.environ.get("TOPOGATE_NEIGHBOUR_PAIRS", "80"))
WORLDS = 40
"""Clusters of a few nodes, each for one gang."""

NODES_OF_A_WORLD = 2


@pytest.fixture
def namespaces(cluster: Cluster, namespace: str) -> Iterator[list[str]]:
    """Two namespaces, the second of another team."""
    other = create_namespace(cluster, {"team": "b"})
    yield [namespace, other]
    delete_namespace(cluster, other)


# --- random pods ----------------------------------------------------------------------------------


def labels(dice: random.Random) -> dict[str, str]:
    return {key: dice.choice(values) for key, values in (("app", "xyz"), ("v", "12")) if dice.random() < 0.8}


def selector(dice: random.Random) -> Body:
    made: Body = {}
    if dice.random() < 0.5:
        made["matchLabels"] = {"app": dice.choice("xyz")}
    if dice.random() < 0.5:
        operator = dice.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        values = {"values": dice.sample("xy12", 2)} if operator in ("In", "NotIn") else {}
        made["matchExpressions"] = [{"key": dice.choice(("app", "v")), "operator": operator, **values}]
    return made


def term(dice: random.Random, names: Sequence[str]) -> Body:
    made: Body = {"topologyKey": HOSTNAME, "labelSelector": selector(dice)}
    if dice.random() < 0.3:
        made["namespaces"] = dice.sample(names, dice.randint(1, 2))
    if dice.random() < 0.3:
        by_name = {"matchLabels": {"kubernetes.io/metadata.name": dice.choice(names)}}
        made["namespaceSelector"] = dice.choice((by_name, {}))
    keys = [name for name in ("matchLabelKeys", "mismatchLabelKeys") if dice.random() < 0.1]
    return made | {name: ["v"] for name in keys[:1] if "matchExpressions" not in made["labelSelector"]}


def ports(dice: random.Random) -> list[Body]:
    if dice.random() < 0.5:
        return []
    made: Body = {"containerPort": dice.choice((80, 81))}
    if dice.random() < 0.8:
        made["hostPort"] = made["containerPort"]
        made["hostIP"] = dice.choice(("", "0.0.0.0", "10.0.0.1", "10.0.0.2"))
    return [made | {"protocol": dice.choice(("TCP", "TCP", "UDP"))}]


def body(dice: random.Random, name: str, names: Sequence[str], node: str = "") -> Body:
    container: Body = {"name": "c", "image": "x", "ports": ports(dice)}
    own: Body = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    own |= {"nodeName": node} if node else {}
    if dice.random() < 0.2:
        own["hostNetwork"] = True
        for port in container["ports"]:
            port.pop("hostPort", None)
    if dice.random() < 0.6:
        own["affinity"] = {
            "podAntiAffinity": {REQUIRED: [term(dice, names) for _ in range(dice.randint(1, 2))]}
        }
    metadata = {"name": name, "namespace": dice.choice(names), "labels": labels(dice)}
    return {"metadata": metadata, "spec": own}


def pinned(pod: Body, node: str) -> Body:
    return {**pod, "spec": {**pod["spec"], "nodeSelector": {HOSTNAME: node}}}


# --- the cluster ----------------------------------------------------------------------------------


def make_nodes(cluster: Cluster, names: Sequence[str]) -> None:
    register(cluster, [SimulatedNode(name, ("b", "s", name), False, 0).manifest() for name in names])


@pytest.mark.promise("R111", "I22")
def test_beside_which_pods_one_may_run_is_what_kube_scheduler_decides(
    cluster: Cluster, namespaces: list[str]
) -> None:
    dice = random.Random(5)
    nodes = [f"n{number}" for number in range(PAIRS)]
    residents = {
        node: [body(dice, f"r{n}-{node}", namespaces, node) for n in range(dice.choice((0, 1, 1, 2)))]
        for node in nodes
    }
    waiting = [pinned(body(dice, f"pod-{node}", namespaces), node) for node in nodes]
    make_nodes(cluster, nodes)
    made = create_pods(cluster, itertools.chain.from_iterable(residents.values()))
    made |= create_pods(cluster, waiting)
    scheduled = {name: is_scheduled(pod) for name, pod in judged(cluster, namespaces).items()}
    there = {node: [decoded(made[pod["metadata"]["name"]]) for pod in residents[node]] for node in nodes}
    pods = {node: decoded(made[f"pod-{node}"]) for node in nodes}
    together = between(list(pods.values()), itertools.chain.from_iterable(there.values()))
    for node, pod in pods.items():
        alone = taken_together(between([pod], there[node]), [pod], there[node])
        context = (made[f"pod-{node}"]["spec"], [made[each.metadata.name] for each in there[node]])
        assert alone == scheduled[f"pod-{node}"], context
        # With others waiting under the same terms it may be excluded wrongly, and never admitted wrongly.
        assert alone or not taken_together(together, [pod], there[node]), context
    bound = sum(scheduled[f"pod-{node}"] is True for node in nodes)
    assert PAIRS // 5 < bound < PAIRS * 9 // 10, f"{bound} of {PAIRS} bound: the pairs do not tell enough"


@pytest.mark.promise("I22")
def test_a_gang_placed_on_several_nodes_is_bound_there_by_kube_scheduler(
    cluster: Cluster, namespaces: list[str]
) -> None:
    dice = random.Random(6)
    worlds = [[f"w{world}-n{number}" for number in range(NODES_OF_A_WORLD)] for world in range(WORLDS)]
    nodes = [node for world in worlds for node in world]
    residents = {node: [body(dice, f"r-{node}", namespaces, node)][: dice.choice((0, 1))] for node in nodes}
    gangs = [
        [body(dice, f"g{number}-{n}", namespaces) for n in range(dice.randint(2, 4))]
        for number in range(WORLDS)
    ]
    make_nodes(cluster, nodes)
    made = create_pods(cluster, itertools.chain.from_iterable(residents.values()))
    labels = {namespaces[0]: {}, namespaces[1]: {"team": "b"}}
    releases: list[Body] = []
    impossible = 0
    for world, gang in zip(worlds, gangs, strict=True):
        there = {node: [made[pod["metadata"]["name"]] for pod in residents[node]] for node in world}
        drawn = as_created(cluster, gang)
        answer = placed(drawn, there)
        if answer is not None:
            releases += [pinned(pod, answer[pod["metadata"]["name"]]) for pod in gang]
        elif not is_heterogeneous(map(decoded, drawn)):
            impossible += 1
            assert not exists(drawn, there, labels), (drawn, there)
    create_pods(cluster, releases)
    scheduled = {name: is_scheduled(pod) for name, pod in judged(cluster, namespaces).items()}
    refused = [pod for pod in releases if not scheduled[pod["metadata"]["name"]]]
    assert not refused, refused
    assert len(releases) > WORLDS, f"only {len(releases)} pods found a place"
    assert impossible > WORLDS // 20, f"only {impossible} gangs found none"


def placed(gang: Sequence[Body], there: dict[str, list[Body]]) -> dict[str, str] | None:
    """Node by pod name, as the placement core has it; None without a place."""
    pods = {pod["metadata"]["name"]: decoded(pod) for pod in gang}
    on_them = [(node, decoded(pod)) for node, bodies in there.items() for pod in bodies]
    rules = between(list(pods.values()), [pod for _, pod in on_them])
    nodes = []
    for name in there:
        node = msgspec.convert(SimulatedNode(name, ("b", "s", name), False, 0).manifest(), objects.Node)
        nodes.append(rules.node(node, node_of(node)))
    snapshot = Snapshot.build(
        nodes, [(node, rules.usage(pod, convert.usage_of(pod))) for node, pod in on_them]
    )
    members = tuple(
        Member(name, None, rules.pod_class(pod, convert.pod_class_of(pod))) for name, pod in pods.items()
    )
    answer = place(Gang("g", members), snapshot)
    if isinstance(answer, NoFit):
        return None
    assert not check(answer, Gang("g", members), snapshot)
    return dict(answer.nodes)


def exists(gang: Sequence[Body], there: dict[str, list[Body]], labels: Namespaces) -> bool:
    """Whether any assignment lets no two pods meet that may not, by the plain rules and by trying all."""
    for nodes in itertools.product(there, repeat=len(gang)):
        homes: dict[str, list[Body]] = {node: list(pods) for node, pods in there.items()}
        for pod, node in zip(gang, nodes, strict=True):
            if not all(may_share(pod, other, labels) for other in homes[node]):
                break
            homes[node].append(pod)
        else:
            return True
    return False
