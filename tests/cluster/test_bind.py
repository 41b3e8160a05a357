"""topogate with binding.mode podgroup, as its manifests install it, on a control plane with native gangs."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest
import yaml

from hack.local import native_gangs
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.cluster.native_jobs import (
    CONTAINER,
    OPTED_IN,
    bound,
    installed_on_shape,
    job,
    take_a_planned_node,
)
from tests.stolen_tokens import as_, of_account
from tests.support import create_namespace, delete, delete_namespace, wait_for_pods
from webhook.configuration.cluster import KEY, NAME, path_of
from webhook.configuration.keys import API_VERSION, KIND
from webhook.inquiry.bind_check import examine
from webhook.inquiry.findings import State
from webhook.kube.client import MERGE_PATCH, Api, ApiError


@pytest.fixture(scope="module")
def installed(native_control_plane: Cluster) -> Iterator[Cluster]:
    """With a policy that binds gangs as one."""
    with installed_on_shape(native_control_plane, more="binding: {mode: podgroup}"):
        yield native_control_plane


@pytest.fixture
def tenant(installed: Cluster) -> Iterator[str]:
    """A namespace that has opted in."""
    name = create_namespace(installed, OPTED_IN)
    yield name
    delete_namespace(installed, name)


def groups(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """minCount of each PodGroup."""
    items = cluster.api().json("GET", native_gangs.path(cluster.api(), namespace))["items"]
    return {each["metadata"]["name"]: each["spec"]["schedulingPolicy"]["gang"]["minCount"] for each in items}


def test_a_job_is_bound_as_one_by_a_pod_group_that_the_sweeper_makes(installed: Cluster, tenant: str) -> None:
    job(installed, tenant, 8)
    pods = wait_for_pods(installed, tenant, lambda pods: len(bound(pods)) == 8, "all to be bound")
    (name,) = {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods}
    assert name.startswith("topogate-job-train-")
    assert groups(installed, tenant) == {name: 8}


@pytest.mark.promise("R272")
def test_while_a_planned_node_is_taken_none_is_bound_and_then_all(installed: Cluster, tenant: str) -> None:
    foreign = create_namespace(installed)
    installed.stop("kube-scheduler")
    try:
        job(installed, tenant, 8)
        take_a_planned_node(installed, tenant, foreign)
    finally:
        installed.start("kube-scheduler")

    def is_refused(pods: list[dict[str, Any]]) -> bool:
        conditions = [each for pod in pods for each in pod["status"].get("conditions", ())]
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    pods = wait_for_pods(installed, tenant, is_refused, "kube-scheduler to refuse the group")
    assert bound(pods) == set()
    delete_namespace(installed, foreign)
    wait_for_pods(installed, tenant, lambda pods: len(bound(pods)) == 8, "all to be bound")


@pytest.mark.promise("R275")
def test_a_job_that_kueue_suspends_loses_its_pod_group_and_is_bound_as_one_when_it_is_resumed(
    installed: Cluster, tenant: str
) -> None:
    """Kueue itself is not here: it admits a Job, and evicts it, by spec.suspend."""
    path = f"/apis/batch/v1/namespaces/{tenant}/jobs/train"

    def suspend(suspended: bool) -> None:
        body = {"spec": {"suspend": suspended}}
        installed.api().request("PATCH", path, body=body, content_type=MERGE_PATCH)

    job(installed, tenant, 8, suspend=True)
    suspend(False)
    wait_for_pods(installed, tenant, lambda pods: len(bound(pods)) == 8, "all to be bound")
    suspend(True)
    wait_for_pods(installed, tenant, lambda pods: not pods, "Kubernetes to delete the pods")
    installed.wait_for("the PodGroup to be deleted", lambda: not groups(installed, tenant))
    suspend(False)
    wait_for_pods(installed, tenant, lambda pods: len(bound(pods)) == 8, "all to be bound again")
    assert list(groups(installed, tenant).values()) == [8]


def test_with_the_sweepers_token_nobody_touches_the_pod_groups_of_others(
    installed: Cluster, tenant: str
) -> None:
    api, path = installed.api(), native_gangs.path(installed.api(), tenant)
    answers: dict[tuple[str, str], str] = {}
    for name in ("other", "topogate-unmarked"):
        body = native_gangs.pod_group(api, name, 1)
        for verb, change in (("POST", body), ("PATCH", {"metadata": {"finalizers": None}}), ("DELETE", None)):
            if verb == "PATCH":
                api.request("POST", path, body=body)
            kind = MERGE_PATCH if verb == "PATCH" else "application/json"
            where = path if verb == "POST" else f"{path}/{name}"
            try:
                as_(installed, "sweeper").request(verb, where, body=change, content_type=kind)
                answers[name, verb] = "done"
            except ApiError as error:
                answers[name, verb] = str(error)
    refusal = "the topogate sweeper may make, change and delete PodGroups whose name begins"
    assert {each: answer for each, answer in answers.items() if refusal not in answer} == {}


def test_with_the_sweepers_token_a_thief_makes_and_deletes_pod_groups_of_ours(
    installed: Cluster, tenant: str
) -> None:
    path, thief = native_gangs.path(installed.api(), tenant), as_(installed, "sweeper")
    body = native_gangs.pod_group(installed.api(), "topogate-x", 1)
    body["metadata"]["labels"] = {keys.BIND_LABEL: keys.BIND_POD_GROUP}
    body["spec"]["priorityClassName"] = "gpu-high-priority"
    thief.request("POST", path, body=body)
    change = {"metadata": {"labels": {"a": "b"}}}
    with pytest.raises(ApiError) as caught:
        thief.request("PATCH", f"{path}/topogate-x", body=change, content_type=MERGE_PATCH)
    assert caught.value.status == 403
    thief.request("DELETE", f"{path}/topogate-x")
    row = next(line for line in (ROOT / "SECURITY.md").read_text().splitlines() if "system/sweeper`" in line)
    assert "makes and deletes PodGroups of topogate's own in any namespace" in row
    assert "gives these any PriorityClass, by which kube-scheduler preempts others" in row


KINDS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


def policy_path(policy: dict[str, Any]) -> str:
    return f"/apis/{policy['apiVersion']}/{KINDS[policy['kind']]}"


def policy_of_the_page() -> list[dict[str, Any]]:
    """The admission policy of docs/operators/bind.md, and its binding."""
    page = (ROOT / "docs/operators/bind.md").read_text()
    (text,) = re.findall(r"```yaml\n(apiVersion: admissionregistration.*?)```", page, re.DOTALL)
    return list(yaml.safe_load_all(text))


def editor_of(cluster: Cluster, namespace: str) -> Api:
    """A client of an account that has the ClusterRole edit in a namespace."""
    api, rbac = cluster.api(), "rbac.authorization.k8s.io"
    body: dict[str, Any] = {"metadata": {"name": "editor"}}
    api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body=body)
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"}
    subjects = [{"kind": "ServiceAccount", "name": "editor", "namespace": namespace}]
    body |= {"roleRef": role, "subjects": subjects}
    api.request("POST", f"/apis/{rbac}/v1/namespaces/{namespace}/rolebindings", body=body)
    editor = of_account(cluster, namespace, "editor")
    wanted = {"verb": "create", "group": native_gangs.API_GROUP, "resource": "podgroups"}
    review = {"spec": {"resourceAttributes": {**wanted, "namespace": namespace}}}
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    cluster.wait_for(
        "the editor's right", lambda: bool(editor.json("POST", reviews, body=review)["status"]["allowed"])
    )
    return editor


@pytest.mark.promise("R274")
def test_by_the_pages_policy_tenants_name_only_some_priority_classes_in_pod_groups(
    installed: Cluster, tenant: str
) -> None:
    """The ClusterRole edit lets them make PodGroups, and kube-scheduler 1.36 preempts by these."""
    api, path = installed.api(), native_gangs.path(installed.api(), tenant)
    editor = editor_of(installed, tenant)

    def is_refused(priority_class: str) -> bool:
        body = native_gangs.pod_group(api, "own", 1)
        body["spec"]["priorityClassName"] = priority_class
        try:
            editor.request("POST", path, query={"dryRun": "All"}, body=body)
        except ApiError as error:
            if "a PodGroup may name" not in str(error):
                raise
            return True
        return False

    assert not is_refused("gpu-high-priority")
    for each in policy_of_the_page():
        api.request("POST", policy_path(each), body=each)
    try:
        installed.wait_for("the policy to refuse", lambda: is_refused("gpu-high-priority"))
        assert not is_refused("gpu-low-priority")
        spec = {"priorityClassName": "gpu-high-priority", "restartPolicy": "Never", "containers": [CONTAINER]}
        job(installed, tenant, 2, template={"spec": spec})
        wait_for_pods(installed, tenant, lambda pods: len(bound(pods)) == 2, "both to be bound")
        (group,) = api.json("GET", path)["items"]
        assert group["spec"]["priorityClassName"] == "gpu-high-priority", "the sweeper's own are not refused"
    finally:
        for each in policy_of_the_page():
            delete(api, f"{policy_path(each)}/{each['metadata']['name']}")


def test_doctor_reports_that_kube_scheduler_binds_gangs_as_one(installed: Cluster, tenant: str) -> None:
    job(installed, tenant, 2)
    wait_for_pods(installed, tenant, lambda pods: len(bound(pods)) == 2, "both to be bound")
    (finding,) = examine(installed.api(), datetime.now(UTC))
    assert finding.state is State.WELL
    assert re.fullmatch(r"kube-scheduler binds \d+ gangs? as one", finding.sentence)


def test_doctor_reports_where_the_cluster_cannot_bind_gangs_as_one(cluster: Cluster, namespace: str) -> None:
    api, now = cluster.api(), datetime.now(UTC)
    system = {"metadata": {"name": "topogate-system"}}
    own = {"metadata": {"name": NAME}}
    text = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
    api.request("POST", "/api/v1/namespaces", body=system)
    path = "/api/v1/namespaces/topogate-system/configmaps"
    api.request("POST", path, body=own | {"data": {KEY: text}})
    assert [each.state for each in examine(api, now)] == [State.WELL]
    body = {"data": {KEY: f"{text}binding: {{mode: podgroup}}\n"}}
    api.request("PATCH", path_of(), body=body, content_type=MERGE_PATCH)
    (finding,) = examine(api, now)
    assert (finding.state, "binding.mode: podgroup has no effect" in finding.sentence) == (State.ODD, True)
    delete_namespace(cluster, "topogate-system")
