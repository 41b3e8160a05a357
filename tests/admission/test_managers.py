"""Gated pods lose their managedFields at creation, where that costs no user anything."""

from typing import Any

import pytest

from hack.local.cluster import Cluster
from tests.admission.harness import gpu_pod
from tests.admission.reviews import applied, decided
from webhook.configuration.document import ConfigurationError
from webhook.configuration.file import parse
from webhook.kube.client import APPLY_PATCH, MERGE_PATCH, Api
from webhook.policy.values import Policy

HEAD = "apiVersion: topogate.io/v1beta1\nkind: Configuration\n"
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
UPDATED = {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {"f:spec": {}}}
APPLIED = {"manager": "argocd", "operation": "Apply", "fieldsV1": {"f:metadata": {}}}


def written(*managers: dict[str, Any], owners: tuple[dict[str, Any], ...] = (JOB,)) -> dict[str, Any]:
    """A GPU pod of a Job, written by these."""
    body = gpu_pod("a")
    body["metadata"] |= {"ownerReferences": list(owners), "managedFields": list(managers)}
    return body


def managers_after(body: dict[str, Any], policy: Policy) -> Any:
    return applied(body, decided(body, policy=policy))["metadata"].get("managedFields")


@pytest.mark.promise("O109")
def test_a_pod_that_its_controller_made_has_none_from_the_beginning() -> None:
    assert managers_after(written(UPDATED), Policy()) == []


def test_a_pod_that_brings_its_gate_has_none_either() -> None:
    body = written(UPDATED)
    body["spec"]["schedulingGates"] = [{"name": Policy().gate}]
    assert managers_after(body, Policy()) == []


def test_a_cpu_only_pod_has_none_either() -> None:
    body = written(UPDATED)
    body["spec"]["containers"] = [{"name": "c"}]
    body["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-name": "x"}
    assert decided(body, policy=Policy()).reason == "cpu-only-member"
    assert managers_after(body, Policy()) == []


@pytest.mark.promise("O109")
@pytest.mark.parametrize(
    ("body", "policy"),
    [
        pytest.param(written(UPDATED, owners=()), Policy(), id="no owner"),
        pytest.param(written(UPDATED, owners=(JOB | {"controller": False},)), Policy(), id="no controller"),
        pytest.param(written(UPDATED, APPLIED), Policy(), id="applied"),
        pytest.param(written(UPDATED | {"operation": "Merge"}), Policy(), id="an operation to come"),
        pytest.param(written(UPDATED), Policy(keep_managed_fields=True), id="the policy keeps them"),
    ],
)
def test_a_pod_keeps_what_others_may_need(body: dict[str, Any], policy: Policy) -> None:
    assert managers_after(body, policy) == body["metadata"]["managedFields"]


def test_a_pod_that_is_not_ours_keeps_them() -> None:
    body = written(UPDATED)
    body["spec"]["containers"] = [{"name": "c"}]
    assert decided(body, policy=Policy()).operations == ()


def test_the_configuration_has_true_or_false() -> None:
    assert parse(HEAD + "admission: {keepManagedFields: true}\n").policy.keep_managed_fields
    assert not parse(HEAD).policy.keep_managed_fields
    with pytest.raises(ConfigurationError, match="must be true or false, not 'perhaps'"):
        parse(HEAD + "admission: {keepManagedFields: perhaps}\n")


@pytest.mark.promise("O109")
@pytest.mark.usefixtures("called_webhook")
def test_the_api_server_takes_it_and_begins_again_with_the_first_apply(
    module_cluster: Cluster, opted_in: str
) -> None:
    api = module_cluster.api()
    maps = f"/api/v1/namespaces/{opted_in}/configmaps"
    owner = api.json("POST", maps, body={"metadata": {"name": "owner"}})["metadata"]
    kind = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    body = gpu_pod("a")
    body["metadata"]["ownerReferences"] = [kind | {"controller": True}]
    path = f"/api/v1/namespaces/{opted_in}/pods"
    made = api.json("POST", path, body=body)
    assert made["spec"]["schedulingGates"]
    assert "managedFields" not in made["metadata"]
    labels = {"metadata": {"labels": {"x": "y"}}}
    relabelled = api.json("PATCH", f"{path}/a", body=labels, content_type=MERGE_PATCH)
    assert relabelled["metadata"]["labels"] == {"x": "y"}
    assert "managedFields" not in relabelled["metadata"]
    found = apply_label(api, f"{path}/a")["metadata"]["managedFields"]
    assert {(each["manager"], each["operation"]) for each in found} == {
        ("a-team", "Apply"),
        ("before-first-apply", "Update"),
    }


def apply_label(api: Api, path: str) -> dict[str, Any]:
    name = path.rpartition("/")[2]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"mine": "1"}}}
    query = {"fieldManager": "a-team"}
    return dict(api.json("PATCH", path, query=query, body=body, content_type=APPLY_PATCH))
