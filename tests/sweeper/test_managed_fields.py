"""Released pods lose their managedFields, where nobody is the poorer for it, and no release fails for it.

The last test asks the real API server, with the real controllers.
"""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import jsonpatch
import msgspec
import pytest

from hack.local.cluster import Cluster
from tests.sweeper.applies import Applies
from tests.sweeper.at_work import create_job, run_all, sweep, template
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.releases import Never
from webhook.configuration.settings import Settings
from webhook.kube.client import APPLY_PATCH, Api, ApiError
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.apply import patches
from webhook.sweeper.apply.release import Outcome, Releaser
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Orders
from webhook.sweeper.observe.view import View

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
UPDATED = {"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {"f:spec": {}}}
APPLIED = {"manager": "argocd", "operation": "Apply", "fieldsV1": {"f:metadata": {}}}


def written(*managers: dict[str, Any], version: str = "7", **metadata: Any) -> dict[str, Any]:
    """A pod of a Job, written by these."""
    own = {"ownerReferences": [JOB], "resourceVersion": version, "managedFields": list(managers)}
    return pod_json(metadata={**own, **metadata})


def test_a_pod_that_its_controller_made_loses_its_managed_fields() -> None:
    pod = written(UPDATED, UPDATED)
    after: Any = jsonpatch.apply_patch(copy.deepcopy(pod), patches.forgetting_patch(decode(pod)))
    assert after["metadata"].pop("managedFields") == [{}]
    del pod["metadata"]["managedFields"]
    assert after == pod


@pytest.mark.promise("O109")
@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(written(UPDATED, ownerReferences=[]), id="no owner"),
        pytest.param(written(UPDATED, ownerReferences=[JOB | {"controller": False}]), id="no controller"),
        pytest.param(written(UPDATED, APPLIED), id="applied to"),
        pytest.param(written(UPDATED, UPDATED | {"operation": "Merge"}), id="an operation to come"),
        pytest.param(written(), id="nothing there"),
    ],
)
def test_a_pod_keeps_what_others_may_need(pod: dict[str, Any]) -> None:
    assert patches.forgetting_patch(decode(pod)) == []


def test_an_apply_that_was_not_seen_makes_the_patch_fail() -> None:
    operations = patches.forgetting_patch(decode(written(UPDATED)))
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(written(UPDATED, APPLIED, version="8"), operations)


class Server(Api):
    """Holds one pod; refuses, as `refuse` says, what is sent."""

    def __init__(self, pod: dict[str, Any], refuse: Callable[[Any], None] = lambda _: None) -> None:
        self.pod = pod
        self.requests: list[str] = []
        self.queries: list[Any] = []
        self._refuse = refuse

    def request(self, method: str, path: str, *, body: Any = None, query: Any = None, **_: Any) -> bytes:
        self.requests.append(method)
        self.queries.append(query)
        if method == "PATCH":
            self._refuse(body)
            try:
                self.pod = jsonpatch.apply_patch(self.pod, body)
            except jsonpatch.JsonPatchTestFailed as error:
                raise ApiError(422, "Invalid", "the server rejected our request") from error
        return msgspec.json.encode(self.pod)


def released(server: Server, seen: dict[str, Any], *, forgets: bool = True) -> Outcome:
    """What becomes of a pod that was seen so."""
    planned = PlannedPod(name="p", uid="uid-p", node="n1")
    releaser = Releaser(server, Never(), lambda: True, forgets_managers=forgets)  # type: ignore[arg-type]
    try:
        (release,) = releaser.release([(decode(seen), planned)])
        return release.outcome
    finally:
        releaser.close()


def refuse_forgetting(status: int) -> Callable[[Any], None]:
    def refuse(body: Any) -> None:
        if any(operation["path"] == "/metadata/managedFields" for operation in body):
            raise ApiError(status, "Forbidden", "a policy of this cluster keeps managedFields")

    return refuse


@pytest.mark.promise("R8")
def test_release_and_forgetting_are_one_request() -> None:
    server = Server(written(UPDATED))
    assert released(server, written(UPDATED)) is Outcome.RELEASED
    assert server.requests == ["PATCH"]
    assert server.queries == [{"fieldValidation": "Ignore", "timeout": "8s"}], "as cheap as can be"
    assert server.pod["metadata"]["managedFields"] == [{}]


def test_nothing_is_forgotten_where_that_is_switched_off() -> None:
    server = Server(written(UPDATED))
    assert released(server, written(UPDATED), forgets=False) is Outcome.RELEASED
    assert server.pod["metadata"]["managedFields"] == [UPDATED]


@pytest.mark.promise("O109")
@pytest.mark.parametrize("keeps", [False, True])
def test_a_setting_switches_it_off(keeps: bool) -> None:
    server, cache = Server(written(UPDATED)), SimpleNamespace(expect=lambda _: None)
    applier = Applies(Pass(server, cast(Any, cache), Settings(keep_managed_fields=keeps)))
    pod = decode(server.pod)
    order = Orders(releases=((pod, PlannedPod(name="p", uid="uid-p", node="n1")),))
    applier.apply(order, View([], [pod], {}, {}))
    applier.close()
    assert server.pod["metadata"]["managedFields"] == ([UPDATED] if keeps else [{}])


