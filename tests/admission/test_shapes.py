"""Every pod shape through the real API server: what is stored is asserted to the last field."""

import copy
import json
import os
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.admission import shapes
from tests.admission.harness import Webhook, create, delete_pods, install, install_classes, running
from tests.admission.shapes import SHAPES, Shape
from tests.support import exists
from webhook.kube.client import Api, ApiError

PLAIN: Final = f"plain-{os.getpid()}"
CLASSES: Final = {
    "gpu-low-priority": (1, "PreemptLowerPriority"),
    "gpu-medium-priority": (10, "PreemptLowerPriority"),
    "gpu-high-priority": (100, "PreemptLowerPriority"),
    "gpu-never-priority": (7, "Never"),
    "house-class": (77, "PreemptLowerPriority"),
}


def name_of(namespace: str) -> str:
    """The cluster's name of a namespace of the table."""
    return f"{namespace}-{os.getpid()}"


def make_class(api: Api, name: str, value: int, policy: str, **more: Any) -> None:
    body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy, **more}
    api.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body=body)


@pytest.fixture(scope="module")
def installation(
    module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, Webhook]]:
    """A webhook with the table's policy; kube-scheduler is paused, so pods stay as created."""
    cluster = module_cluster
    nodes.register(cluster.api(), nodes.grid(nodes.Shape(nodes=1, blocks=1, subblocks=1)))
    install_classes(cluster)
    for name in ("gpu-never-priority", "house-class"):
        make_class(cluster.api(), name, *CLASSES[name])
    cluster.make_namespace(PLAIN)
    spaces = (shapes.OPEN, shapes.CAPPED, shapes.MODELLED, shapes.INTEL)
    for namespace in spaces:
        cluster.make_namespace(name_of(namespace), {keys.INJECTION_LABEL: keys.INJECTION_ENABLED})
    folder = tmp_path_factory.mktemp("webhook")
    policy = shapes.POLICY.format(**{namespace: name_of(namespace) for namespace in spaces})
    (folder / "policy.yaml").write_text(policy)
    with cluster.paused("kube-scheduler"), running(folder, cluster) as webhook:
        webhook.wait(lambda: webhook.metric("topogate_priority_classes") == 7, "the classes")
        install(cluster, webhook, failurePolicy="Fail", timeoutSeconds=10)
        yield cluster, webhook
        for name in (PLAIN, *map(name_of, spaces)):
            delete_pods(cluster.api(), name)


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


def test_the_table_holds_at_least_sixty_shapes_with_distinct_names() -> None:
    assert len({shape.name for shape in SHAPES}) == len(SHAPES) >= 60


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_api_server_stores_what_is_wanted_and_nothing_else(
    shape: Shape, installation: tuple[Cluster, Webhook]
) -> None:
    api = installation[0].api()
    plain = create(api, PLAIN, shape.pod)
    if shape.denied:
        with pytest.raises(ApiError) as caught:
            create(api, name_of(shape.namespace), shape.pod)
        assert caught.value.status == 403
        for words in ('admission webhook "pods.topogate.io" denied the request', *shape.denied):
            assert words in caught.value.message
        return
    stored = create(api, name_of(shape.namespace), shape.pod)
    assert comparable(stored) == expected(shape, plain)


@pytest.mark.parametrize("namespace", ["kube-system", "topogate-system"])
def test_a_namespace_that_must_never_be_touched_is_not_even_asked_about(
    namespace: str, installation: tuple[Cluster, Webhook]
) -> None:
    cluster, webhook = installation
    api = cluster.api()
    if not exists(api, f"/api/v1/namespaces/{namespace}"):
        cluster.make_namespace(namespace)
    label = {"metadata": {"labels": {keys.INJECTION_LABEL: keys.INJECTION_ENABLED}}}
    path = f"/api/v1/namespaces/{namespace}"
    api.request("PATCH", path, body=label, content_type="application/merge-patch+json")
    before = webhook.metric("topogate_admission_seconds_count")
    try:
        stored = create(api, namespace, shapes.pod(metadata={"name": "left-alone"}))
        assert "schedulingGates" not in stored["spec"]
        assert webhook.metric("topogate_admission_seconds_count") == before
    finally:
        api.request("DELETE", f"{path}/pods/left-alone", query={"gracePeriodSeconds": "0"})
        label["metadata"]["labels"] = {keys.INJECTION_LABEL: None}  # type: ignore[dict-item]
        api.request("PATCH", path, body=label, content_type="application/merge-patch+json")


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


@pytest.mark.parametrize("kind", _WORKLOADS)
def test_pods_of_a_real_controller_are_gated_except_those_of_a_daemonset(
    kind: str, installation: tuple[Cluster, Webhook]
) -> None:
    cluster = installation[0]
    api = cluster.api()
    path, spec = _WORKLOADS[kind]
    count = 1 if kind == "DaemonSet" else 2
    found: dict[str, list[dict[str, Any]]] = {}
    for namespace in (PLAIN, name_of(shapes.OPEN)):
        where = path.format(namespace)
        api.request("POST", where, body={"metadata": {"name": "w"}, "spec": spec})

        def is_complete(namespace: str = namespace) -> bool:
            pods = f"/api/v1/namespaces/{namespace}/pods"
            found[namespace] = api.json("GET", pods, query={"labelSelector": "app=w"})["items"]
            return len(found[namespace]) == count

        try:
            cluster.wait_for(f"{count} pods of the {kind} in {namespace}", is_complete)
        finally:
            api.request("DELETE", f"{where}/w", query={"propagationPolicy": "Foreground"})
            cluster.wait_for(
                "the pods to be gone",
                lambda namespace=namespace: (
                    not api.json(  # type: ignore[misc]
                        "GET", f"/api/v1/namespaces/{namespace}/pods", query={"labelSelector": "app=w"}
                    )["items"]
                ),
            )
    gated = kind != "DaemonSet"
    shape = Shape(kind, {}, gated=gated, tier="gpu-high-priority" if gated else "")
    key = json.dumps
    want = sorted((expected(shape, pod) for pod in found[PLAIN]), key=key)
    assert sorted((comparable(pod) for pod in found[name_of(shapes.OPEN)]), key=key) == want
