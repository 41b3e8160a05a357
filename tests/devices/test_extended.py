"""Extended resources that a DeviceClass stands for: counted as claims where no device plugin offers them."""

from typing import Any

import msgspec
import pytest

from tests.devices.bodies import Body, claim, claim_spec, exactly, given, gpus, nodes, pod, supply
from tests.sweeper.pods import decode, pod_json
from webhook.devices.extended_resources import DeviceAmount, amounts_of, backing
from webhook.devices.needs import needs
from webhook.devices.supply import Supply
from webhook.kube.devices import DeviceClass, ResourceClaim
from webhook.kube.objects import Node, Pod
from webhook.placement import NodeInfo, Snapshot, Usage, capacity
from webhook.scheduling import convert

RESOURCE = "example.com/gpu"


def device_class(name: str, resource: str = "", created: str = "2026-01-01T00:00:00Z") -> DeviceClass:
    spec: Body = {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]}
    if resource:
        spec["extendedResourceName"] = resource
    body = {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec}
    return msgspec.convert(body, DeviceClass)


CLASS = device_class("gpu", RESOURCE)


def asking(name: str, *amounts: int, init: tuple[Body, ...] = (), node: str = "", **more: Any) -> Pod:
    """A pod whose containers ask for so many each; init: its init containers."""
    containers = [
        {"name": f"c{number}", "resources": {"limits": {RESOURCE: str(each)}} if each else {}}
        for number, each in enumerate(amounts)
    ]
    bound = {"nodeName": node, "schedulingGates": []} if node else {}
    body = pod_json(name, containers=containers, initContainers=list(init), **bound, **more)
    body["metadata"] |= {"namespace": "demo", "uid": f"uid-{name}"}
    return decode(body)


def first(amount: int, **more: Any) -> Body:
    return {"name": "i", "resources": {"limits": {RESOURCE: str(amount)}}, **more}


def made(pod_name: str, *devices: str, pool: str = "n") -> ResourceClaim:
    """What kube-scheduler has made for a pod's extended resources."""
    only = {"key": "metadata.name", "operator": "In", "values": [pool]}
    allocation = given(*devices, pool=pool) | {
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]}
    }
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    return claim(f"{pod_name}-x", claim_spec(exactly(1)), pod_name, allocation, annotations=annotations)


def beside_plugin(amount: int) -> dict[str, Node]:
    """The nodes n, and m, where a device plugin offers so many."""
    body = {"metadata": {"name": "m"}, "status": {"allocatable": {RESOURCE: str(amount)} if amount else {}}}
    return {**nodes("n"), "m": msgspec.convert(body, Node)}


def capacity_of(
    supplied: Supply, waiting: Pod, *there: Pod, others: tuple[Pod, ...] = (), plugin: int = 0
) -> dict[str, int]:
    """How many such pods the nodes n (devices) and m (a device plugin, where plugin says so) take."""
    names = beside_plugin(plugin)
    found = needs([waiting, *others], there, names, supplied, 16)
    own = {"n": {}, "m": {RESOURCE: plugin} if plugin else {}}
    infos = [found.node(NodeInfo(name, allocatable={"pods": 20, **own[name]})) for name in names]
    usage = [(each.spec.node_name, found.usage(each, convert.usage_of(each))) for each in there]
    kind = found.pod_class(waiting, convert.pod_class_of(waiting))
    assert not kind.problem
    state = Snapshot.build(infos, usage).nodes
    return {
        name: 0 if capacity.reason_against_node(kind, each) else capacity.count_slots(kind, each).pods
        for name, each in state.items()
    }


@pytest.mark.promise("R133")
def test_a_resource_that_a_class_stands_for_is_counted_in_devices() -> None:
    assert capacity_of(supply(gpus("n", 8), classes=(CLASS,)), asking("p", 2)) == {"n": 4, "m": 0}


def test_it_combines_with_claims_on_the_same_devices() -> None:
    spec = claim_spec(exactly(3))
    claimed = claim("held", spec, given=given("g0", "g1", "g2", pool="n"))
    supplied = supply(gpus("n", 8), classes=(CLASS,), claims=(claimed, claim("c", spec)))
    assert capacity_of(supplied, asking("p", 1)) == {"n": 5, "m": 0}
    sent = pod("q", "c", node="n")
    assert capacity_of(supplied, asking("p", 1), sent) == {"n": 2, "m": 0}


