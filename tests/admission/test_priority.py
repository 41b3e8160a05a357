"""Priority against the real admission chain: reinvocation, other webhooks, default and missing classes."""

from collections.abc import Iterator
from typing import Any

import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.admission.harness import Webhook, create, gpu_pod
from tests.admission.neighbour import Neighbour
from tests.support import delete, exists
from webhook.kube.client import ApiError

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
HIGH = {keys.PRIORITY_ANNOTATION: "high"}
pytestmark = pytest.mark.usefixtures("called_webhook")


def triple(pod: dict[str, Any]) -> tuple[Any, Any, Any]:
    spec = pod["spec"]
    return spec.get("priorityClassName"), spec.get("priority"), spec.get("preemptionPolicy")


def gates(pod: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


@pytest.fixture
def default_class(module_cluster: Cluster, called_webhook: Webhook) -> Iterator[str]:
    """A class that the API server gives to every pod without one."""
    api = module_cluster.api()
    body = {"metadata": {"name": "house-default"}, "value": 5, "globalDefault": True}
    api.request("POST", CLASSES, body=body)
    called_webhook.wait(lambda: called_webhook.metric("topogate_priority_classes") == 6, "the new class")
    module_cluster.wait_for(
        "the default to hold",
        lambda: "priorityClassName" in create(api, "default", gpu_pod())["spec"],
    )
    yield "house-default"
    delete(api, f"{CLASSES}/house-default")
    called_webhook.wait(lambda: called_webhook.metric("topogate_priority_classes") == 5, "the class to go")
    module_cluster.wait_for(
        "the default to be gone",
        lambda: "priorityClassName" not in create(api, "default", gpu_pod())["spec"],
    )


def add_a_gpu_container(other: Neighbour) -> None:
    added = {"name": "added", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    other.behave = lambda pod: (
        [{"op": "add", "path": "/spec/containers/-", "value": added}]
        if len(pod["spec"]["containers"]) == 1
        else []
    )


@pytest.mark.promise("O219")
def test_a_gpu_container_that_another_webhook_adds_to_a_pod_with_a_model_is_seen(
    module_cluster: Cluster, opted_in: str, other: Neighbour
) -> None:
    add_a_gpu_container(other)
    metadata = {"name": "later", "annotations": HIGH}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    assert gates(create(module_cluster.api(), opted_in, pod)) == [keys.GATE]


@pytest.mark.promise("O219")
def test_a_gpu_container_that_another_webhook_adds_is_seen_if_that_webhook_comes_first(
    module_cluster: Cluster, opted_in: str, other: Neighbour
) -> None:
    # The API server asks again only those whom it has asked, and it does not ask us about CPU pods.
    add_a_gpu_container(other)
    pod = {"metadata": {"name": "later"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    wanted = [keys.GATE] if other.name < "topogate" else []
    assert gates(create(module_cluster.api(), opted_in, pod)) == wanted


@pytest.mark.promise("R2")
def test_a_tier_replaces_the_clusters_default_class_whole(
    module_cluster: Cluster, opted_in: str, default_class: str
) -> None:
    stored = create(module_cluster.api(), opted_in, gpu_pod(annotations=HIGH))
    assert triple(stored) == ("gpu-high-priority", 100, "PreemptLowerPriority")


def test_without_a_tier_the_clusters_default_class_stays(
    module_cluster: Cluster, opted_in: str, default_class: str
) -> None:
    stored = create(module_cluster.api(), opted_in, gpu_pod())
    assert triple(stored) == (default_class, 5, "PreemptLowerPriority")
    assert gates(stored) == [keys.GATE]


def test_a_recreated_class_with_another_value_is_injected_with_that_value(
    module_cluster: Cluster, called_webhook: Webhook, opted_in: str
) -> None:
    api = module_cluster.api()
    api.request("POST", CLASSES, body={"metadata": {"name": "gpu-x"}, "value": 3})
    before = called_webhook.configuration_file.read_text()
    called_webhook.configure(before.replace("gpu-high-priority", "gpu-x"))
    called_webhook.wait_for_generation(2)
    try:
        assert triple(create(api, opted_in, gpu_pod(annotations=HIGH)))[:2] == ("gpu-x", 3)
        delete(api, f"{CLASSES}/gpu-x")
        module_cluster.wait_for("the class to go", lambda: not exists(api, f"{CLASSES}/gpu-x"))
        api.request("POST", CLASSES, body={"metadata": {"name": "gpu-x"}, "value": 4})

        def is_new() -> bool:
            try:
                return triple(create(api, opted_in, gpu_pod(annotations=HIGH)))[:2] == ("gpu-x", 4)
            except ApiError as error:  # for a moment the API server or we know the old value
                if error.status != 403:
                    raise
                return False

        module_cluster.wait_for("the new value", is_new)
    finally:
        called_webhook.configure(before)
        called_webhook.wait_for_generation(3)
        delete(api, f"{CLASSES}/gpu-x")


@pytest.mark.promise("D6")
def test_a_dry_run_answers_with_the_mutated_pod_and_stores_nothing(
    module_cluster: Cluster, opted_in: str
) -> None:
    api = module_cluster.api()
    path = f"/api/v1/namespaces/{opted_in}/pods"
    seen = api.json("POST", path, body=gpu_pod("dry", annotations=HIGH), query={"dryRun": "All"})
    assert gates(seen) == [keys.GATE]
    assert triple(seen) == ("gpu-high-priority", 100, "PreemptLowerPriority")
    assert not exists(api, f"{path}/dry")
