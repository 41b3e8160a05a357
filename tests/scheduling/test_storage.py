"""What the volumes of a pod demand of its node, and the reason for volumes that can be used nowhere."""

from typing import Any

import msgspec
import pytest

from tests.sweeper.pods import decode, pod_json
from webhook.kube.volume_objects import PersistentVolume, PersistentVolumeClaim, StorageClass
from webhook.placement.eligibility import reason_against
from webhook.placement.model import PodClass
from webhook.scheduling import convert
from webhook.scheduling.storage import Storage

Body = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
DONE = {"pv.kubernetes.io/bind-completed": "yes"}
CLAIM = 'PersistentVolumeClaim "data" of volume "v"'
REQUESTS = {"resources": {"requests": {"storage": "1Gi"}}}


def storage(claim: Body | None, volumes: list[Body] | None = None, kind: Body | None = None) -> Storage:
    """One claim "data", volumes "pv0", "pv1", ..., and a class "slow"."""
    metadata = {"name": "data", "namespace": "ns", "uid": "u"}
    claims = {}
    if claim is not None:
        body = {**claim, "metadata": {**metadata, **claim.get("metadata", {})}}
        claims["ns/data"] = msgspec.convert(body, PersistentVolumeClaim)
    made = {
        f"pv{number}": msgspec.convert(
            {"status": {"phase": "Available"}, "metadata": {"name": f"pv{number}"}, **body}, PersistentVolume
        )
        for number, body in enumerate(volumes or [])
    }
    classes = {}
    if kind is not None:
        classes["slow"] = msgspec.convert({"metadata": {"name": "slow"}, **kind}, StorageClass)
    return Storage(claims, made, classes)


def asked(found: Storage, **volume: Any) -> PodClass:
    source = volume or {"persistentVolumeClaim": {"claimName": "data"}}
    pod = decode(pod_json(volumes=[{"name": "v", **source}]))
    return found.pod_class(pod, convert.pod_class_of(pod))


def allowed(pod_class: PodClass, nodes: dict[str, dict[str, str]]) -> list[str]:
    """The nodes, by name and labels, where such a pod may run."""
    assert pod_class.problem == ""
    return [
        n for n, labels in nodes.items() if not reason_against(pod_class.rules, n, labels, (), False, True)
    ]


NODES = {"a": {ZONE: "a"}, "b": {ZONE: "b"}, "c": {}}
LATER = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "example.com/x"}