@pytest.mark.promise("O109")
@pytest.mark.parametrize("status", [400, 403, 409, 422])
def test_a_cluster_that_refuses_it_has_its_pods_released_all_the_same(status: int) -> None:
    server = Server(written(UPDATED), refuse_forgetting(status))
    assert released(server, written(UPDATED)) is Outcome.RELEASED
    assert server.pod["metadata"]["managedFields"] == [UPDATED]
    assert not server.pod["spec"]["schedulingGates"]


@pytest.mark.promise("O109")
def test_a_policy_of_one_namespace_ends_it_for_no_other() -> None:
    server = Server(written(UPDATED), refuse_forgetting(403))
    releaser = Releaser(server, Never(), lambda: True, forgets_managers=True)  # type: ignore[arg-type]
    planned = PlannedPod(name="p", uid="uid-p", node="n1")
    releaser.release([(decode(written(UPDATED)), planned)])
    server.pod = written(UPDATED)
    server.pod["metadata"]["namespace"] = "another"
    server._refuse = lambda _: None
    releaser.release([(decode(server.pod), planned)])
    releaser.close()
    assert server.pod["metadata"]["managedFields"] == [{}]


@pytest.mark.promise("O109")
def test_a_namespace_that_has_refused_it_is_not_asked_again() -> None:
    server = Server(written(UPDATED), refuse_forgetting(403))
    releaser = Releaser(server, Never(), lambda: True, forgets_managers=True)  # type: ignore[arg-type]
    planned = PlannedPod(name="p", uid="uid-p", node="n1")
    for _ in range(2):
        server.pod = written(UPDATED)
        releaser.release([(decode(written(UPDATED)), planned)])
    releaser.close()
    assert server.requests == ["PATCH", "PATCH", "PATCH"]


def test_a_pod_that_was_written_meanwhile_is_no_reason_to_ask_no_more() -> None:
    server = Server(written(UPDATED, version="8"))
    releaser = Releaser(server, Never(), lambda: True, forgets_managers=True)  # type: ignore[arg-type]
    planned = PlannedPod(name="p", uid="uid-p", node="n1")
    releaser.release([(decode(written(UPDATED)), planned)])
    server.pod = written(UPDATED)
    releaser.release([(decode(written(UPDATED)), planned)])
    releaser.close()
    assert server.pod["metadata"]["managedFields"] == [{}]


@pytest.mark.promise("R8")
def test_a_pod_that_was_applied_to_meanwhile_is_released_and_keeps_its_managers() -> None:
    server = Server(written(UPDATED, APPLIED, version="8"))
    assert released(server, written(UPDATED)) is Outcome.RELEASED
    assert server.pod["metadata"]["managedFields"] == [UPDATED, APPLIED]
    assert not server.pod["spec"]["schedulingGates"]


def test_a_release_that_is_refused_for_another_reason_is_still_refused() -> None:
    def refuse(_: Any) -> None:
        raise ApiError(422, "Invalid", "no")

    server = Server(written(UPDATED), refuse)
    assert released(server, written(UPDATED)) is Outcome.REFUSED
    assert server.requests.count("PATCH") == 2


# --- on the real API server -------------------------------------------------------------------------------


def managers(pod: dict[str, Any]) -> list[tuple[str, str]]:
    """Who manages fields of a pod, and how."""
    entries = pod["metadata"].get("managedFields", [])
    return [(each["manager"], each["operation"]) for each in entries]


def apply_label(api: Api, path: str, manager: str, labels: dict[str, str]) -> dict[str, Any]:
    """Apply labels to a pod from the server's side."""
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels}}
    answer: dict[str, Any] = api.json(
        "PATCH", path, query={"fieldManager": manager}, body=body, content_type=APPLY_PATCH
    )
    return answer


@pytest.mark.promise("O109")
def test_pods_of_a_job_run_without_managed_fields_and_can_be_applied_to(
    two_nodes: Cluster, namespace: str
) -> None:
    api = two_nodes.api()
    create_job(api, namespace, "train", 2, template(8))
    pods = sweep(two_nodes, namespace, Settings(), lambda pods: run_all(pods, "train", 2), "the gang to run")
    assert [managers(pod) for pod in pods] == [[], []]  # kube-scheduler and the kubelet wrote since
    path = f"/api/v1/namespaces/{namespace}/pods/{pods[0]['metadata']['name']}"
    mine = apply_label(api, path, "a-team", {"mine": "1"})
    assert managers(mine) == [("a-team", "Apply"), ("before-first-apply", "Update")]
    with pytest.raises(ApiError, match='conflict with "before-first-apply"'):
        apply_label(api, path, "a-team", {"mine": "1", "batch.kubernetes.io/job-name": "another"})
    with pytest.raises(ApiError, match='conflict with "a-team"'):
        apply_label(api, path, "b-team", {"mine": "2"})
    assert "mine" not in apply_label(api, path, "a-team", {})["metadata"]["labels"]
