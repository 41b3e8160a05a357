"""A sweeper at work in this process, and what it is given to do on the real API server."""

from collections.abc import Callable
from typing import Any

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import wait_for_pods
from tests.sweeper.mortal import SILENT, MortalApi, living
from webhook.configuration.settings import Settings
from webhook.kube.client import Api
from webhook.policy.values import Policy
from webhook.sweeper.context import Announcer

Pods = list[dict[str, Any]]


GPU = "nvidia.com/gpu"


def create_priority_classes(cluster: Cluster) -> None:
    """Make the classes "low" and "high"."""
    for name, value in (("low", 1), ("high", 100)):
        cluster.api().request(
            "POST",
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            body={"metadata": {"name": name}, "value": value},
        )


def template(
    gpus: int, *, gated: bool = True, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: str(gpus)}}}
    gates = {"schedulingGates": [{"name": keys.GATE}]} if gated else {}
    return {
        "metadata": {"annotations": annotations or {}},
        "spec": {"containers": [container], **gates, **spec},
    }


def create_pod(api: Api, namespace: str, name: str, body: dict[str, Any]) -> None:
    pod = {**body, "metadata": {**body["metadata"], "name": name}}
    api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=pod)


def create_job(
    api: Api, namespace: str, name: str, count: int, body: dict[str, Any], **metadata: Any
) -> None:
    pod = {**body, "spec": {**body["spec"], "restartPolicy": "Never"}}
    job = {
        "metadata": {"name": name, **metadata},
        "spec": {"completionMode": "Indexed", "parallelism": count, "completions": count, "template": pod},
    }
    api.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", body=job)


def create_large_behind_blocker(two_nodes: Cluster, namespace: str) -> None:
    """Make the gang "large", which needs both nodes, once the pod "blocker" has one of them."""
    api = two_nodes.api()
    create_pod(api, namespace, "blocker", template(8, gated=False))
    wait_for_pods(two_nodes, namespace, lambda pods: run_all(pods, "blocker", 1), "the pod in the way")
    create_job(api, namespace, "large", 2, template(8))


def sweep(
    cluster: Cluster,
    namespace: str,
    settings: Settings,
    until: Callable[[Pods], bool],
    what: str,
    seconds: float = 120,
    policy: Policy | None = None,
    announcer: Announcer = SILENT,
) -> Pods:
    """Let a sweeper work until the pods of the namespace are as wanted."""
    api = MortalApi.connect(cluster.kubeconfig, user_agent="test-sweeper")
    assert isinstance(api, MortalApi)
    api.prepare(None)
    pods: Pods = []

    with living(api, settings, policy, announcer) as one_pass:

        def holds() -> bool:
            one_pass()
            pods[:] = cluster.api().json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
            return until(pods)

        cluster.wait_for(what, holds, seconds)
    return pods


def named(pods: Pods, prefix: str) -> Pods:
    return [pod for pod in pods if pod["metadata"]["name"].startswith(prefix)]


def run_all(pods: Pods, prefix: str, count: int) -> bool:
    return [pod["status"]["phase"] for pod in named(pods, prefix)] == ["Running"] * count


def is_gated(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("schedulingGates"))