def test_a_pod_that_runs_takes_the_devices_of_its_claim_once() -> None:
    runs = asking("r", 2, node="n")
    supplied = supply(gpus("n", 8), classes=(CLASS,), claims=(made("r", "g0", "g1"),))
    assert capacity_of(supplied, asking("p", 2), runs) == {"n": 3, "m": 0}


@pytest.mark.parametrize("namespace", ["demo", "other"])
def test_a_claim_that_a_tenant_wrote_for_another_s_pod_is_not_kube_scheduler_s(namespace: str) -> None:
    runs, real = asking("r", 2, node="n"), made("r", "g0", "g1")
    about = msgspec.structs.replace(real.metadata, name="z", namespace=namespace)
    forged = ResourceClaim(about, real.spec)
    supplied = supply(gpus("n", 8), classes=(CLASS,))
    claims = {f"{each.metadata.namespace}/{each.metadata.name}": each for each in (real, forged)}
    supplied.update([gpus("n", 8)], supplied.classes, claims, {})
    assert capacity_of(supplied, asking("p", 2), runs) == {"n": 3, "m": 0}


def test_a_pod_that_was_sent_takes_devices_while_its_claim_is_not_made() -> None:
    supplied = supply(gpus("n", 8), classes=(CLASS,))
    assert capacity_of(supplied, asking("p", 2), asking("r", 2, node="n")) == {"n": 3, "m": 0}


@pytest.mark.promise("R133")
def test_a_node_whose_device_plugin_offers_the_resource_counts_as_ever() -> None:
    supplied = supply(gpus("n", 8), classes=(CLASS,))
    runs = asking("r", 1, node="m")
    assert capacity_of(supplied, asking("p", 2), runs, plugin=4) == {"n": 4, "m": 1}


def test_a_pod_with_a_claim_is_not_placed_where_a_device_plugin_offers_the_resource() -> None:
    supplied = supply(gpus("n", 8), classes=(CLASS,), claims=(claim("c", claim_spec(exactly(2))),))
    both = asking("q", 2), pod("p", "c")
    assert capacity_of(supplied, both[1], others=(both[0],), plugin=4) == {"n": 4, "m": 0}
    assert capacity_of(supplied, both[0], others=(both[1],), plugin=4) == {"n": 4, "m": 2}


def test_a_pod_with_a_claim_and_such_a_resource_gets_both() -> None:
    supplied = supply(gpus("n", 8), classes=(CLASS,), claims=(claim("c", claim_spec(exactly(2))),))
    both = asking("p", 1, resourceClaims=[{"name": "c", "resourceClaimName": "c"}])
    assert capacity_of(supplied, both)["n"] == 2


def test_more_devices_than_a_claim_may_have_are_refused() -> None:
    supplied = supply(gpus("n", 40), classes=(CLASS,))
    waiting = asking("p", 33)
    kind = needs([waiting], [], nodes("n"), supplied, 16).pod_class(waiting, convert.pod_class_of(waiting))
    assert kind.problem == "for its extended resources it asks for 33 devices; a pod gets at most 32"


@pytest.mark.parametrize(
    ("amount", "problem"),
    [(40, ""), (1, ""), (1, "the devices have not been read yet")],
    ids=["more devices than a claim may have", "without CEL", "unread"],
)
def test_pods_whose_claim_is_not_modelled_are_placed_where_a_device_plugin_offers_the_resource(
    monkeypatch: pytest.MonkeyPatch, amount: int, problem: str
) -> None:
    monkeypatch.setattr("webhook.devices.needs.has_cel", lambda: amount > 1)
    supplied = supply(gpus("n", 80), classes=(CLASS,))
    supplied.problem = problem
    modelled = asking("q", 2)
    assert capacity_of(supplied, asking("p", amount), others=(modelled,), plugin=80)["n"] == 0
    assert capacity_of(supplied, asking("p", amount), others=(modelled,), plugin=80)["m"] == min(
        20, 80 // amount
    )


