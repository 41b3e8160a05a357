"""What decides how many volumes a node takes, drawn at random for a node: limits, volumes, capacity."""

import random

from tests.scheduling.drawn_volumes import SIZES, Body, Drawn, a_claim, a_class

DRIVERS = ("limited.example.com", "ebs.csi.aws.com")
PROVISIONERS = (*DRIVERS, "kubernetes.io/aws-ebs")


def attached(dice: random.Random, drawn: Drawn, node: str, namespace: str) -> None:
    """Pods with volumes of drivers that attach a limited number, beside others on the node."""
    drawn.limits = {name: dice.choice((0, 1, 1, 2, 3, 4)) for name in DRIVERS if dice.random() < 0.8}
    shared = [
        _attachable(dice, drawn, f"{node}-s{number}", namespace) for number in range(dice.choice((0, 1, 2)))
    ]
    for number in range(dice.choice((0, 0, 1, 2))):
        own = [_attachable(dice, drawn, f"{node}-t{number}", namespace)] if dice.random() < 0.7 else []
        drawn.assigned.append([*own, *(name for name in shared if dice.random() < 0.5)])
    wanted, of_all = dice.choice((0, 1, 1, 2)), [name for name in shared if dice.random() < 0.7]
    equivalents = dice.choice((_attachable, _attachable, _to_be_made))
    for pod in range(dice.choice((1, 1, 2, 3))):
        own = [equivalents(dice, drawn, f"{node}-{pod}-{number}", namespace) for number in range(wanted)]
        drawn.pods.append([*own, *of_all] or [_attachable(dice, drawn, f"{node}-{pod}", namespace)])
    for volume in drawn.volumes:
        if "csi" in volume["spec"] and dice.random() < 0.15:
            drawn.attachments.append(
                {
                    "metadata": {"name": f"a-{volume['metadata']['name']}"},
                    "spec": {
                        "attacher": volume["spec"]["csi"]["driver"],
                        "nodeName": node,
                        "source": {"persistentVolumeName": volume["metadata"]["name"]},
                    },
                }
            )


def _attachable(dice: random.Random, drawn: Drawn, name: str, namespace: str) -> str:
    """A claim that is bound to a volume of a driver, or of the plugin that was there before it."""
    spec: Body = {
        "capacity": {"storage": "4Gi"},
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": namespace, "name": name},
    }
    driver = dice.choice(DRIVERS)
    if driver == DRIVERS[1] and dice.random() < 0.5:
        spec["awsElasticBlockStore"] = {"volumeID": f"aws://a/vol-{name}"}
    else:
        spec["csi"] = {"driver": driver, "volumeHandle": f"vol-{name}"}
    drawn.volumes.append({"metadata": {"name": name}, "spec": spec})
    drawn.claims.append(a_claim(name, "", "1Gi", volumeName=name, accessModes=["ReadWriteMany"]))
    return name


def _to_be_made(dice: random.Random, drawn: Drawn, name: str, namespace: str) -> str:
    drawn.classes.append(a_class(name, dice.choice(PROVISIONERS)))
    drawn.claims.append(a_claim(name, name, "1Gi"))
    return name


def local(dice: random.Random, drawn: Drawn, node: str, namespace: str) -> None:
    """Pods whose claims wait for the node's own volumes, of one class."""
    drawn.classes.append(a_class(node, "kubernetes.io/no-provisioner"))
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    for number in range(dice.choice((0, 1, 2, 3, 4))):
        name = f"{node}-v{number}"
        spec: Body = {
            "capacity": {"storage": dice.choice(SIZES)},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": node,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"/mnt/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        }
        labels = {"speed": dice.choice(("fast", "slow"))} if dice.random() < 0.3 else {}
        drawn.volumes.append({"metadata": {"name": name, "labels": labels}, "spec": spec})
    equivalents = [(dice.choice(SIZES), _selected(dice)) for _ in range(dice.choice((1, 1, 2)))]
    for pod in range(dice.choice((1, 2, 2, 3))):
        names = [f"{node}-{pod}-{number}" for number in range(len(equivalents))]
        drawn.claims += [
            a_claim(name, node, size, **more) for name, (size, more) in zip(names, equivalents, strict=True)
        ]
        drawn.pods.append(names)


def _selected(dice: random.Random) -> Body:
    return {"selector": {"matchLabels": {"speed": "fast"}}} if dice.random() < 0.2 else {}


def roomy(dice: random.Random, drawn: Drawn, node: str, namespace: str) -> None:
    """A pod whose volume is made where its driver publishes capacity."""
    driver = f"{node}.example.com"
    has_limit = dice.random() < 0.8
    spec = {"attachRequired": False, "storageCapacity": has_limit}
    drawn.drivers.append({"metadata": {"name": driver}, "spec": spec})
    made = a_class(node, driver)
    if dice.random() < 0.3:
        host = {"key": "kubernetes.io/hostname", "values": [dice.choice((node, node, "another"))]}
        made["allowedTopologies"] = [{"matchLabelExpressions": [host]}]
    drawn.classes.append(made)
    for number in range(dice.choice((0, 1, 1, 2))):
        capacity: Body = {
            "metadata": {"name": f"{node}-{number}"},
            "storageClassName": dice.choice((node, node, "no")),
        }
        where = dice.choice((node, node, "another"))
        topology: Body = {"matchLabels": {"kubernetes.io/hostname": where}}
        capacity["nodeTopology"] = dice.choice((topology, topology, {}))
        if dice.random() < 0.8:
            capacity["capacity"] = dice.choice(("1Gi", "1500Mi", "10Gi", "100Mi"))
        if dice.random() < 0.4:
            capacity["maximumVolumeSize"] = dice.choice(("1Gi", "2Gi"))
        drawn.capacities.append(capacity)
    for pod in range(dice.choice((1, 1, 2))):
        drawn.claims.append(a_claim(f"{node}-{pod}", node, dice.choice(SIZES)))
        drawn.pods.append([f"{node}-{pod}"])


def by_one_pod(dice: random.Random, drawn: Drawn, node: str, namespace: str) -> None:
    """A claim that only one pod may use, which another pod uses or not."""
    name = _attachable(dice, drawn, node, namespace)
    for body in (drawn.volumes[-1], drawn.claims[-1]):
        body["spec"]["accessModes"] = ["ReadWriteOncePod"]
    if dice.random() < 0.5:
        drawn.assigned.append([name])
    drawn.pods += [[name]] * dice.choice((1, 1, 2))
