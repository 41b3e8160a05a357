"""What the API server lets a labeler do, with its real manifests and tokens bound to its DaemonSet's pods."""

from collections.abc import Iterator
from typing import Any

import pytest

from hack.local.cluster import Cluster
from labeler.api import NodeApi, NodeApiError
from labeler.labels import Wanted
from labeler.publisher import NodePublisher
from tests.labeler.installed import NAMESPACE, Installed, install
from webhook.kube.client import MERGE_PATCH
from webhook.kube.client import ApiError as ServerError

EVERYTHING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "test-labeler-everything"},
    "rules": [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"]}],
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "test-labeler-everything"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "test-labeler-everything",
    },
    "subjects": [{"kind": "ServiceAccount", "name": "labeler", "namespace": NAMESPACE}],
}


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    done = install(module_cluster, tmp_path_factory.mktemp("tokens"), node_count=2)
    body = {
        "metadata": {
            "labels": {"example.com/team": "a"},
            "annotations": {"example.com/note": "b"},
            "finalizers": ["example.com/keep"],
        }
    }
    done.cluster.api().request("PATCH", "/api/v1/nodes/n0", body=body, content_type=MERGE_PATCH)
    return done


@pytest.fixture(scope="module")
def api(installed: Installed) -> Iterator[NodeApi]:
    """The labeler's identity on n0."""
    yield installed.node_api("n0")
    body = {"metadata": {"finalizers": None}}
    installed.cluster.api().request("PATCH", "/api/v1/nodes/n0", body=body, content_type=MERGE_PATCH)


@pytest.mark.promise("S5")
@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        ({"labels": {"topology.gke.io/rack": "r1"}}, "labels"),
        ({"labels": {"gpu.intel.com/cards": "card0", "gpu.topogate.io/model": "x"}}, "labels"),
        ({"annotations": {"labeler.topogate.io/owned-labels": "gpu.intel.com/cards"}}, "annotations"),
    ],
    ids=["topology", "cards and model", "annotation"],
)
def test_a_labeler_sets_and_removes_what_is_its_own(
    installed: Installed, api: NodeApi, metadata: dict[str, dict[str, str]], kind: str
) -> None:
    api.patch({"metadata": metadata})
    assert metadata[kind].items() <= installed.node("n0")["metadata"][kind].items()
    api.patch({"metadata": {kind: dict.fromkeys(metadata[kind])}})
    assert not metadata[kind].keys() & installed.node("n0")["metadata"][kind].keys()


def test_a_write_meant_for_a_node_that_was_replaced_is_refused(api: NodeApi) -> None:
    other = "11111111-2222-3333-4444-555555555555"
    with pytest.raises(NodeApiError, match=r"metadata\.uid"):
        api.patch({"metadata": {"uid": other, "labels": {"topology.gke.io/rack": "r"}}})
    assert "topology.gke.io/rack" not in api.metadata()["labels"]


def test_a_labeler_reads_its_node(api: NodeApi) -> None:
    assert api.metadata()["name"] == "n0"


