"""Quantities and pod requests, counted as the API server and kube-scheduler count them."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from labeler.contract.quantities import QuantityError, in_units, parse
from webhook.kube import containers, objects
from webhook.scheduling import convert
from webhook.scheduling.nodes import node_of
from webhook.scheduling.requests import ContainerAmounts, pod_requests

GPU = "nvidia.com/gpu"

QUANTITIES = [
    ("500m", 500),
    ("2", 2000),
    (2, 2000),
    (0.5, 500),
    ("1.5", 1500),
    (".5", 500),
    ("1.", 1000),
    ("100u", 1),
    ("1n", 1),
    ("1500u", 2),
    ("1k", 10**6),
    ("1Ki", 1024 * 1000),
    ("1Gi", 2**30 * 1000),
    ("1E", 10**21),
    ("1Ei", 2**60 * 1000),
    ("-1.5Ei", -3 * 2**59 * 1000),
    ("1e3", 10**6),
    ("1E3", 10**6),
    ("12e-1", 1200),
    ("-1", -1000),
    ("+1", 1000),
]


@pytest.mark.parametrize(("text", "expected"), QUANTITIES, ids=[str(case[0]) for case in QUANTITIES])
def test_a_quantity_is_exact_in_thousandths_and_rounds_up(text: str | int | float, expected: int) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1x", "1 Gi", "1GiB", "--1", "1e", "Gi", "1K", "1ei", "1Ee"])
def test_what_is_no_quantity_is_an_error_that_quotes_it(text: str) -> None:
    with pytest.raises(QuantityError, match="quantity"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e1002", 10**33),
        ("1e999999999", 10**33),
        ("9" * 5000, 10**33),
        ("-" + "9" * 5000, -(10**33)),
        ("1e-999999999", 1),
        ("0e999999999", 0),
        ("0" * 5000 + "2", 2000),
        ("0.001" + "0" * 5000 + "1", 2),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_quantity_that_no_node_holds_is_capped_and_none_takes_long(text: str, expected: int) -> None:
    assert parse(text) == expected


def test_sums_are_rounded_once_cpu_to_thousandths_and_the_rest_to_units() -> None:
    assert in_units({"cpu": 1, "memory": 1001, "nvidia.com/gpu": 2000}) == {
        "cpu": 1,
        "memory": 2,
        "nvidia.com/gpu": 2,
    }


def container(cpu: int, sidecar: bool = False, **more: int) -> ContainerAmounts:
    return ContainerAmounts({"cpu": cpu * 1000, **more}, sidecar=sidecar)


CASES = [
    ("containers add up", [container(1), container(2)], [], {}, None, 3000),
    ("the largest init container counts alone", [container(1)], [container(4), container(2)], {}, None, 4000),
    ("a sidecar adds to the containers", [container(1)], [container(2, True)], {}, None, 3000),
    (
        "an init container runs beside earlier sidecars",
        [container(1)],
        [container(2, True), container(4)],
        {},
        None,
        6000,
    ),
    ("and not beside later ones", [container(1)], [container(4), container(2, True)], {}, None, 4000),
    ("overhead comes on top", [container(1)], [], {"cpu": 250}, None, 1250),
    (
        "the pod's own requests win",
        [container(1)],
        [container(9)],
        {"cpu": 500},
        ContainerAmounts({"cpu": 2000}),
        2500,
    ),
    ("the pod's own limit does not", [container(1)], [], {}, ContainerAmounts({}, {"cpu": 9000}), 1000),
    ("limits stand in for requests", [ContainerAmounts({}, {"cpu": 3000})], [], {}, None, 3000),
]


@pytest.mark.parametrize(
    ("containers", "init", "overhead", "pod_level", "cpu"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_requests_count_as_in_kube_scheduler(
    containers: list[ContainerAmounts],
    init: list[ContainerAmounts],
    overhead: dict[str, int],
    pod_level: ContainerAmounts | None,
    cpu: int,
) -> None:
    assert pod_requests(containers, init, overhead, pod_level) == {"cpu": cpu, "pods": 1}


def resizing(kind: str, requests: str, actual: str, allocated: str = "", reason: str = "") -> objects.Pod:
    """A pod with a GPU whose container (or sidecar, or the pod as a whole) is resized so."""
    status: dict[str, Any] = {"resources": {"requests": {"cpu": actual}}}
    if allocated:
        status["allocatedResources"] = {"cpu": allocated}
    resources = {"requests": {"cpu": requests}}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    plain = {"name": "gpu", "resources": {"requests": {GPU: "1"}}}
    bodies: dict[str, Any] = {
        "containers": {
            "spec": {"containers": [plain, {"name": "c", "resources": resources}]},
            "status": {"containerStatuses": [{"name": "c", **status}]},
        },
        "sidecars": {
            "spec": {
                "containers": [plain],
                "initContainers": [{"name": "c", "resources": resources, "restartPolicy": "Always"}],
            },
            "status": {"initContainerStatuses": [{"name": "c", **status}]},
        },
        "pod": {"spec": {"containers": [plain], "resources": resources}, "status": status},
    }
    body = bodies[kind]
    metadata = {"name": "p", "namespace": "n", "uid": "u"}
    body = {"metadata": metadata, **body, "status": {**body["status"], "conditions": conditions}}
    return msgspec.json.decode(msgspec.json.encode(body), type=objects.Pod)


@pytest.mark.parametrize("kind", ["containers", "sidecars", "pod"])
@pytest.mark.parametrize(
    ("state", "cpu"),
    [
        pytest.param(("1", "90", "90"), 90_000, id="it shrinks and has not yet"),
        pytest.param(("1", "1", "90"), 90_000, id="more is set aside than it has"),
        pytest.param(("90", "1", "1"), 90_000, id="it grows and has not yet"),
        pytest.param(("90", "1", "1", "Deferred"), 90_000, id="it grows once there is capacity"),
        pytest.param(("90", "1", "2", "Infeasible"), 2_000, id="it never grows"),
        pytest.param(("1", "4", "", ""), 4_000, id="the kubelet does not say what is set aside"),
    ],
)
def test_of_a_pod_that_is_resized_the_most_counts(kind: str, state: tuple[str, ...], cpu: int) -> None:
    usage = convert.usage_of(resizing(kind, *state))
    assert usage.requests == {"cpu": cpu, GPU: 1, "pods": 1}


def test_an_init_container_that_ends_is_not_resized() -> None:
    pod = resizing("sidecars", "1", "90")
    (init,) = pod.spec.init_containers
    spec = replace(pod.spec, init_containers=[replace(init, restart_policy=None)])
    assert convert.usage_of(replace(pod, spec=spec)).requests == {"cpu": 1000, GPU: 1, "pods": 1}


def test_the_pod_s_own_requests_never_replace_gpus() -> None:
    pod_level = ContainerAmounts({"nvidia.com/gpu": 0})
    gpu = ContainerAmounts({"nvidia.com/gpu": 8000})
    assert pod_requests([gpu], pod_level=pod_level)["nvidia.com/gpu"] == 8


POD = objects.Pod(
    metadata=objects.PodMetadata(name="p", namespace="n"),
    spec=objects.PodSpec(
        node_name="x",
        containers=[containers.Container(resources=containers.Resources(requests={"cpu": "100m"}))],
    ),
)
PHASES = [
    ("Pending", True),
    ("Running", True),
    ("", True),
    ("Unknown", True),
    ("Succeeded", False),
    ("Failed", False),
]


@pytest.mark.parametrize(("phase", "expected"), PHASES, ids=[case[0] or "none" for case in PHASES])
def test_a_bound_pod_uses_capacity_until_it_has_finished(phase: str, expected: bool) -> None:
    pod = objects.Pod(metadata=POD.metadata, spec=POD.spec, status=objects.PodStatus(phase=phase))
    assert convert.occupies(pod) is expected


def test_a_terminating_pod_still_uses_capacity() -> None:
    metadata = objects.PodMetadata(name="p", deletion_timestamp="2026-01-01T00:00:00Z")
    assert convert.occupies(objects.Pod(metadata=metadata, spec=POD.spec))


def test_an_unbound_pod_takes_none() -> None:
    assert not convert.occupies(objects.Pod(metadata=POD.metadata))


def test_a_pod_with_an_unreadable_request_has_no_place_and_a_reason() -> None:
    resources = containers.Resources(requests={"cpu": "much"})
    spec = objects.PodSpec(containers=[containers.Container(resources=resources)])
    problem = convert.pod_class_of(objects.Pod(metadata=POD.metadata, spec=spec)).problem
    assert "resource cpu: 'much' is not a quantity" in problem


def test_a_node_whose_labels_contradict_takes_no_pods_and_has_a_reason() -> None:
    metadata = objects.NodeMetadata(name="n", labels={"gpu.intel.com/gpu-numbers": "0.0"})
    assert "names a card twice" in node_of(objects.Node(metadata=metadata)).problem
