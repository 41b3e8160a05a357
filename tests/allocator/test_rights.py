"""What the API server lets an allocator do, with its manifests and a token bound to its pod."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.local import nodes
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from labeler.allocator.card_report import CardReporter
from labeler.allocator.events import event
from labeler.allocator.pods import NodePods
from labeler.allocator.values import Listing, LocalCard, LocalContainer, LocalPod
from labeler.api import ApiClient, NodeApiError
from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from tests.support import create_namespace

JSON = {"Content-Type": "application/json", "Accept": "application/json"}
ACCOUNT = "/api/v1/namespaces/topogate-allocator/serviceaccounts/allocator"
EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture(scope="module")
def cluster(module_cluster: Cluster) -> Cluster:
    for name in ("gpu", "other"):
        nodes.register(module_cluster.api(), [nodes.SimulatedNode(name, ("b", "s", "h"), False, 0)])
    for file in ("allocator.yaml", "policy.yaml"):
        module_cluster.kubectl("apply", "-f", str(ROOT / "manifests" / "components" / "allocator" / file))
    module_cluster.wait_for(
        "its ServiceAccount",
        lambda: module_cluster.kubectl("get", "--raw", ACCOUNT, check=False).stdout != "",
    )
    label = {"metadata": {"labels": {f"{keys.GPU_VENDOR_COUNT_PREFIX}intel": "2"}}}
    module_cluster.kubectl("patch", "node", "gpu", "-p", json.dumps(label))
    return module_cluster


@pytest.fixture(scope="module")
def client(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> ApiClient:
    """The identity of the allocator's pod on the node gpu, from when on the policy is in force."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        pods = cluster.api().json("GET", "/api/v1/namespaces/topogate-allocator/pods")["items"]
        found[:] = [pod for pod in pods if pod["spec"].get("nodeName")]
        return bool(found)

    cluster.wait_for("the allocator's pod on the node with cards", is_there)
    assert {pod["spec"]["nodeName"] for pod in found} == {"gpu"}
    bound = {key: found[0]["metadata"][key] for key in ("name", "uid")} | {"kind": "Pod", "apiVersion": "v1"}
    client = client_with(cluster, tmp_path_factory.mktemp("token"), bound)

    def in_force() -> bool:
        # The API server takes a policy up some time after it is there. Nothing of this is kept (dryRun).
        try:
            client.call("POST", f"{EVENTS}?dryRun=All", reported(reason="Probe"), JSON)
        except NodeApiError as error:
            if error.status != 422 or "Events about the cards of pods" not in str(error):
                return False
        try:
            patch(client, {"labels": {"probe": "x"}}, dry_run=True)
        except NodeApiError as error:
            return error.status == 422 and "nothing of a Node but its annotations" in str(error)
        return False

    cluster.wait_for("the policy to be in force", in_force)
    return client


def client_with(cluster: Cluster, folder: Path, bound: dict[str, str] | None) -> ApiClient:
    spec: dict[str, Any] = {"expirationSeconds": 3600} | ({"boundObjectRef": bound} if bound else {})
    answer = cluster.api().json("POST", f"{ACCOUNT}/token", body={"spec": spec})
    (folder / "token").write_text(answer["status"]["token"])
    return ApiClient(cluster.server, folder / "token", cluster.certificate_authority)


def reported(**changes: Any) -> bytes:
    body = event(LocalPod("default", "p", "uid"), EventReason.CARDS_REFUSED, "no card", "gpu", 1_700_000_000)
    return json.dumps(body | changes).encode()


def post(client: ApiClient, body: bytes) -> None:
    client.call("POST", EVENTS, body, JSON)


def patch(
    client: ApiClient, metadata: dict[str, Any], node: str = "gpu", dry_run: bool = False, **more: object
) -> None:
    body = json.dumps({"metadata": metadata, **more}).encode()
    headers = JSON | {"Content-Type": "application/merge-patch+json"}
    client.call("PATCH", f"/api/v1/nodes/{node}{'?dryRun=All' if dry_run else ''}", body, headers)