def test_claims_beyond_the_most_are_placed_where_a_device_plugin_offers_the_resource() -> None:
    supplied, names = supply(gpus("n", 8), classes=(CLASS,)), beside_plugin(8)
    waiting = [asking(f"p{amount}", amount) for amount in (1, 2, 3)]
    found = needs(waiting, [], names, supplied, 2)
    kinds = [found.pod_class(each, convert.pod_class_of(each)) for each in waiting]
    assert [each.problem for each in kinds] == ["", "", ""]
    state = Snapshot.build([found.node(NodeInfo("n", allocatable={"pods": 20}))], ()).nodes["n"]
    assert [capacity.count_slots(each, state).pods for each in kinds] == [8, 4, 0]


def test_a_claim_that_its_author_wrote_is_modelled_beside_one_that_is_not() -> None:
    spec = claim_spec(exactly(2))
    supplied = supply(gpus("m", 8), classes=(CLASS,), claims=(claim("c", spec),))
    both = asking("p", 40, resourceClaims=[{"name": "c", "resourceClaimName": "c"}])
    assert capacity_of(supplied, both, plugin=400) == {"n": 0, "m": 4}


def test_a_claim_of_unknown_devices_refuses_a_pod_wherever_its_extended_resource_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webhook.devices.needs.has_cel", lambda: False)
    supplied = supply(gpus("m", 8), classes=(CLASS,), claims=(claim("c", claim_spec(exactly(2))),))
    both = asking("p", 1, resourceClaims=[{"name": "c", "resourceClaimName": "c"}])
    kind = needs([both], [], beside_plugin(8), supplied, 16).pod_class(both, convert.pod_class_of(both))
    assert "cel-expr-python is not installed" in kind.problem


@pytest.mark.parametrize(
    ("waiting", "requests"),
    [
        (asking("p", 2), [("container-0-request-0", 2)]),
        (asking("p", 2, 0, 3), [("container-0-request-0", 2), ("container-2-request-0", 3)]),
        (asking("p", 2, init=(first(2),)), [("container-1-request-0", 2)]),
        (asking("p", 2, init=(first(5),)), [("container-0-request-0", 3), ("container-1-request-0", 2)]),
        (
            asking("p", 2, init=(first(3), first(5))),
            [("container-1-request-0", 3), ("container-2-request-0", 2)],
        ),
        (
            asking("p", 2, init=(first(4, restartPolicy="Always"), first(3))),
            [("container-0-request-0", 4), ("container-1-request-0", 1), ("container-2-request-0", 2)],
        ),
    ],
    ids=["one", "two containers", "init fits in", "init asks for more", "the largest init", "a sidecar"],
)
def test_the_claim_asks_for_what_kube_scheduler_would_write(
    waiting: Pod, requests: list[tuple[str, int]]
) -> None:
    expected = tuple(DeviceAmount(name, RESOURCE, "gpu", count) for name, count in requests)
    assert amounts_of(waiting, {RESOURCE: "gpu"}) == expected


def test_a_claim_that_asks_for_nothing_is_readable() -> None:
    spec = {"devices": {"requests": None}}
    supplied = supply(gpus("n", 8), classes=(CLASS,), claims=(claim("x", spec, "r"),))
    assert capacity_of(supplied, asking("p", 2)) == {"n": 4, "m": 0}


def test_of_several_classes_for_a_resource_the_newest_stands_for_it() -> None:
    older, newer = device_class("a", RESOURCE), device_class("b", RESOURCE, "2026-02-01T00:00:00Z")
    assert backing([older, newer])[RESOURCE] == "b"
    assert backing([device_class("d", RESOURCE), device_class("c", RESOURCE)])[RESOURCE] == "c"
    assert backing([older])["deviceclass.resource.kubernetes.io/a"] == "a"
    assert RESOURCE not in backing([device_class("a")])


def test_a_pod_that_asks_for_no_such_resource_is_none_of_it() -> None:
    supplied = supply(gpus("n", 8))
    waiting = asking("p", 2)
    kind = needs([waiting], [], nodes("n"), supplied, 16).pod_class(waiting, convert.pod_class_of(waiting))
    assert kind == convert.pod_class_of(waiting)
    assert not needs([], [waiting], nodes("n"), supplied, 16).usage(
        waiting, Usage({"pods": 1})
    ).requests.keys() - {"pods"}
