"""Small worlds drawn at random: nodes, pods that run there, and pods with rules on these, as written.

Each world has a label that all of its nodes and pods bear, and that every selector asks for: so any number of
worlds lie in one cluster and none sees another.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hack.local.nodes import SimulatedNode
from webhook.scheduling.acceptance import Acceptance

Body = dict[str, Any]
ZONE, RACK, HOSTNAME = "topology.kubernetes.io/zone", "example.com/rack", "kubernetes.io/hostname"
WORLD = "example.com/world"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SLOTS = "example.com/slots"


@dataclass
class World:
    """One of them. residents: pods with their nodes."""

    name: str
    nodes: list[Body]
    residents: list[Body]


def draw(dice: random.Random, name: str, namespaces: Sequence[str], *, nodes: int = 4) -> World:
    bodies = [node(dice, name, number) for number in range(dice.randint(2, nodes))]
    names = [body["metadata"]["name"] for body in bodies]
    residents = []
    for number in range(dice.choice((0, 0, 1, 2, 3, 5))):
        own = pod(dice, f"{name}-r{number}", name, namespaces, rules=False)
        if dice.random() < 0.3:
            own["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: [term(dice, name)]}}
        own["spec"]["nodeName"] = dice.choice(names)
        residents.append(own)
    return World(name, bodies, residents)


def node(dice: random.Random, world: str, number: int) -> Body:
    labels = {WORLD: world}
    if dice.random() < 0.9:
        labels[ZONE] = f"{world}-{dice.choice('ab')}"
    if dice.random() < 0.9:
        labels[RACK] = f"{world}-{dice.choice('xyz')}"
    body = SimulatedNode(f"{world}-n{number}", ("b", "s", f"{world}-{number}"), False, 0).manifest(labels)
    if dice.random() < 0.2:
        body["spec"]["taints"] = [{"key": "example.com/own", "value": "x", "effect": "NoSchedule"}]
    return body


def pod(dice: random.Random, name: str, world: str, namespaces: Sequence[str], *, rules: bool = True) -> Body:
    """A pod that may go to any node of its world, but for its rules."""
    labels = {WORLD: world, "app": dice.choice("ab")}
    if dice.random() < 0.7:
        labels["v"] = dice.choice("12")
    selector = {WORLD: world}
    if rules and dice.random() < 0.15:
        selector[ZONE] = f"{world}-a"
    spec: Body = {"containers": [{"name": "c", "image": "x"}], "nodeSelector": selector}
    if dice.random() < 0.6:
        spec["tolerations"] = [{"operator": "Exists"}]
    if rules:
        spec |= drawn(dice, world)
    return {"metadata": {"name": name, "namespace": dice.choice(namespaces), "labels": labels}, "spec": spec}


def drawn(dice: random.Random, world: str) -> Body:
    """Some rules on other pods."""
    spec: Body = {}
    affinity: Body = {}
    if dice.random() < 0.35:
        affinity["podAffinity"] = {REQUIRED: [term(dice, world) for _ in range(dice.choice((1, 1, 2)))]}
    if dice.random() < 0.35:
        affinity["podAntiAffinity"] = {REQUIRED: [term(dice, world) for _ in range(dice.choice((1, 1, 2)))]}
    if affinity:
        spec["affinity"] = affinity
    if dice.random() < 0.6:
        keys = dice.sample((ZONE, RACK, HOSTNAME), dice.choice((1, 1, 2)))
        spec["topologySpreadConstraints"] = [spread(dice, world, key) for key in keys]
    return spec


def term(dice: random.Random, world: str) -> Body:
    made: Body = {"topologyKey": dice.choice((ZONE, RACK)), "labelSelector": selector(dice, world)}
    if dice.random() < 0.3:
        made["namespaceSelector"] = dice.choice(
            (
                {},
                {"matchLabels": {"team": "b"}},
                {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
            )
        )
    keys = [name for name in ("matchLabelKeys", "mismatchLabelKeys") if dice.random() < 0.15]
    return made | {name: ["v"] for name in keys[:1] if "matchExpressions" not in made["labelSelector"]}


def selector(dice: random.Random, world: str) -> Body:
    made: Body = {"matchLabels": {WORLD: world}}
    if dice.random() < 0.6:
        made["matchLabels"]["app"] = dice.choice("ab")
    if dice.random() < 0.3:
        operator = dice.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        values = {"values": ["1"]} if operator in ("In", "NotIn") else {}
        made["matchExpressions"] = [{"key": "v", "operator": operator, **values}]
    return made


def spread(dice: random.Random, world: str, key: str) -> Body:
    made: Body = {
        "topologyKey": key,
        "maxSkew": dice.choice((1, 1, 2)),
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector(dice, world),
    }
    if dice.random() < 0.25:
        made["minDomains"] = dice.choice((1, 2, 3, 5))
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if dice.random() < 0.3:
            made[policy] = dice.choice(("Honor", "Ignore"))
    if dice.random() < 0.2 and "matchExpressions" not in made["labelSelector"]:
        made["matchLabelKeys"] = ["v"]
    return made


def only_here(pod: Body, resource: str) -> Body:
    """The pod, which then wants one of a resource."""
    (container,) = pod["spec"]["containers"]
    asked = {**container.get("resources", {}).get("limits", {}), resource: "1"}
    own = {**container, "resources": {"limits": asked, "requests": asked}}
    return {**pod, "spec": {**pod["spec"], "containers": [own]}}


def offer(node: Body, resource: str, amount: int = 1) -> None:
    """The node has some of a resource."""
    for part in ("allocatable", "capacity"):
        node["status"][part] = {**node["status"][part], resource: str(amount)}


def is_taken(rules: Acceptance, order: Sequence[tuple[str, str]]) -> bool:
    """Whether each pod may go to its node beside those before it, asked one by one."""
    rules.reset()
    for name, node in order:
        if rules.reason(name, node):
            return False
        rules.add(name, node)
    return True
