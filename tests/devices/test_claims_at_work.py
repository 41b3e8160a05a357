"""Gangs with claims on devices are planned, pinned and run, by the real API server and its scheduler."""

import os
import random
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
    create_pod,
    create_priority_classes,
    named,
    run_all,
    sweep,
    template,
)
from tests.sweeper.mortal import MortalApi, living
from webhook.configuration.settings import Settings
from webhook.kube.client import Api
from webhook.kube.devices import CLAIMS, GROUP, SLICES
from webhook.placement import Assignment, Gang, Member, NodeInfo, PodClass, Snapshot, Topology, Usage, place
from webhook.policy.values import Policy

SETTINGS = Settings(settle_seconds=0.5, patience_seconds=1, reserve_seconds=0)
GANGS: Final = int(os.environ.get("TOPOGATE_CLAIM_GANGS", "6"))
"""Each takes about a second."""
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


@pytest.mark.promise("R133")
def test_partitions_and_shares_are_placed_where_they_fit(with_devices: Cluster, namespace: str) -> None:
    api = with_devices.api()
    api.request("DELETE", SLICES)
    for node in GRID[:2]:
        for body in divided(node.name):
            api.request("POST", SLICES, body=body)
    small: dict[str, Any] = {
        "selectors": [{"cel": {"expression": f'device.attributes["{claims.DRIVER}"].engines == 1'}}]
    }
    share: dict[str, Any] = {"selectors": [{"cel": {"expression": "device.allowMultipleAllocations"}}]}
    claims.create_template(api, namespace, claims.template("part", 1, **small))
    claims.create_template(
        api, namespace, claims.template("share", 1, **share, capacity={"requests": {"memory": "30Gi"}})
    )
    create_job(api, namespace, "part", 8, with_claim("part"))
    create_job(api, namespace, "share", 3, with_claim("share"))

    def run(pods: Pods) -> bool:
        return run_all(pods, "part", 8) and run_all(pods, "share", 3)

    pods = sweep(with_devices, namespace, SETTINGS, run, "both gangs to run")
    for name, counts in (("part", [1, 7]), ("share", [1, 2])):
        assert sorted(Counter(pod["spec"]["nodeName"] for pod in named(pods, name)).values()) == counts