def in_zone(*zones: str) -> Body:
    expression = {"key": ZONE, "operator": "In", "values": list(zones)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def bound(**metadata: Any) -> Body:
    return {"metadata": {"annotations": DONE, **metadata}, "spec": {"volumeName": "pv0"}}


def free(zone: str, **spec: Any) -> Body:
    return {
        "spec": {
            "storageClassName": "slow",
            "capacity": {"storage": "1Gi"},
            "nodeAffinity": in_zone(zone),
            **spec,
        }
    }


def waiting(**metadata: Any) -> Body:
    return {"metadata": metadata, "spec": {"storageClassName": "slow", **REQUESTS}}


@pytest.mark.parametrize(
    ("found", "nodes"),
    [
        (storage(bound(), [{"spec": {"nodeAffinity": in_zone("a")}}]), "a"),
        (storage(bound(), [{}]), "abc"),
        (storage(bound(), [{"metadata": {"name": "pv0", "labels": {ZONE: "b__x"}}}]), "bc"),
        (storage(waiting(), [], LATER), "abc"),
        (
            storage(
                waiting(),
                [],
                {**LATER, "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]},
            ),
            "b",
        ),
        (
            storage(
                waiting(), [free("a"), free("b")], {**LATER, "provisioner": "kubernetes.io/no-provisioner"}
            ),
            "ab",
        ),
        (
            storage(
                waiting(),
                [free("a"), free("b", claimRef={"namespace": "ns", "name": "data"})],
                {**LATER, "provisioner": "kubernetes.io/no-provisioner"},
            ),
            "b",
        ),
        (storage(waiting(annotations={"volume.kubernetes.io/selected-node": "c"}), [], LATER), "c"),
    ],
    ids=[
        "where its volume can be reached",
        "anywhere, as its volume can",
        "in the zones of its volume's labels, or where no zone is told",
        "anywhere, as one is made for it",
        "where one may be made",
        "where one is free",
        "where one is kept for it",
        "where one is being made",
    ],
)
def test_a_pod_may_run_where_its_volume_can_be_used(found: Storage, nodes: str) -> None:
    assert "".join(allowed(asked(found), NODES)) == nodes


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (storage(None), f"there is no {CLAIM}"),
        (storage(bound(deletionTimestamp="2026-01-01T00:00:00Z"), [{}]), f"the {CLAIM} is being deleted"),
        (storage({**bound(), "status": {"phase": "Lost"}}), f"the {CLAIM} has lost its PersistentVolume"),
        (storage(bound()), f'the {CLAIM} is bound to the missing PersistentVolume "pv0"'),
        (storage({"spec": {"volumeName": "pv0"}}, [{}]), f"the {CLAIM} is not bound yet"),
        (storage({}), f"the {CLAIM} is not bound: it names no StorageClass"),
        (storage(waiting()), f'the {CLAIM} is not bound: there is no StorageClass "slow"'),
        (storage(waiting(), [], {}), f'the {CLAIM} is not bound yet (StorageClass "slow" binds at once)'),
        (
            storage(
                waiting(),
                [free("a", capacity={"storage": "1Mi"}), free("a", claimRef={"namespace": "x", "name": "y"})],
                {**LATER, "provisioner": "kubernetes.io/no-provisioner"},
            ),
            f'no PersistentVolume of StorageClass "slow" is free for the {CLAIM}',
        ),
    ],
    ids=[
        "no claim",
        "a claim on its way out",
        "lost",
        "its volume is gone",
        "binding",
        "no class named",
        "no such class",
        "bound at once",
        "nothing free",
    ],
)
def test_a_pod_whose_volume_can_be_used_nowhere_waits_with_the_reason(found: Storage, sentence: str) -> None:
    assert asked(found).problem == sentence


def test_an_ephemeral_volume_s_claim_is_the_pod_s_own() -> None:
    claim = {**waiting(), "metadata": {"name": "p-v"}}
    body = msgspec.convert({**claim, "metadata": {"name": "p-v", "namespace": "ns"}}, PersistentVolumeClaim)
    found = storage(None, [], LATER)
    mine = {"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    owned = msgspec.convert(
        {**claim, "metadata": {"name": "p-v", "namespace": "ns", "ownerReferences": [mine]}},
        PersistentVolumeClaim,
    )
    foreign = asked(Storage({"ns/p-v": body}, {}, found.classes), ephemeral={})
    assert foreign.problem == 'the PersistentVolumeClaim "p-v" of volume "v" was not created for this pod'
    assert asked(Storage({"ns/p-v": owned}, {}, found.classes), ephemeral={}).problem == ""


def test_a_pod_without_claims_is_asked_nothing() -> None:
    pod = decode(pod_json(volumes=[{"name": "v", "emptyDir": {}}]))
    pod_class = convert.pod_class_of(pod)
    assert storage(None).pod_class(pod, pod_class) is pod_class


def test_volumes_on_many_nodes_are_one_term() -> None:
    volumes = []
    for number in range(50):
        key = "kubernetes.io/hostname"
        expression = {"key": key, "operator": "In", "values": [f"n{number}"]}
        affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        volumes.append(free("a", nodeAffinity=affinity))
    found = storage(waiting(), volumes, {**LATER, "provisioner": "kubernetes.io/no-provisioner"})
    ((term,),) = asked(found).rules.volumes
    assert len(term.expressions[0].values) == 50
