"""Gangs with claims on devices are planned, pinned and run, by the real API server and its scheduler."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from hack.local import claims, nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import register_nodes
from tests.sweeper.at_work import (
    Pods,
    create_job,
    create_priority_classes,
    named,
    run_all,
    sweep,
    template,
)
from webhook.configuration.settings import Settings
from webhook.kube.client import Api
from webhook.kube.devices import CLAIMS, SLICES
from webhook.placement import Assignment, Gang, Member, NodeInfo, PodClass, Snapshot, Topology, Usage, place
from webhook.policy.values import Policy

SETTINGS = Settings(settle_seconds=0.5, patience_seconds=1, reserve_seconds=0)
GRID = nodes.grid(nodes.Shape(nodes=16, blocks=2, subblocks=2, gpus=0))
DEVICES: Final = 8


@pytest.fixture
def with_devices(definitions: Cluster) -> Iterator[Cluster]:
    """Sixteen nodes in two blocks with eight devices each, which only ResourceSlices show."""
    api = definitions.api()
    register_nodes(definitions, GRID)
    claims.publish(api, GRID, DEVICES)
    yield definitions
    claims.withdraw(api)


def with_claim(template_name: str, **more: Any) -> dict[str, Any]:
    """A gated pod template with a claim and without any resource."""
    made = template(0, resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": template_name}], **more)
    made["spec"]["containers"] = [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpus"}]}}]
    return made


def allocated(cluster: Cluster) -> Counter[str]:
    """How many devices of each node claims have been given; claims of other tests may not be gone yet."""
    found: Counter[str] = Counter()
    ours = {each.name for each in GRID}
    for claim in cluster.api().json("GET", CLAIMS)["items"]:
        allocation = claim.get("status", {}).get("allocation", {})
        found.update(
            each["pool"] for each in allocation.get("devices", {}).get("results", []) if each["pool"] in ours
        )
    return found


def reasons(cluster: Cluster, namespace: str) -> list[str]:
    path = f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"
    return [each.get("status", {}).get("reason", "") for each in cluster.api().json("GET", path)["items"]]


@pytest.mark.promise("R126", "R125")
def test_a_gang_with_claims_is_packed_by_the_devices_that_are_free(
    with_devices: Cluster, namespace: str
) -> None:
    api = with_devices.api()
    claims.create_template(api, namespace, claims.template("four", 4))
    create_job(api, namespace, "job", 8, with_claim("four"))
    pods = sweep(with_devices, namespace, SETTINGS, lambda pods: run_all(pods, "job", 8), "the gang to run")
    places = Counter(pod["spec"]["nodeName"] for pod in pods)
    assert set(places.values()) == {2}
    assert len({name.split("-")[1:3][0] + name.split("-")[2] for name in places}) == 1, "one subblock of four"
    assert allocated(with_devices) == dict.fromkeys(places, 8)


@pytest.mark.promise("R133")
def test_a_gang_whose_resource_a_device_class_stands_for_is_packed_beside_claims(
    with_devices: Cluster, namespace: str
) -> None:
    api = with_devices.api()
    claims.create_template(api, namespace, claims.template("six", 6))
    create_job(api, namespace, "first", 1, with_claim("six"))
    sweep(with_devices, namespace, SETTINGS, lambda pods: run_all(pods, "first", 1), "the first to run")
    body = template(0)
    limits = {"limits": {claims.RESOURCE: "2"}}
    body["spec"]["containers"] = [{"name": "c", "image": "x", "resources": limits}]
    create_job(api, namespace, "job", 5, body)
    pods = sweep(with_devices, namespace, SETTINGS, lambda pods: run_all(pods, "job", 5), "the gang to run")
    places = Counter(pod["spec"]["nodeName"] for pod in named(pods, "job"))
    assert sorted(places.values()) == [1, 4], "four on an empty node, and one in the rest of the first's"
    assert set(allocated(with_devices).values()) == {8}


@pytest.mark.promise("R128")
def test_pods_with_claims_on_other_classes_than_the_policy_s_are_released_without_placement(
    with_devices: Cluster, namespace: str
) -> None:
    api = with_devices.api()
    claims.create_template(api, namespace, claims.template("nic", 1, claims.OTHER_CLASS))
    claims.create_template(api, namespace, claims.template("gpu", 1))
    create_job(api, namespace, "nic", 2, with_claim("nic"))
    create_job(api, namespace, "gpu", 2, with_claim("gpu"))
    policy = Policy(resource_claims=True, device_classes=("gpu.*",))

    def run(pods: Pods) -> bool:
        return run_all(pods, "nic", 2) and run_all(pods, "gpu", 2)

    pods = sweep(with_devices, namespace, SETTINGS, run, "all to run", policy=policy)
    pinned = {pod["metadata"]["name"].split("-")[0]: "affinity" in pod["spec"] for pod in pods}
    assert pinned == {"nic": False, "gpu": True}


@pytest.mark.promise("R144")
def test_a_level_of_the_topology_may_be_an_attribute_of_the_devices(
    with_devices: Cluster, namespace: str
) -> None:
    levels = Topology(((f"device:{claims.DRIVER}/cliqueID",),), ("clique",))
    settings = replace(SETTINGS, topology=levels)
    api = with_devices.api()
    claims.create_template(api, namespace, claims.template("eight", 8))
    create_job(api, namespace, "first", 2, with_claim("eight"))
    sweep(with_devices, namespace, settings, lambda pods: run_all(pods, "first", 2), "two nodes to be taken")
    body = with_claim("eight")
    body["metadata"]["annotations"] = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "clique"}
    create_job(api, namespace, "job", 4, body)
    pods = sweep(with_devices, namespace, settings, lambda pods: run_all(pods, "job", 4), "the gang to run")
    places = {each.name: each.place[:2] for each in GRID}
    assert len({places[pod["spec"]["nodeName"]] for pod in named(pods, "job")}) == 1


def test_a_gang_that_finds_too_few_devices_gets_their_names(with_devices: Cluster, namespace: str) -> None:
    api = with_devices.api()
    claims.create_template(api, namespace, claims.template("more", 9))
    create_job(api, namespace, "job", 2, with_claim("more"))

    def is_reported(_: Pods) -> bool:
        expected = "excluded: devices of gpu.example.com: 16."
        return any(expected in reason for reason in reasons(with_devices, namespace))

    pods = sweep(with_devices, namespace, SETTINGS, is_reported, "the reason to be told")
    assert all(pod["spec"].get("schedulingGates") for pod in pods)
    assert not allocated(with_devices)


def test_a_driver_that_restarts_between_plan_and_bind_costs_no_place_and_a_removed_one_moves_the_gang(
    with_devices: Cluster, namespace: str
) -> None:
    api, settings = with_devices.api(), replace(SETTINGS, bind_seconds=2)
    claims.create_template(api, namespace, claims.template("eight", 8))
    with_devices.stop("kube-scheduler")
    try:
        create_job(api, namespace, "job", 2, with_claim("eight"))
        planned = sweep(with_devices, namespace, settings, are_sent(2), "the plan")
        remaining, lost = (pinned_to(pod) for pod in planned)
        for node in (remaining, lost):
            api.request("DELETE", f"{SLICES}/{node}")
        republish(api, remaining)
    finally:
        with_devices.start("kube-scheduler")
    pods = sweep(with_devices, namespace, settings, lambda pods: run_all(pods, "job", 2), "both to run")
    places = {pod["spec"]["nodeName"] for pod in pods}
    assert remaining in places, "its devices are there again"
    assert lost not in places
    assert allocated(with_devices) == dict.fromkeys(places, DEVICES)
    given = devices_given(with_devices)
    assert len(given) == len(set(given)) == 2 * DEVICES
    assert {name for pool, name in given if pool == remaining} == {f"new-gpu-{n}" for n in range(DEVICES)}


def are_sent(count: int) -> Callable[[Pods], bool]:
    """Whether so many pods are there, each pinned to its node."""
    return lambda pods: len(pods) == count and all(pod["spec"].get("affinity") for pod in pods)


def pinned_to(pod: dict[str, Any]) -> str:
    """The node that a released pod is pinned to."""
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (name,) = required["nodeSelectorTerms"][0]["matchFields"][0]["values"]
    return str(name)


def devices_given(cluster: Cluster) -> list[tuple[str, str]]:
    """The pool and the name of every device of these nodes that a claim has been given."""
    ours = {each.name for each in GRID}
    return [
        (each["pool"], each["device"])
        for claim in cluster.api().json("GET", CLAIMS)["items"]
        for each in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        if each["pool"] in ours
    ]


def republish(api: Api, node: str) -> None:
    """Publish the devices of a node as a driver that has restarted: a newer generation of the pool, in two
    slices, by other names."""
    (simulated,) = (each for each in GRID if each.name == node)
    spec = claims.resource_slice(simulated, DEVICES)["spec"]
    pool = {**spec["pool"], "generation": 2, "resourceSliceCount": 2}
    devices = [{**each, "name": f"new-{each['name']}"} for each in spec["devices"]]
    for number, part in enumerate((devices[:3], devices[3:])):
        body = {"metadata": {"name": f"{node}-{number}"}, "spec": {**spec, "pool": pool, "devices": part}}
        api.request("POST", SLICES, body=body)


# --- many gangs -----------------------------------------------------------------------------------


def fewest(cluster: Cluster, size: int, count: int) -> tuple[int, ...] | None:
    """The fewest domains for a gang by the placement core, were the free devices a plain resource."""
    taken = allocated(cluster)
    there = [
        NodeInfo(each.name, labels=each.topology_labels, allocatable={"gpu": DEVICES, "pods": 110})
        for each in GRID
    ]
    usage = [(name, Usage({"gpu": number})) for name, number in taken.items()]
    kind = PodClass((("gpu", count), ("pods", 1)))
    answer = place(
        Gang("g", tuple(Member(str(n), n, kind) for n in range(size))), Snapshot.build(there, usage)
    )
    return answer.objective.domains if isinstance(answer, Assignment) else None


def domains(pods: Pods) -> tuple[int, ...]:
    """The blocks, subblocks, hosts and nodes that pods use."""
    places = {each.name: each.place for each in GRID}
    used = [places[pod["spec"]["nodeName"]] for pod in pods]
    return *(len({place[: level + 1] for place in used}) for level in range(3)), len(set(used))


@pytest.mark.promise("R143")
def test_nobody_is_preempted_for_devices(with_devices: Cluster, namespace: str) -> None:
    create_priority_classes(with_devices)
    api = with_devices.api()
    claims.create_template(api, namespace, claims.template("eight", 8))
    create_job(api, namespace, "low", len(GRID), with_claim("eight", priorityClassName="low"))
    sweep(
        with_devices,
        namespace,
        SETTINGS,
        lambda pods: run_all(pods, "low", len(GRID)),
        "the low gang to run",
        180,
    )
    create_job(api, namespace, "high", 1, with_claim("eight", priorityClassName="high"))
    passes = 0

    def waits(pods: Pods) -> bool:
        nonlocal passes
        assert run_all(pods, "low", len(GRID))
        passes += any("1 pod does not fit" in reason for reason in reasons(with_devices, namespace))
        return passes > 10

    pods = sweep(with_devices, namespace, SETTINGS, waits, "the high gang to wait for a while")
    assert all(not pod["metadata"].get("deletionTimestamp") for pod in named(pods, "low"))