@pytest.mark.promise("S24")
@pytest.mark.kubernetes("1.36")
def test_the_pods_of_its_node_are_read_as_the_kubelet_has_them(cluster: Cluster, client: ApiClient) -> None:
    namespace = create_namespace(cluster)
    annotations = {"gas-container-cards": "|card1", "gas-ts": "1700000000000000000", "other": "x"}
    container = {"image": "none", "resources": {"limits": {keys.I915: "1", "cpu": "100m"}}}
    environment = [
        {"name": "ZE_FLAT_DEVICE_HIERARCHY", "value": "FLAT"},
        {"name": "ZE_FLAT_DEVICE_HIERARCHY", "value": "COMPOSITE"},
    ]
    field_path = {"fieldRef": {"fieldPath": "metadata.name"}}
    for name, node in (("here", "gpu"), ("there", "other")):
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "nodeName": node,
                "initContainers": [
                    container | {"name": "i"},
                    container | {"name": "s", "restartPolicy": "Always"},
                ],
                "containers": [
                    {
                        "name": "a",
                        "image": "none",
                        "env": [{"name": "ZE_FLAT_DEVICE_HIERARCHY", "valueFrom": field_path}],
                    },
                    container | {"name": "b", "env": environment},
                ],
            },
        }
        cluster.api().request("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)
    pods = {pod.key: pod for pod in NodePods(client, "gpu").now()}
    assert (namespace, "there") not in pods
    pod = pods[namespace, "here"]
    assert pod.annotations == {key: annotations[key] for key in ("gas-container-cards", "gas-ts")}
    assert pod.containers == (LocalContainer("a", {}, "?"), LocalContainer("b", {keys.I915: 1}, "COMPOSITE"))
    assert pod.init == (LocalContainer("i", {keys.I915: 1}),)
    assert pod.sidecars == (LocalContainer("s", {keys.I915: 1}),)
    assert not pod.over


@pytest.mark.promise("S24")
@pytest.mark.parametrize(
    ("path", "user"),
    [
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Dgpu", None),
        ("/api/v1/pods", "gpu"),
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Dother", "gpu"),
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Dother", "other"),
        ("/api/v1/pods?fieldSelector=spec.nodeName%3Dgpu&watch=1&timeoutSeconds=1", "gpu"),
        ("/api/v1/nodes/gpu", "gpu"),
    ],
    ids=["as itself", "all pods", "another node's", "as another node", "watching", "something else"],
)
def test_it_reads_the_pods_of_its_own_node_as_that_node_and_nothing_else(
    client: ApiClient, path: str, user: str | None
) -> None:
    headers = JSON | ({"Impersonate-User": f"system:node:{user}"} if user else {})
    with pytest.raises(NodeApiError) as error:
        client.call("GET", path, None, headers)
    assert error.value.status == 403


@pytest.mark.promise("S24")
@pytest.mark.usefixtures("client")
def test_a_token_that_is_bound_to_no_pod_reads_no_pods(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(NodeApiError, match="wants the component allocator-before") as error:
        NodePods(client_with(cluster, tmp_path, None), "gpu").now()
    assert error.value.status == 403


@pytest.mark.promise("S24")
def test_before_kubernetes_1_36_a_component_lets_it_read_pods(cluster: Cluster, tmp_path: Path) -> None:
    """Played by a token that may not act as the node, because it is bound to no pod."""
    folder = ROOT / "manifests" / "components" / "allocator-before-1.36"
    cluster.kubectl("apply", "-f", str(folder / "pods.yaml"))
    pods = NodePods(client_with(cluster, tmp_path, None), "gpu")

    def may_read() -> bool:
        try:
            return len(pods.now()) > 0
        except NodeApiError:
            return False

    cluster.wait_for("the right to list pods", may_read)
    cluster.kubectl("delete", "-f", str(folder / "pods.yaml"))


def test_an_overlay_takes_the_component_and_the_server_accepts_it(cluster: Cluster, tmp_path: Path) -> None:
    def below(path: str) -> str:
        return os.path.relpath(ROOT / "manifests" / path, tmp_path.resolve())

    plan = {"resources": [below("overlays/default")], "components": [below("components/allocator")]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(plan))
    objects = list(yaml.safe_load_all(cluster.kubectl("kustomize", str(tmp_path)).stdout))
    (daemon,) = [each for each in objects if each["metadata"].get("namespace") == "topogate-allocator"
                 and each["kind"] == "DaemonSet"]  # fmt: skip
    container = daemon["spec"]["template"]["spec"]["containers"][0]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    result = cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(daemon))
    assert "daemonset.apps/allocator" in result.stdout


@pytest.mark.promise("O46")
def test_it_may_write_events_about_cards_in_its_own_name(client: ApiClient) -> None:
    post(client, reported())


@pytest.mark.promise("O46")
def test_it_annotates_its_own_node_with_the_cards_it_offers_and_those_used_without_a_plan(
    cluster: Cluster, client: ApiClient
) -> None:
    pod = LocalPod("ns", "p", "uid-p", containers=(LocalContainer("c", {keys.I915: 1}),))

    class Kubelet:
        def now(self) -> Listing:
            return {pod.key: {"c": {keys.I915: ("card1-0",)}}}

        def lists_the_living_alone(self) -> bool:
            return True

    class Server:
        def now(self) -> tuple[LocalPod, ...]:
            return (pod,)

    CardReporter(Kubelet(), Server(), client, "gpu").report([LocalCard(0, keys.I915, ())], 2, serves=True)
    reported = cluster.api().json("GET", "/api/v1/nodes/gpu")["metadata"]["annotations"]
    assert reported[keys.OFFERED_CARDS_ANNOTATION] == f"card0={keys.I915}:2"
    assert reported[keys.UNPLANNED_CARDS_ANNOTATION] == "uid-p=card1"
    assert reported[keys.IDENTIFIES_PODS_ANNOTATION] == "true"


@pytest.mark.promise("O46")
@pytest.mark.parametrize(
    ("node", "metadata", "more", "words"),
    [
        ("other", {"annotations": {keys.OFFERED_CARDS_ANNOTATION: ""}}, {}, 'its own Node, which is "gpu"'),
        (
            "gpu",
            {"annotations": {"labeler.topogate.io/owned-labels": ""}},
            {},
            "under allocator.topogate.io/",
        ),
        ("gpu", {"labels": {keys.GPU_NUMBERS_LABEL: "0"}}, {}, "nothing of a Node but its annotations"),
        ("gpu", {"finalizers": ["a.b/c"]}, {}, "nothing of a Node but its annotations"),
        ("gpu", {}, {"spec": {"unschedulable": True}}, "nothing of a Node but its annotations"),
    ],
    ids=["another node", "another's annotation", "a label", "a finalizer", "the spec"],
)
def test_it_changes_nothing_else_of_nodes(
    client: ApiClient, node: str, metadata: dict[str, Any], more: dict[str, Any], words: str
) -> None:
    with pytest.raises(NodeApiError, match=words) as error:
        patch(client, metadata, node, **more)
    assert error.value.status == 422


@pytest.mark.usefixtures("client")  # the policy is in force
def test_a_token_that_is_bound_to_no_pod_annotates_no_node(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(NodeApiError, match="its own Node"):
        patch(client_with(cluster, tmp_path, None), {"annotations": {keys.OFFERED_CARDS_ANNOTATION: ""}})


@pytest.mark.promise("O46")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source": {"component": "topogate-allocator", "host": "other"}}, "of its own Node"),
        ({"source": {"component": "kubelet", "host": "gpu"}}, "its own name"),
        ({"reason": "Killing"}, "Events about the cards of pods"),
        ({"involvedObject": {"kind": "Node", "name": "gpu", "namespace": "default"}}, "the cards of pods"),
    ],
)
def test_it_may_write_no_other_events(client: ApiClient, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(NodeApiError, match=words) as error:
        post(client, reported(**changes))
    assert error.value.status == 422


@pytest.mark.usefixtures("client")  # the policy is in force
def test_a_token_that_is_bound_to_no_pod_may_write_no_event(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(NodeApiError, match="of its own Node"):
        post(client_with(cluster, tmp_path, None), reported())


@pytest.mark.promise("O46")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/namespaces/default/pods/p"),
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/nodes/gpu"),
        ("PATCH", "/api/v1/nodes/gpu/status"),
        ("GET", "/api/v1/namespaces/default/secrets"),
        ("DELETE", "/api/v1/namespaces/default/pods/p"),
        ("GET", "/api/v1/pods?watch=1&timeoutSeconds=1"),
    ],
)
def test_it_may_neither_read_nor_change_anything_else(client: ApiClient, method: str, path: str) -> None:
    with pytest.raises(NodeApiError) as error:
        client.call(method, path, None, JSON)
    assert error.value.status == 403
