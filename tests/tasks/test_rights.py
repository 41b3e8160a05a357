"""Act by act, with tokens: a tenant's GPUTask does nothing that the tenant could not do with a Job, and the
controller's own identity touches no other Jobs than those of GPUTasks."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import clean, create_namespace
from tests.tasks.builders import CLASSES, policy, rules
from webhook.kube.client import JSON_PATCH, MERGE_PATCH, Api, ApiError
from webhook.tasks import objects
from webhook.tasks.wanted import job_wanted

TASKS_ONLY: Final = [{"apiGroups": ["falldio.com"], "resources": ["gputasks"], "verbs": ["*"]}]
JOBS: Final = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "delete"]}
NO_DELETE: Final = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}
TOKENS: Final = {
    "apiGroups": [""],
    "resources": ["serviceaccounts/token"],
    "resourceNames": ["strong"],
    "verbs": ["create"],
}
CONTROLLER: Final = ("topogate-system", "tasks")
_numbers = itertools.count()


@dataclass(frozen=True)
class Someone:
    """Whoever holds the token of a ServiceAccount."""

    api: Api
    namespace: str

    def create(self, spec: dict[str, Any] | None = None) -> str:
        name = f"t{next(_numbers)}"
        body = {
            "apiVersion": objects.GROUP_VERSION,
            "kind": objects.KIND,
            "metadata": {"name": name},
            "spec": spec or {},
        }
        self.api.request("POST", objects.path(self.namespace), body=body)
        return name

    def change(self, name: str, body: dict[str, Any]) -> None:
        self.api.request("PATCH", objects.path(self.namespace, name), body=body, content_type=MERGE_PATCH)

    def delete(self, name: str) -> None:
        self.api.request("DELETE", objects.path(self.namespace, name))


@pytest.fixture(scope="module")
def installed(module_cluster: Cluster) -> Iterator[Cluster]:
    """The definitions, identities, rights and policies of the base, as its manifests have them."""
    rendered = module_cluster.kubectl("kustomize", str(ROOT / "manifests" / "base")).stdout
    kept = [
        each
        for each in yaml.safe_load_all(rendered)
        if each["kind"] not in ("Deployment", "DaemonSet", "Job", "CronJob", "MutatingWebhookConfiguration")
    ]
    crds = [each for each in kept if each["kind"] in ("CustomResourceDefinition", "Namespace")]
    module_cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(crds))
    module_cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    module_cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(kept))
    yield module_cluster
    clean(module_cluster)


@pytest.fixture(scope="module")
def team(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A namespace, from when on the policies are in force: the API server takes them up after a while."""
    namespace = create_namespace(installed)
    someone = tenant(installed, tmp_path_factory.mktemp("probe"), namespace)

    def in_force() -> bool:
        try:
            someone.create()
        except ApiError as error:
            return "jobs.batch" in str(error)
        return False

    installed.wait_for("the policies to be in force", in_force, 30)
    return namespace


