"""Every pod shape through the real API server: what it would store is asserted to the last field."""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.admission import shapes
from tests.admission.harness import Webhook, create, install, install_classes, running
from tests.admission.shapes import SHAPES, Shape
from tests.support import create_namespace, exists
from webhook.kube.client import MERGE_PATCH, ApiError

CLASSES: Final = {
    "gpu-low-priority": (1, "PreemptLowerPriority"),
    "gpu-medium-priority": (10, "PreemptLowerPriority"),
    "gpu-high-priority": (100, "PreemptLowerPriority"),
    "gpu-never-priority": (7, "Never"),
    "house-class": (77, "PreemptLowerPriority"),
}
WORKLOAD: Final = {"labelSelector": "app=w"}
"""The pods of the controllers below."""


@dataclass(frozen=True)
class Installed:
    """A webhook with the table's policy. spaces: the cluster's names of the table's namespaces."""

    cluster: Cluster
    webhook: Webhook
    plain: str
    spaces: dict[str, str]


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Called by the API server; the only node has no GPU, so pods stay as created."""
    cluster = module_cluster
    nodes.register(cluster.api(), nodes.grid(nodes.Shape(nodes=1, blocks=1, subblocks=1, gpus=0)))
    install_classes(cluster)
    for name in ("gpu-never-priority", "house-class"):
        value, policy = CLASSES[name]
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
        cluster.api().request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body=body)
    opted_in = {keys.INJECTION_LABEL: keys.INJECTION_ENABLED}
    spaces = {
        name: create_namespace(cluster, opted_in)
        for name in (shapes.OPEN, shapes.CAPPED, shapes.MODELLED, shapes.INTEL)
    }
    folder = tmp_path_factory.mktemp("webhook")
    (folder / "configuration.yaml").write_text(shapes.POLICY.format(**spaces))
    with running(folder, cluster) as webhook:
        webhook.wait(lambda: webhook.metric("topogate_priority_classes") == 7, "the classes")
        install(cluster, webhook, failurePolicy="Fail", timeoutSeconds=10)
        yield Installed(cluster, webhook, create_namespace(cluster), spaces)


def comparable(pod: dict[str, Any]) -> dict[str, Any]:
    """A stored pod without what differs between any two: identity, times, generated names, status."""
    text = json.dumps({"metadata": pod["metadata"], "spec": pod["spec"]})
    text = re.sub(r"kube-api-access-[a-z0-9]{5}", "kube-api-access", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text)
    made: dict[str, Any] = json.loads(text)
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace"):
        made["metadata"].pop(key, None)
    if made["metadata"].get("generateName"):
        made["metadata"].pop("name")
    return made


def expected(shape: Shape, plain: dict[str, Any]) -> dict[str, Any]:
    """What must be stored, computed from the same pod without the webhook."""
    made = copy.deepcopy(comparable(plain))
    spec = made["spec"]
    if shape.gated:
        spec["schedulingGates"] = [*spec.get("schedulingGates", []), {"name": keys.GATE}]
    if shape.selector:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **shape.selector}
    if shape.tier:
        spec["priorityClassName"] = shape.tier
        spec["priority"], spec["preemptionPolicy"] = CLASSES[shape.tier]
    return made


def complaint(installed: Installed, shape: Shape) -> str:
    """What is wrong with the answer to a shape, "" if nothing is."""
    api = installed.cluster.api()
    plain = create(api, installed.plain, shape.pod, dry_run=True)
    try:
        stored = create(api, installed.spaces[shape.namespace], shape.pod, dry_run=True)
    except ApiError as error:
        words = ('admission webhook "pods.topogate.io" denied the request', *shape.denied)
        as_wanted = shape.denied and error.status == 403 and all(each in error.message for each in words)
        return "" if as_wanted else f"refused with {error.status}: {error.message}"
    if shape.denied:
        return "not refused"
    found, wanted = comparable(stored), expected(shape, plain)
    return "" if found == wanted else f"stored {json.dumps(found)}, wanted {json.dumps(wanted)}"


@pytest.mark.promise("R1", "R39", "O58", "R242", "O243")
def test_the_api_server_stores_what_is_wanted_and_nothing_else(installed: Installed) -> None:
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)
    complaints = {shape.name: complaint(installed, shape) for shape in SHAPES}
    assert {name: words for name, words in complaints.items() if words} == {}


@pytest.mark.parametrize("namespace", ["kube-system", "topogate-system"])
def test_a_namespace_that_must_never_be_touched_is_not_even_asked_about(
    namespace: str, installed: Installed
) -> None:
    cluster, webhook = installed.cluster, installed.webhook
    api, path = cluster.api(), f"/api/v1/namespaces/{namespace}"
    if not exists(api, path):
        cluster.make_namespace(namespace)

    def label(value: str | None) -> None:
        body = {"metadata": {"labels": {keys.INJECTION_LABEL: value}}}
        api.request("PATCH", path, body=body, content_type=MERGE_PATCH)

    label(keys.INJECTION_ENABLED)
    before = webhook.metric("topogate_admission_seconds_count")
    try:
        assert "schedulingGates" not in create(api, namespace, shapes.pod(), dry_run=True)["spec"]
        assert webhook.metric("topogate_admission_seconds_count") == before
    finally:
        label(None)


_TEMPLATE: Final = {
    "metadata": {"labels": {"app": "w"}, "annotations": {keys.PRIORITY_ANNOTATION: "high"}},
    "spec": shapes.pod()["spec"],
}
_WORKLOADS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "Deployment": (
        "/apis/apps/v1/namespaces/{}/deployments",
        {"replicas": 2, "selector": {"matchLabels": {"app": "w"}}, "template": _TEMPLATE},
    ),
    "StatefulSet": (
        "/apis/apps/v1/namespaces/{}/statefulsets",
        {
            "replicas": 2,
            "serviceName": "w",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "w"}},
            "template": _TEMPLATE,
        },
    ),
    "indexed Job": (
        "/apis/batch/v1/namespaces/{}/jobs",
        {
            "completions": 2,
            "parallelism": 2,
            "completionMode": "Indexed",
            "template": {**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}},
        },
    ),
    "DaemonSet": (
        "/apis/apps/v1/namespaces/{}/daemonsets",
        {"selector": {"matchLabels": {"app": "w"}}, "template": _TEMPLATE},
    ),
}


@pytest.mark.promise("R39")
def test_pods_of_a_real_controller_are_gated_except_those_of_a_daemonset(installed: Installed) -> None:
    api, found = installed.cluster.api(), dict[str, list[dict[str, Any]]]()
    spaces = (installed.plain, installed.spaces[shapes.OPEN])
    for namespace in spaces:
        for path, spec in _WORKLOADS.values():
            api.request("POST", path.format(namespace), body={"metadata": {"name": "w"}, "spec": spec})

    def are_there() -> bool:
        for namespace in spaces:
            found[namespace] = api.json("GET", f"/api/v1/namespaces/{namespace}/pods", query=WORKLOAD)[
                "items"
            ]
        return all(len(each) == 2 * 3 + 1 for each in found.values())

    try:
        installed.cluster.wait_for("two pods of each controller, and one of the DaemonSet", are_there)
    finally:
        for namespace in spaces:
            for path, _ in _WORKLOADS.values():
                api.request(
                    "DELETE", f"{path.format(namespace)}/w", query={"propagationPolicy": "Background"}
                )

    def wanted(pod: dict[str, Any]) -> dict[str, Any]:
        gated = pod["metadata"]["ownerReferences"][0]["kind"] != "DaemonSet"
        return expected(Shape("", {}, gated=gated, tier="gpu-high-priority" if gated else ""), pod)

    key = json.dumps
    want = sorted(map(wanted, found[spaces[0]]), key=key)
    assert sorted(map(comparable, found[spaces[1]]), key=key) == want