@pytest.mark.promise("S5")
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, "may not change a Node's spec"),
        ({"spec": {"unschedulable": True}}, "may not change a Node's spec"),
        ({"spec": {"providerID": "other://machine"}}, "may not change a Node's spec"),
        ({"metadata": {"finalizers": ["example.com/keep", "example.com/mine"]}}, "finalizers"),
        ({"metadata": {"finalizers": None}}, "finalizers"),
        (
            {
                "metadata": {
                    "ownerReferences": [
                        {
                            "apiVersion": "v1",
                            "kind": "Pod",
                            "name": "p",
                            "uid": "11111111-2222-3333-4444-555555555555",
                        }
                    ]
                }
            },
            "owner references",
        ),
        ({"metadata": {"labels": {"example.com/team": "c"}}}, "may only change labels under"),
        ({"metadata": {"labels": {"example.com/team": None}}}, "may only change labels under"),
        ({"metadata": {"labels": {"example.com/new": ""}}}, "may only change labels under"),
        ({"metadata": {"labels": {"kubernetes.io/hostname": "n1"}}}, "may only change labels under"),
        (
            {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
            "may only change labels under",
        ),
        ({"metadata": {"labels": {"topology.gke.io.evil/rack": "r"}}}, "may only change labels under"),
        (
            {"metadata": {"labels": {"topology.gke.io/rack": "r", "example.com/new": ""}}},
            "may only change labels under",
        ),
        ({"metadata": {"annotations": {"example.com/note": "c"}}}, "may only change annotations under"),
        ({"metadata": {"annotations": {"example.com/note": None}}}, "may only change annotations under"),
        ({"metadata": {"annotations": {"example.com/new": ""}}}, "may only change annotations under"),
    ],
    ids=[
        "taint",
        "cordon",
        "provider id",
        "add a finalizer",
        "remove the finalizers",
        "owner reference",
        "change another's label",
        "remove another's label",
        "add a foreign label",
        "host name",
        "role",
        "prefix that only looks like ours",
        "own label beside a foreign one",
        "change another's annotation",
        "remove another's annotation",
        "add a foreign annotation",
    ],
)
def test_a_labeler_is_refused_anything_else_on_its_own_node(
    installed: Installed, api: NodeApi, body: dict[str, Any], sentence: str
) -> None:
    before = _lasting(installed.node("n0"))
    with pytest.raises(NodeApiError, match=sentence) as refused:
        api.patch(body)
    assert refused.value.status in (403, 422)
    assert _lasting(installed.node("n0")) == before


@pytest.mark.promise("S5", "S27")
@pytest.mark.parametrize("as_node", ["n1", None], ids=["another node's pod", "no pod at all"])
def test_a_token_that_is_not_bound_to_a_pod_on_the_node_changes_nothing(
    installed: Installed, as_node: str | None
) -> None:
    with pytest.raises(NodeApiError, match="only change its own Node"):
        installed.node_api("n0", as_node=as_node).patch(
            {"metadata": {"labels": {"topology.gke.io/rack": "r"}}}
        )


@pytest.mark.promise("S5")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/api/v1/nodes/n0/status", {"status": {"capacity": {"example.com/gold": "1"}}}),
        ("DELETE", "/api/v1/nodes/n0", None),
        ("POST", "/api/v1/nodes", {"metadata": {"name": "n9"}}),
        ("GET", "/api/v1/nodes", None),
        ("GET", "/api/v1/pods", None),
        ("GET", "/api/v1/namespaces/kube-system/secrets", None),
    ],
    ids=["node status", "delete node", "create node", "list nodes", "list pods", "secrets"],
)
def test_the_role_of_a_labeler_has_nothing_else(
    installed: Installed, method: str, path: str, body: object
) -> None:
    with pytest.raises(ServerError) as refused:
        _as_labeler(installed, method, path, body)
    assert (refused.value.status, "cannot" in str(refused.value)) == (403, True)


@pytest.fixture
def with_a_role_for_everything(installed: Installed) -> Iterator[None]:
    """Someone has widened the role of the labeler."""
    admin = installed.cluster.api()
    group = "/apis/rbac.authorization.k8s.io/v1"
    admin.request("POST", f"{group}/clusterroles", body=EVERYTHING)
    admin.request("POST", f"{group}/clusterrolebindings", body=BINDING)
    yield
    admin.request("DELETE", f"{group}/clusterrolebindings/test-labeler-everything")
    admin.request("DELETE", f"{group}/clusterroles/test-labeler-everything")


@pytest.mark.promise("S5")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/api/v1/nodes/n0/status", {"status": {"capacity": {"example.com/gold": "1"}}}),
        ("DELETE", "/api/v1/nodes/n0", None),
        ("DELETE", "/api/v1/nodes/n1", None),
        ("POST", "/api/v1/nodes", {"metadata": {"name": "n9"}}),
    ],
    ids=["node status", "delete its node", "delete another node", "create node"],
)
def test_the_policy_holds_even_where_the_role_was_widened(
    installed: Installed, with_a_role_for_everything: None, method: str, path: str, body: object
) -> None:
    def refusal() -> str:
        try:
            _as_labeler(installed, method, path, body)
        except ServerError as error:
            return str(error)
        return "done"

    installed.cluster.wait_for("the wider role to count", lambda: "cannot" not in refusal())
    assert "ValidatingAdmissionPolicy 'topogate-labeler'" in refusal()


