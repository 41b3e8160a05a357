"""What a real kubelet says of pods that it does not admit is what the sweeper reads of them."""

import time
from typing import Any

import msgspec
import pytest

from hack.local import node
from hack.local.cluster import Cluster
from tests.support import create_namespace
from webhook.kube.objects import Pod
from webhook.sweeper.decide.kubelet_refusals import REFUSED, refused_at

TOO_MUCH = {"resources": {"requests": {"cpu": "1000"}}}
UNSAFE = {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "8192"}]}}
OTHER_NODE = {"nodeSelector": {"nobody": "has"}}
OTHER_SYSTEM = {"os": {"name": "windows"}}


@pytest.mark.parametrize(
    ("reason", "container", "spec"),
    [
        ("OutOfcpu", TOO_MUCH, {}),
        ("SysctlForbidden", {}, UNSAFE),
        ("NodeAffinity", {}, OTHER_NODE),
        ("PodOSNotSupported", {}, OTHER_SYSTEM),
    ],
)
def test_a_pod_that_the_kubelet_refuses_is_seen_as_refused(
    real_cluster: Cluster, reason: str, container: dict[str, Any], spec: dict[str, Any]
) -> None:
    namespace, api = create_namespace(real_cluster), real_cluster.api()
    made = {"name": "c", "image": "x", **container}
    body = {"metadata": {"name": "p"}, "spec": {"nodeName": node.NAME, "containers": [made], **spec}}
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.request("POST", path, body=body)
    found: list[Pod] = []

    def has_failed() -> bool:
        found[:] = [msgspec.json.decode(api.request("GET", f"{path}/p"), type=Pod)]
        return found[0].status.phase == "Failed"

    real_cluster.wait_for("the kubelet's refusal", has_failed)
    (pod,) = found
    assert pod.status.message.startswith(REFUSED)
    assert refused_at(pod, time.time()) is not None
    assert (pod.spec.node_name, pod.status.reason) == (node.NAME, reason)
