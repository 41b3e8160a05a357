"""topogate with bind: nominated, as its manifests install it, with and without the right that it needs."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.cluster.native_jobs import OPTED_IN, bound, installed_on_shape, job
from tests.stolen_tokens import as_
from tests.support import create_namespace, delete_namespace, wait_for_pods
from webhook.inquiry.bind_check import examine
from webhook.inquiry.findings import State
from webhook.kube.access import may
from webhook.kube.client import JSON_PATCH, ApiError
from webhook.kube.objects import Pod
from webhook.sweeper.observe.plans import nominated_node, pinned_node

SWEEPER: Final = "system:serviceaccount:topogate-system:sweeper"
GROUP: Final = {"podGroupName": "topogate-nominated-x"}
GATES: Final = [{"name": keys.GATE}]


@pytest.fixture(scope="module")
def installed(native_control_plane: Cluster) -> Iterator[Cluster]:
    """With the component, and a policy that nominates gangs."""
    with installed_on_shape(native_control_plane, ("nominated-binding",), more="binding: {mode: nominated}"):
        wait_for_guard(native_control_plane)
        yield native_control_plane


@pytest.fixture
def tenant(installed: Cluster) -> Iterator[str]:
    """A namespace that has opted in."""
    name = create_namespace(installed, OPTED_IN)
    yield name
    delete_namespace(installed, name)


@pytest.fixture
def without_webhook(installed: Cluster) -> Iterator[str]:
    """A namespace that has not opted in: the webhook takes gate and PodGroup off no pod."""
    name = create_namespace(installed)
    yield name
    delete_namespace(installed, name)


def wait_for_guard(cluster: Cluster) -> None:
    namespace = create_namespace(cluster)
    path = pod(cluster, namespace, "probe", schedulingGates=GATES)

    def is_guarded() -> bool:
        try:
            nominate(cluster, path, "n")
        except ApiError as error:
            return "the topogate sweeper may nominate gated pods" in str(error)
        return False

    cluster.wait_for("the guard to be enforced", is_guarded)
    delete_namespace(cluster, namespace)


@pytest.fixture
def without_the_right(installed: Cluster) -> Iterator[None]:
    """As where the component is not installed."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    name = "topogate-sweeper-nominations"
    body = installed.api().json("GET", f"{path}/{name}")
    installed.api().request("DELETE", f"{path}/{name}")
    installed.wait_for("the right to be gone", lambda: not may_nominate(installed))
    yield
    metadata = {"name": name}
    installed.api().request("POST", path, body={**body, "metadata": metadata})
    installed.wait_for("the right to be there", lambda: may_nominate(installed))


def may_nominate(cluster: Cluster) -> bool:
    return may(cluster.api(), SWEEPER, (), {"verb": "patch", "resource": "pods", "subresource": "status"})


def pod(cluster: Cluster, namespace: str, name: str, **spec: Any) -> str:
    """Its path; made past the webhook, which would give it another PodGroup."""
    metadata = {"name": name, "annotations": {keys.INJECT_ANNOTATION: keys.INJECT_NO}}
    body = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}
    path = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api().request("POST", path, body=body)
    return f"{path}/{name}"


def nominate(cluster: Cluster, path: str, node: str, *more: dict[str, Any]) -> None:
    """With the sweeper's token."""
    nomination = {"op": "add", "path": "/status/nominatedNodeName", "value": node}
    body = [nomination, *more]
    as_(cluster, "sweeper").request("PATCH", f"{path}/status", body=body, content_type=JSON_PATCH)


def sent(pods: list[dict[str, Any]]) -> list[tuple[str | None, str | None]]:
    """The nodes that pods are pinned to, and those that they are nominated to."""
    read = [msgspec.convert(each, Pod) for each in pods]
    return [(pinned_node(each), nominated_node(each)) for each in read]


@pytest.mark.promise("R285")
@pytest.mark.usefixtures("without_the_right")
def test_without_the_right_a_gang_is_pinned_and_bound_as_one(installed: Cluster, tenant: str) -> None:
    job(installed, tenant, 8)
    pods = wait_for_pods(installed, tenant, lambda pods: len(bound(pods)) == 8, "all to be bound")
    assert sent(pods) == [(each["spec"]["nodeName"], None) for each in pods]
    finding, *_ = examine(installed.api(), datetime.now(UTC))
    assert (finding.state, "gangs are pinned" in finding.sentence) == (State.ODD, True)


def test_with_it_a_job_is_nominated_and_bound_as_one(installed: Cluster, tenant: str) -> None:
    job(installed, tenant, 8)
    pods = wait_for_pods(installed, tenant, lambda pods: len(bound(pods)) == 8, "all to be bound")
    assert sent(pods) == [(None, each["spec"]["nodeName"]) for each in pods]
    groups = {each["spec"]["schedulingGroup"]["podGroupName"] for each in pods}
    assert [name.startswith("topogate-nominated-job-train-") for name in groups] == [True]
    assert [each.state for each in examine(installed.api(), datetime.now(UTC))] == [State.WELL]


ACTS: Final[dict[str, tuple[dict[str, Any], list[dict[str, Any]]]]] = {
    "of a pod that is not gated": ({"schedulingGroup": GROUP}, []),
    "of a pod of no such PodGroup": ({"schedulingGates": GATES}, []),
    "and ends a pod": (
        {"schedulingGates": GATES, "schedulingGroup": GROUP},
        [{"op": "replace", "path": "/status/phase", "value": "Failed"}],
    ),
    "and removes what is known of it": (
        {"schedulingGates": GATES, "schedulingGroup": GROUP},
        [{"op": "remove", "path": "/status/conditions"}],
    ),
    "and gives it a label": (
        {"schedulingGates": GATES, "schedulingGroup": GROUP},
        [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}],
    ),
    "and gives it an address": (
        {"schedulingGates": GATES, "schedulingGroup": GROUP},
        [{"op": "add", "path": "/status/podIPs", "value": [{"ip": "10.0.0.1"}]}],
    ),
}


def test_with_a_stolen_token_nobody_writes_more_of_a_status(installed: Cluster, without_webhook: str) -> None:
    answers: dict[str, str] = {}
    for number, (act, (spec, more)) in enumerate(ACTS.items()):
        path = pod(installed, without_webhook, f"victim-{number}", **spec)
        try:
            nominate(installed, path, "n", *more)
            answers[act] = "done"
        except ApiError as error:
            answers[act] = str(error)
    assert {act: answer for act, answer in answers.items() if "the topogate sweeper may" not in answer} == {}


def test_with_a_stolen_token_a_thief_nominates_gated_pods_to_any_node(
    installed: Cluster, without_webhook: str
) -> None:
    path = pod(installed, without_webhook, "waits", schedulingGates=GATES, schedulingGroup=GROUP)
    nominate(installed, path, "anywhere")
    assert installed.api().json("GET", path)["status"]["nominatedNodeName"] == "anywhere"
    rows = (ROOT / "SECURITY.md").read_text().splitlines()
    row = next(line for line in rows if "component `nominated-binding`" in line)
    assert "keeps other pods of no higher priority off any node" in row