# --- Events ---------------------------------------------------------------------------------------


def event(**changes: Any) -> dict[str, Any]:
    """An Event as the labeler on n0 writes it, but for these fields."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "n0.", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "n0"},
        "type": "Warning",
        "reason": "LabelContested",
        "message": "test",
        "source": {"component": "topogate-labeler", "host": "n0"},
        **changes,
    }


@pytest.mark.promise("O309")
def test_a_label_that_another_client_changes_is_written_again_with_an_event_of_the_node(
    installed: Installed, api: NodeApi
) -> None:
    rack = "topology.gke.io/rack"
    publisher = NodePublisher(api, (rack,))
    publisher.publish(Wanted({rack: "ours"}, {}))
    body = {"metadata": {"labels": {rack: "theirs"}}}
    installed.cluster.api().request("PATCH", "/api/v1/nodes/n0", body=body, content_type=MERGE_PATCH)
    publisher.publish(Wanted({rack: "ours"}, {}))
    assert installed.node("n0")["metadata"]["labels"][rack] == "ours"
    (found,) = [
        item["message"]
        for item in installed.cluster.api().json("GET", "/api/v1/namespaces/default/events")["items"]
        if item["reason"] == "LabelContested" and item["message"] != "test"
    ]
    assert f"label {rack}, which the labeler writes as 'ours', was set to 'theirs' by '" in found
    described = installed.cluster.kubectl("describe", "node", "n0").stdout
    assert "LabelContested" in described
    publisher.publish(Wanted({}, {}))


@pytest.mark.parametrize(
    "body",
    [
        event(involvedObject={"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}),
        event(involvedObject={"apiVersion": "v1", "kind": "Pod", "name": "n0", "namespace": "default"}),
        event(reason="NodeNotReady"),
        event(source={"component": "kubelet", "host": "n0"}),
        event(source={"component": "topogate-labeler", "host": "n1"}),
    ],
    ids=["another node", "a pod", "another reason", "another's name", "another node's name"],
)
def test_a_labeler_writes_events_of_its_own_node_and_one_reason_alone(
    installed: Installed, body: dict[str, Any]
) -> None:
    def refusal() -> str:
        try:
            _as_labeler(installed, "POST", "/api/v1/namespaces/default/events", body)
        except ServerError as error:
            return str(error)
        return ""

    installed.cluster.wait_for("the policy to be in force", lambda: bool(refusal()))
    assert "ValidatingAdmissionPolicy 'topogate-labeler-events'" in refusal()


def test_a_labeler_writes_no_event_in_another_namespace(installed: Installed) -> None:
    with pytest.raises(ServerError, match="cannot create"):
        _as_labeler(installed, "POST", "/api/v1/namespaces/kube-system/events", event())


def test_nobody_else_is_bound_by_the_policy(installed: Installed) -> None:
    body = {"spec": {"unschedulable": True}}
    installed.cluster.api().request("PATCH", "/api/v1/nodes/n1", body=body, content_type=MERGE_PATCH)
    assert installed.node("n1")["spec"]["unschedulable"] is True


def _as_labeler(installed: Installed, method: str, path: str, body: object) -> None:
    kubeconfig = installed.folder / "kubeconfig"
    installed.cluster.write_token_kubeconfig(kubeconfig, installed.token_file("n0"))
    client = type(installed.cluster.api()).connect(kubeconfig, user_agent="test-as-labeler")
    try:
        client.request(
            method, path, body=body, content_type=MERGE_PATCH if method == "PATCH" else "application/json"
        )
    finally:
        client.close()


def _lasting(node: dict[str, Any]) -> dict[str, Any]:
    """What a refused write must not have changed (kwok's heartbeats change the rest)."""
    unchanged = ("labels", "annotations", "finalizers", "ownerReferences")
    return {"spec": node["spec"], **{key: node["metadata"].get(key) for key in unchanged}}
