"""Claims, volumes and storage classes drawn at random for one node each, as the API server takes them."""

import random
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
ZONES = ("a", "b")
SIZES = ("1Gi", "2Gi", "1500Mi")


@dataclass
class Drawn:
    """What is to be made for one pair of a pod and a node: in this order, the claims before the pod."""

    classes: list[Body] = field(default_factory=list)
    volumes: list[Body] = field(default_factory=list)
    claims: list[Body] = field(default_factory=list)
    pods: list[list[str]] = field(default_factory=list)
    """Of each pod that is to be on the node, the claims that it names, whether they are there or not."""
    assigned: list[list[str]] = field(default_factory=list)
    """The same of pods that stand there."""
    limits: dict[str, int] = field(default_factory=dict)
    """How many volumes of a driver the node takes."""
    drivers: list[Body] = field(default_factory=list)
    capacities: list[Body] = field(default_factory=list)
    attachments: list[Body] = field(default_factory=list)


def draw(dice: random.Random, node: str, namespace: str) -> Drawn:
    """Claims that say where a pod can be."""
    drawn = Drawn(pods=[[]])
    for number in range(dice.choice((1, 1, 1, 2))):
        name = f"{node}-{number}"
        drawn.pods[0].append(name)
        kind = dice.choice((_bound, _bound, _bound, _static, _static, _static, _made, _made, _unusual))
        kind(dice, drawn, name, node, namespace)
    return drawn


def _bound(dice: random.Random, drawn: Drawn, name: str, node: str, namespace: str) -> None:
    volume = _volume(dice, name, node, "", "4Gi")
    volume["spec"]["claimRef"] = {"namespace": namespace, "name": name}
    keys = [key for key in (ZONE, REGION, OLD_ZONE) if dice.random() < 0.25]
    volume["metadata"]["labels"] = {key: dice.choice((*ZONES, "a__b")) for key in keys}
    drawn.volumes.append(volume)
    drawn.claims.append(a_claim(name, "", "1Gi", volumeName=name))


def _static(dice: random.Random, drawn: Drawn, name: str, node: str, namespace: str) -> None:
    """Volumes that are there, for a claim that waits for its first consumer."""
    drawn.classes.append(a_class(name, "kubernetes.io/no-provisioner"))
    for number in range(dice.choice((0, 1, 1, 2, 3))):
        volume = _volume(dice, f"{name}-{number}", node, name, dice.choice(SIZES))
        if dice.random() < 0.2:
            volume["spec"]["volumeMode"] = "Block"
        if dice.random() < 0.2:
            volume["spec"]["accessModes"] = ["ReadOnlyMany", "ReadWriteMany"]
        if dice.random() < 0.4:
            volume["metadata"]["labels"] = {"speed": dice.choice(("fast", "slow"))}
        if dice.random() < 0.2:
            volume["spec"]["claimRef"] = {"namespace": namespace, "name": dice.choice((name, "another"))}
        drawn.volumes.append(volume)
    more: Body = {}
    if dice.random() < 0.3:
        more["selector"] = dice.choice(
            (
                {"matchLabels": {"speed": "fast"}},
                {"matchExpressions": [{"key": "speed", "operator": "NotIn", "values": ["slow"]}]},
                {"matchExpressions": [{"key": "speed", "operator": "Exists"}]},
            )
        )
    drawn.claims.append(a_claim(name, name, dice.choice(SIZES), **more))


def _made(dice: random.Random, drawn: Drawn, name: str, node: str, namespace: str) -> None:
    """A claim for which a volume would be made, where its class allows it."""
    made = a_class(name, "example.com/nobody")
    if dice.random() < 0.7:
        values = dice.choice(([["a"]], [["b"]], [["a", "b"]], [["a"], ["b"]]))
        terms = [{"matchLabelExpressions": [{"key": ZONE, "values": each}]} for each in values]
        if dice.random() < 0.3:
            terms[0]["matchLabelExpressions"].append({"key": REGION, "values": [dice.choice(ZONES)]})
        made["allowedTopologies"] = terms
    drawn.classes.append(made)
    claim = a_claim(name, name, "1Gi")
    if dice.random() < 0.2:
        chosen = dice.choice((node, "another"))
        claim["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": chosen}
    drawn.claims.append(claim)


def _unusual(dice: random.Random, drawn: Drawn, name: str, node: str, namespace: str) -> None:
    """No claim, no class, or one that is to be bound at once and is not."""
    match dice.randrange(3):
        case 0:
            pass
        case 1:
            drawn.claims.append(a_claim(name, "absent", "1Gi"))
        case 2:
            drawn.classes.append(a_class(name, "example.com/nobody", "Immediate"))
            drawn.claims.append(a_claim(name, name, "1Gi"))


def _volume(dice: random.Random, name: str, node: str, class_name: str, size: str) -> Body:
    spec: Body = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class_name,
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": "example.com", "volumeHandle": name},
    }
    if dice.random() < 0.7:
        terms = [_term(dice, node) for _ in range(dice.choice((1, 1, 2)))]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return {"metadata": {"name": name}, "spec": spec}


def _term(dice: random.Random, node: str) -> Body:
    claims: list[Body] = [
        {"key": ZONE, "operator": "In", "values": dice.sample(ZONES, 1)},
        {"key": ZONE, "operator": dice.choice(("Exists", "DoesNotExist"))},
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [dice.choice((node, "another"))]},
        {"key": REGION, "operator": "NotIn", "values": dice.sample(ZONES, 1)},
    ]
    return {"matchExpressions": dice.sample(claims, dice.choice((1, 1, 2)))}


def a_class(name: str, provisioner: str, mode: str = "WaitForFirstConsumer") -> Body:
    """A StorageClass."""
    return {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}


def a_claim(name: str, class_name: str, size: str, **more: Any) -> Body:
    """A PersistentVolumeClaim."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class_name,
        "resources": {"requests": {"storage": size}},
        **more,
    }
    return {"metadata": {"name": name}, "spec": spec}