def holder(cluster: Cluster, folder: Path, namespace: str, account: str) -> Someone:
    """Somebody with a token of that ServiceAccount."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = folder / f"{account}.token"
    token.write_text(cluster.api().json("POST", path, body=request)["status"]["token"])
    cluster.write_token_kubeconfig(folder / f"{account}.kubeconfig", token)
    return Someone(Api.connect(folder / f"{account}.kubeconfig", user_agent=account), namespace)


def tenant(cluster: Cluster, folder: Path, namespace: str, *more: dict[str, Any]) -> Someone:
    """A new ServiceAccount with all rights over GPUTasks in its namespace, and with what else is given."""
    name, api = f"tenant-{next(_numbers)}", cluster.api()
    body = {"metadata": {"name": name}}
    api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body=body)
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    api.request("POST", f"{rbac}/roles", body={**body, "rules": [*TASKS_ONLY, *more]})
    bound = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    api.request("POST", f"{rbac}/rolebindings", body={**body, **bound})
    return holder(cluster, folder, namespace, name)


def under(account: Any) -> dict[str, Any]:
    return {
        "template": {"spec": {"serviceAccountName": account, "containers": [{"name": "c", "image": "i"}]}}
    }


# --- tenants ----------------------------------------------------------------------------------------


def test_who_may_make_jobs_may_make_change_and_delete_tasks(
    installed: Cluster, team: str, tmp_path: Path
) -> None:
    someone = tenant(installed, tmp_path, team, JOBS)
    name = someone.create()
    someone.change(name, {"spec": {"suspend": True}})
    someone.delete(name)


def test_who_may_not_make_jobs_may_not_make_tasks(installed: Cluster, team: str, tmp_path: Path) -> None:
    someone = tenant(installed, tmp_path, team)
    with pytest.raises(ApiError, match=rf"you need the right to create jobs\.batch in namespace {team}"):
        someone.create()


@pytest.mark.parametrize("spec", [{"suspend": False}, {"attempt": 1}, {"priority": "high"}], ids=str)
def test_who_may_not_make_jobs_starts_no_task_of_others(
    installed: Cluster, team: str, tmp_path: Path, spec: dict[str, Any]
) -> None:
    name = tenant(installed, tmp_path, team, JOBS).create({"suspend": True})
    someone = tenant(installed, tmp_path, team)
    with pytest.raises(ApiError, match=r"you need the right to create jobs\.batch"):
        someone.change(name, {"spec": spec})
    someone.change(name, {"metadata": {"labels": {"a": "b"}}})


def test_who_may_not_delete_jobs_ends_no_task(installed: Cluster, team: str, tmp_path: Path) -> None:
    someone = tenant(installed, tmp_path, team, NO_DELETE)
    name = someone.create()
    with pytest.raises(ApiError, match=r"you need the right to delete jobs\.batch"):
        someone.delete(name)


def test_the_right_to_make_jobs_elsewhere_does_not_count(
    installed: Cluster, team: str, tmp_path: Path
) -> None:
    elsewhere = create_namespace(installed)
    someone = tenant(installed, tmp_path, elsewhere, JOBS)
    with pytest.raises(ApiError) as refused:
        replace(someone, namespace=team).create()
    assert refused.value.status == 403


@pytest.mark.parametrize("account", ["strong", {"a": 1}, 7], ids=str)
def test_a_task_runs_under_no_service_account_that_its_author_cannot_be(
    installed: Cluster, team: str, tmp_path: Path, account: Any
) -> None:
    someone = tenant(installed, tmp_path, team, JOBS)
    with pytest.raises(ApiError) as refused:
        someone.create(under(account))
    assert refused.value.status in (403, 422)


def test_who_may_make_tokens_of_a_service_account_may_run_under_it(
    installed: Cluster, team: str, tmp_path: Path
) -> None:
    someone = tenant(installed, tmp_path, team, JOBS, TOKENS)
    name = someone.create(under("strong"))
    other = tenant(installed, tmp_path, team, JOBS)
    with pytest.raises(ApiError, match="the right to create tokens of ServiceAccount strong"):
        other.change(name, {"spec": {"attempt": 1}})


def test_an_author_does_not_change_the_account_afterwards(
    installed: Cluster, team: str, tmp_path: Path
) -> None:
    someone = tenant(installed, tmp_path, team, JOBS)
    name = someone.create(under("default"))
    with pytest.raises(ApiError, match="tokens of ServiceAccount strong"):
        someone.change(name, {"spec": {"attempt": 1, **under("strong")}})


def test_a_tenant_does_not_write_the_status(installed: Cluster, team: str, tmp_path: Path) -> None:
    someone = tenant(installed, tmp_path, team, JOBS)
    name = someone.create()
    path = objects.path(team, name) + "/status"
    with pytest.raises(ApiError) as refused:
        someone.api.request("PATCH", path, body={"status": {"phase": "Succeeded"}}, content_type=MERGE_PATCH)
    assert refused.value.status == 403


# --- the controller ---------------------------------------------------------------------------------


@pytest.fixture
def controller(installed: Cluster, tmp_path: Path) -> Api:
    return holder(installed, tmp_path, *CONTROLLER).api


@pytest.fixture
def job(installed: Cluster, team: str) -> dict[str, Any]:
    """The Job of a task that is there."""
    someone = Someone(installed.api(), team)
    name = someone.create()
    task = msgspec.convert(installed.api().json("GET", objects.path(team, name)), objects.Task)
    return job_wanted(task, rules(policy=policy(team), classes=CLASSES))


def test_the_controller_makes_changes_and_deletes_the_job_of_a_task(
    controller: Api, team: str, job: dict[str, Any]
) -> None:
    path = objects.jobs_path(team, job["metadata"]["name"])
    controller.request("POST", objects.jobs_path(team), body=job)
    for change in ({"suspend": True}, {"activeDeadlineSeconds": 60}, {"suspend": False}):
        controller.request("PATCH", path, body={"spec": change}, content_type=MERGE_PATCH)
    controller.request("DELETE", path)


@pytest.mark.parametrize(
    "owner",
    [None, {"kind": "Job"}, {"apiVersion": "falldio.com/v2"}, {"controller": False}, {"name": "another"}],
    ids=str,
)
def test_the_controller_makes_no_job_that_is_not_a_tasks(
    controller: Api, team: str, job: dict[str, Any], owner: dict[str, Any] | None
) -> None:
    (there,) = job["metadata"]["ownerReferences"]
    job["metadata"]["ownerReferences"] = [{**there, **owner}] if owner else []
    with pytest.raises(ApiError, match="only touch Jobs that belong to a GPUTask of their name"):
        controller.request("POST", objects.jobs_path(team), body=job)


@pytest.mark.parametrize("namespace", ["kube-system", "topogate-system"])
def test_the_controller_makes_no_job_beside_the_clusters_own_identities(
    controller: Api, job: dict[str, Any], namespace: str
) -> None:
    job["metadata"]["namespace"] = namespace
    with pytest.raises(ApiError, match="no Jobs in namespaces of the cluster or of topogate"):
        controller.request("POST", objects.jobs_path(namespace), body=job)


@pytest.mark.parametrize(
    "spec",
    [
        {"hostNetwork": True},
        {"hostPID": True},
        {"hostIPC": True},
        {"nodeName": "n"},
        {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
        {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]},
        {"initContainers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 1}]}]},
    ],
    ids=str,
)
def test_the_controller_makes_no_job_whose_pods_reach_out(
    controller: Api, team: str, job: dict[str, Any], spec: dict[str, Any]
) -> None:
    job["spec"]["template"]["spec"] |= spec
    # An API server that allows no privileged containers at all says so before.
    with pytest.raises(ApiError, match=r"no Job whose pods reach out to their node|privileged: Forbidden"):
        controller.request("POST", objects.jobs_path(team), body=job)


@pytest.mark.parametrize("act", ["PATCH", "DELETE"])
def test_the_controller_leaves_the_jobs_of_others_alone(
    installed: Cluster, controller: Api, team: str, act: str
) -> None:
    name = f"own-{next(_numbers)}"
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    body = {"metadata": {"name": name}, "spec": {"suspend": True, "template": {"spec": pod}}}
    installed.api().request("POST", objects.jobs_path(team), body=body)
    path = objects.jobs_path(team, name)
    change: dict[str, Any] = (
        {"body": {"spec": {"suspend": False}}, "content_type": MERGE_PATCH} if act == "PATCH" else {}
    )
    with pytest.raises(ApiError, match="only touch Jobs that belong to a GPUTask"):
        controller.request(act, path, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"parallelism": 0}},
        {"spec": {"backoffLimit": 0}},
        {"spec": {"ttlSecondsAfterFinished": 0}},
        {"metadata": {"labels": {keys.TASK_LABEL: "other"}}},
        {"metadata": {"ownerReferences": []}},
        {"metadata": {"finalizers": ["example.com/x"]}},
    ],
    ids=str,
)
def test_the_controller_changes_nothing_else_of_a_job(
    installed: Cluster, controller: Api, team: str, job: dict[str, Any], change: dict[str, Any]
) -> None:
    controller.request("POST", objects.jobs_path(team), body=job)
    path = objects.jobs_path(team, job["metadata"]["name"])
    with pytest.raises(ApiError, match="may change suspend and activeDeadlineSeconds, and nothing else"):
        controller.request("PATCH", path, body=change, content_type=MERGE_PATCH)


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", "/api/v1/namespaces/{}/pods"),
        ("GET", "/api/v1/namespaces/{}/secrets"),
        ("GET", "/api/v1/namespaces/{}/configmaps"),
        ("GET", "/api/v1/nodes"),
        ("POST", "/apis/falldio.com/v1/namespaces/{}/gputasks"),
        ("POST", "/apis/batch/v1/namespaces/{}/cronjobs"),
        ("POST", "/apis/topogate.io/v1alpha1/namespaces/{}/placements"),
        ("POST", "/api/v1/namespaces/{}/serviceaccounts/default/token"),
    ],
)
def test_the_controller_has_no_other_rights(controller: Api, team: str, verb: str, path: str) -> None:
    body = None if verb == "GET" else {"metadata": {"name": "x"}}
    with pytest.raises(ApiError) as refused:
        controller.request(verb, path.format(team), body=body)
    assert refused.value.status == 403


def test_the_controller_does_not_change_what_a_user_wrote(
    controller: Api, installed: Cluster, team: str
) -> None:
    name = Someone(installed.api(), team).create()
    body = [{"op": "replace", "path": "/spec/attempt", "value": 9}]
    with pytest.raises(ApiError) as refused:
        controller.request("PATCH", objects.path(team, name), body=body, content_type=JSON_PATCH)
    assert refused.value.status == 403