def divided(node: str) -> list[dict[str, Any]]:
    """A node's GPU of seven engines with eight partitions of one each, and a device that is shared."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    common = {"driver": claims.DRIVER, "nodeName": node, "pool": pool}
    used = {"counterSet": "gpu-0", "counters": {"engines": {"value": "1"}}}
    parts: list[dict[str, Any]] = [
        {"name": f"part-{number}", "attributes": {"engines": {"int": 1}}, "consumesCounters": [used]}
        for number in range(8)
    ]
    shared = {
        "name": "shared",
        "attributes": {"engines": {"int": 0}},
        "capacity": {"memory": {"value": "80Gi"}},
        "allowMultipleAllocations": True,
    }
    sets = [{"name": "gpu-0", "counters": {"engines": {"value": "7"}}}]
    return [
        {"metadata": {"name": f"{node}-0"}, "spec": {**common, "devices": [*parts, shared]}},
        {"metadata": {"name": f"{node}-1"}, "spec": {**common, "sharedCounters": sets}},
    ]


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


@pytest.mark.promise("R141")
@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"resourceClaimTemplateName": "missing"}, 'there is no ResourceClaimTemplate "missing"'),
        ({"resourceClaimName": "missing"}, 'there is no ResourceClaim "missing" for its claim gpus'),
        ({"resourceClaimTemplateName": "strange"}, 'names in its request gpus the DeviceClass "strange"'),
    ],
    ids=["no template", "no claim", "no class"],
)
def test_a_pod_whose_claims_cannot_be_answered_waits_with_the_reason(
    with_devices: Cluster, namespace: str, spec: dict[str, str], sentence: str
) -> None:
    api = with_devices.api()
    claims.create_template(api, namespace, claims.template("strange", 1, "strange"))
    body = with_claim("x")
    body["spec"]["resourceClaims"] = [{"name": "gpus", **spec}]
    create_pod(api, namespace, "lone", body)
    pods = sweep(
        with_devices,
        namespace,
        SETTINGS,
        lambda _: any(sentence in reason for reason in reasons(with_devices, namespace)),
        "the reason to be told",
    )
    assert [gate["name"] for gate in pods[0]["spec"]["schedulingGates"]] == [keys.GATE]


@pytest.mark.promise("R141")
@pytest.mark.parametrize(
    "broken",
    [
        "webhook.extensions.device_claims.needs",
        "webhook.sweeper.hooks.ExtensionHooks._with_resources",
    ],
    ids=["a defect of the extension", "a defect of its caller"],
)
def test_after_a_defect_a_gang_with_claims_waits_and_runs_once_it_is_mended(
    with_devices: Cluster, namespace: str, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = with_devices.api()
    claims.create_template(api, namespace, claims.template("four", 4))
    create_job(api, namespace, "job", 2, with_claim("four"))
    create_job(api, namespace, "plain", 1, template(0))

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(broken, fails)

        def is_reported(pods: Pods) -> bool:
            expected = "what its claims on devices ask for is not known in this pass"
            return run_all(pods, "plain", 1) and any(
                expected in each for each in reasons(with_devices, namespace)
            )

        pods = sweep(
            with_devices, namespace, SETTINGS, is_reported, "the reason, and the gang without claims to run"
        )
        assert all(pod["spec"].get("schedulingGates") for pod in named(pods, "job"))
        assert not allocated(with_devices)
    sweep(with_devices, namespace, SETTINGS, lambda pods: run_all(pods, "job", 2), "the gang to run")


@pytest.mark.promise("R126")
def test_a_pod_with_an_allocated_claim_is_placed_where_its_devices_are(
    with_devices: Cluster, namespace: str
) -> None:
    api = with_devices.api()
    path = f"{GROUP}/namespaces/{namespace}/resourceclaims"
    spec = claims.template("x", 2)["spec"]["spec"]
    made = api.json("POST", path, body={"metadata": {"name": "mine"}, "spec": spec})
    last = GRID[-1].name
    given = [{"request": "gpus", "driver": claims.DRIVER, "pool": last, "device": f"gpu-{n}"} for n in (0, 1)]
    only = {"key": "metadata.name", "operator": "In", "values": [last]}
    allocation = {
        "devices": {"results": given},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]},
    }
    body = with_claim("x")
    body["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": "mine"}]
    create_pod(api, namespace, "lone", body)
    uid = api.json("GET", f"/api/v1/namespaces/{namespace}/pods/lone")["metadata"]["uid"]
    # Reserved, as otherwise its controller takes back what nobody uses.
    status = {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": "lone", "uid": uid}]}
    made["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    made = api.json("PUT", f"{path}/mine", body=made)
    api.request("PUT", f"{path}/mine/status", body={**made, "status": status})
    pods = sweep(with_devices, namespace, SETTINGS, lambda pods: run_all(pods, "lone", 1), "it to run")
    assert named(pods, "lone")[0]["spec"]["nodeName"] == last


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


@pytest.mark.timeout(900 + 10 * GANGS)
def test_gangs_with_claims_run_at_the_optimum(with_devices: Cluster, namespace: str) -> None:
    dice = random.Random(5)
    api = with_devices.api()
    for count in range(1, DEVICES + 1):
        claims.create_template(api, namespace, claims.template(f"g{count}", count))
    sweeping = MortalApi.connect(with_devices.kubeconfig, user_agent="test-sweeper")
    assert isinstance(sweeping, MortalApi)
    sweeping.prepare(None)
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    alive: list[str] = []
    done = 0
    with living(sweeping, SETTINGS) as one_pass:

        def wait(what: str, holds: Callable[[], bool]) -> None:
            def swept() -> bool:
                one_pass()
                return holds()

            with_devices.wait_for(what, swept)

        def pods_of(name: str) -> Pods:
            path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=job-name%3D{name}"
            found: Pods = api.json("GET", path)["items"]
            return found

        def end(name: str) -> None:
            api.request("DELETE", f"{jobs}/{name}", body={"propagationPolicy": "Background"})
            wait(f"{name} to be gone", lambda: not pods_of(name) and _is_quiet(with_devices))

        def run(name: str, size: int, count: int) -> None:
            create_job(api, namespace, name, size, with_claim(f"g{count}"))
            wait(f"{name} of {size} x {count} to run", lambda: run_all(pods_of(name), name, size))

        while done < GANGS:
            size, count = dice.choice((1, 2, 3, 4, 6, 8, 12)), dice.choice((1, 2, 3, 4, 4, 8, 8))
            expected = fewest(with_devices, size, count)
            if expected is None or (alive and dice.random() < 0.1):
                end(alive.pop(dice.randrange(len(alive))))
                continue
            name = f"gang{done}"
            run(name, size, count)
            assert domains(pods_of(name)) == expected, f"{name}: {size} x {count}"
            alive.append(name)
            done += 1


def _is_quiet(cluster: Cluster) -> bool:
    """Whether every claim that is there belongs to a pod that is there."""
    owners = {
        owner["uid"]
        for claim in cluster.api().json("GET", CLAIMS)["items"]
        for owner in claim["metadata"].get("ownerReferences", [])
    }
    there = {pod["metadata"]["uid"] for pod in cluster.api().json("GET", "/api/v1/pods")["items"]}
    return owners <= there


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
